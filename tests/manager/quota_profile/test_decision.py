"""The quota of a profile: the cases of the original, and that nothing is written that is there already."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.node import Node
from koordinator.cluster.patch import apply_merge_patch
from koordinator.manager.quota_profile.decision import Plan, decide, tree_id
from koordinator.model.label_selector import SelectorError

P = "quota.scheduling.koordinator.sh"
ZONE = "topology.kubernetes.io/zone"
NO_LIMIT = "4611686018427387"


def node(name: str, zone: str, *, ready: bool = True, cordoned: bool = False, **amounts: str) -> Node:
    allocatable = amounts or {"cpu": "10", "memory": "1000", "storage": "1000"}
    return convert(
        {
            "metadata": {"name": name, "labels": {ZONE: zone}},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": str(ready)}]},
        },
        Node,
    )


NODES = [node("node1", "a"), node("node2", "a", ready=False), node("node3", "b")]


def profile(
    zone: str | None = "a", labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> ElasticQuotaProfile:
    selector = None if zone is None else {"matchLabels": {ZONE: zone}}
    metadata = {"name": "profile1", "namespace": "ns", "labels": labels or {}, "annotations": annotations or {}}
    spec = {"quotaName": "root", "nodeSelector": selector, **spec}
    return convert({"metadata": metadata, "spec": spec}, ElasticQuotaProfile)


def created(plan: Plan) -> dict[str, Any]:
    assert plan.create_quota is not None
    return plan.create_quota


def annotation(document: dict[str, Any], name: str) -> Any:
    return json.loads(document["metadata"]["annotations"][f"{P}/{name}"])


def test_the_tree_of_a_profile_is_a_hash_of_its_name() -> None:
    assert tree_id("kube-system", "profile1") == "9816276314407088615"


def test_the_quota_is_as_large_as_the_nodes() -> None:
    plan = decide(profile(), None, NODES)
    document = created(plan)
    assert document["spec"] == {
        "min": {"cpu": "20", "memory": "2k"},
        "max": {"cpu": NO_LIMIT, "memory": NO_LIMIT},
    }
    assert annotation(document, "total-resource") == {"cpu": "20", "memory": "2k", "storage": "2k"}
    assert annotation(document, "unschedulable-resource") == {"cpu": "10", "memory": "1k", "storage": "1k"}


def test_the_labels_say_whose_tree_it_is() -> None:
    labels = created(decide(profile(quotaLabels={"team": "x"}), None, NODES))["metadata"]["labels"]
    assert labels == {
        f"{P}/profile": "profile1",
        f"{P}/tree-id": tree_id("ns", "profile1"),
        f"{P}/is-root": "true",
        "team": "x",
    }


def test_a_profile_without_a_tree_gets_one() -> None:
    assert decide(profile(), None, NODES).profile_patch == {
        "metadata": {"labels": {f"{P}/tree-id": tree_id("ns", "profile1")}}
    }


def test_a_tree_that_was_given_is_kept() -> None:
    plan = decide(profile(labels={f"{P}/tree-id": "tree1"}), None, NODES)
    assert plan.profile_patch is None
    assert created(plan)["metadata"]["labels"][f"{P}/tree-id"] == "tree1"


def test_labels_of_the_profile_do_not_replace_what_the_tree_is_known_by() -> None:
    plan = decide(profile(quotaLabels={f"{P}/tree-id": "other", f"{P}/is-root": "false"}), None, NODES)
    labels = created(plan)["metadata"]["labels"]
    assert (labels[f"{P}/tree-id"], labels[f"{P}/is-root"]) == (tree_id("ns", "profile1"), "true")


@pytest.mark.parametrize(
    ("ratio", "cpu", "memory"), [("0.9", "18", "1800"), ("1", "20", "2000"), ("0.0333", "666m", "66")]
)
def test_a_ratio_makes_it_smaller(ratio: str, cpu: str, memory: str) -> None:
    assert created(decide(profile(resourceRatio=ratio), None, NODES))["spec"]["min"] == {"cpu": cpu, "memory": memory}


@pytest.mark.parametrize("ratio", ["0", "-1", "1.1", "half", "nan", "", " 0.5", "0.5_0", "1e-400"])
def test_a_ratio_that_means_nothing_is_said_and_counts_as_one(ratio: str) -> None:
    plan = decide(profile(resourceRatio=ratio), None, NODES)
    assert created(plan)["spec"]["min"] == {"cpu": "20", "memory": "2000"}
    (remark,) = plan.remarks
    assert remark.startswith(f"spec.resourceRatio: {ratio!r} is not usable")


def test_the_resources_that_count_can_be_named() -> None:
    keys = {f"{P}/resource-keys": '["cpu", "nvidia.com/gpu"]'}
    document = created(decide(profile(annotations=keys), None, NODES))
    assert document["spec"]["min"] == {"cpu": "20", "nvidia.com/gpu": "0"}
    assert document["spec"]["max"] == {"cpu": NO_LIMIT, "nvidia.com/gpu": NO_LIMIT}


@pytest.mark.parametrize("keys", ["cpu", '{"cpu": 1}', "[1]", "", "null", "[" * 100_000])
def test_names_that_cannot_be_read_are_said_and_the_usual_ones_count(keys: str) -> None:
    plan = decide(profile(annotations={f"{P}/resource-keys": keys}), None, NODES)
    assert set(created(plan)["spec"]["min"]) == {"cpu", "memory"}
    assert len(plan.remarks) == 1


@pytest.mark.parametrize(
    ("ready", "cordoned", "counts"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_nodes_that_take_no_pods_are_summed_up_apart(ready: bool, cordoned: bool, counts: bool) -> None:
    document = created(decide(profile(), None, [node("n", "a", ready=ready, cordoned=cordoned, cpu="3")]))
    assert annotation(document, "unschedulable-resource") == ({"cpu": "3"} if counts else {})


def test_without_a_selector_there_are_no_nodes() -> None:
    assert created(decide(profile(zone=None), None, NODES))["spec"]["min"] == {"cpu": "0", "memory": "0"}


def test_a_selector_that_cannot_be_used_is_an_error() -> None:
    wrong = profile(nodeSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]})
    with pytest.raises(SelectorError, match="Near"):
        decide(wrong, None, NODES)


def test_a_sum_prints_like_its_parts() -> None:
    nodes = [node("n1", "a", memory="0"), node("n2", "a", memory="64Gi"), node("n3", "a", memory="64Gi")]
    assert created(decide(profile(), None, nodes))["spec"]["min"]["memory"] == "128Gi"


def stored(document: dict[str, Any]) -> ElasticQuota:
    return convert(document, ElasticQuota)


def test_what_others_wrote_on_the_quota_stays() -> None:
    known = {
        "metadata": {"name": "root", "labels": {"a": "a"}, "annotations": {"b": "b"}},
        "spec": {"min": {"cpu": "5", "gpu": "1"}, "max": {"cpu": "7"}},
    }
    patch = decide(profile(), stored(known), NODES).quota_patch
    assert patch is not None
    after = apply_merge_patch(known, patch)
    assert (after["metadata"]["labels"]["a"], after["metadata"]["annotations"]["b"]) == ("a", "b")
    assert after["spec"] == {"min": {"cpu": "20", "memory": "2k"}, "max": {"cpu": NO_LIMIT, "memory": NO_LIMIT}}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.sampled_from(["0", "1", "250m", "3", "1Gi", "1.5G"])
)
CLUSTERS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans(), AMOUNTS), max_size=5).map(
    lambda rows: [
        node(f"n{number}", zone, ready=ready, cordoned=cordoned, **(amounts or {"cpu": "0"}))
        for number, (zone, ready, cordoned, amounts) in enumerate(rows)
    ]
)
PROFILES = st.builds(
    profile,
    st.sampled_from([None, "a", "b"]),
    annotations=st.sampled_from([{}, {f"{P}/resource-keys": '["cpu","nvidia.com/gpu"]'}]),
    resourceRatio=st.sampled_from([None, "0.5", "0.333"]),
)


@given(PROFILES, CLUSTERS, CLUSTERS)
def test_a_patch_leads_to_what_would_be_created_and_then_nothing_is_left_to_write(
    wanted: ElasticQuotaProfile, before: list[Node], now: list[Node]
) -> None:
    old = created(decide(wanted, None, before))
    patched = apply_merge_patch(old, decide(wanted, stored(old), now).quota_patch or {})
    fresh = created(decide(wanted, None, now))
    assert stored(patched).spec == stored(fresh).spec
    assert patched["metadata"] == fresh["metadata"]
    assert decide(wanted, stored(patched), now).quota_patch is None
