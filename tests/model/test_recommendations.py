"""The Recommendation of a pod: found by an index as by looking at all of them, and named when it must not be used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.recommendation import Recommendation
from koordinator.model.label_selector import compile_selector
from koordinator.model.recommendations import (
    RecommendationIndex,
    recommended,
    workload_of_target,
    workloads_of,
)

Document = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(owner: Document | None = None, namespace: str = "shop", **labels: str) -> ObjectMeta:
    owners = [] if owner is None else [{"uid": "u", "controller": True, **owner}]
    document = {"name": "p", "namespace": namespace, "ownerReferences": owners}
    return convert({**document, "labels": {key.replace("_", "-"): text for key, text in labels.items()}}, ObjectMeta)


def workload(kind: str, name: str, api_version: str = "") -> Document:
    return {"type": "workload", "workload": {"kind": kind, "name": name, "apiVersion": api_version}}


def selector(**labels: str) -> Document:
    return {"type": "podSelector", "podSelector": {"matchLabels": labels}}


def recommendation(name: str, target: Document, namespace: str = "shop", **status: Any) -> Recommendation:
    metadata = {"name": name, "namespace": namespace}
    return convert({"metadata": metadata, "spec": {"target": target}, "status": status}, Recommendation)


def replica_set(name: str) -> Document:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}


@pytest.mark.parametrize(
    ("controlled", "kinds"),
    [
        (pod(), []),
        (pod(replica_set("web-5d9"), pod_template_hash="5d9"), [("ReplicaSet", "web-5d9"), ("Deployment", "web")]),
        (pod(replica_set("web-5d9"), pod_template_hash="777"), [("ReplicaSet", "web-5d9")]),
        (pod(replica_set("-5d9"), pod_template_hash="5d9"), [("ReplicaSet", "-5d9")]),
        (
            pod(replica_set("web-5d9"), rollouts_pod_template_hash="5d9"),
            [("ReplicaSet", "web-5d9"), ("Rollout", "web")],
        ),
        (
            pod({"apiVersion": "batch/v1", "kind": "Job", "name": "night-29384756"}),
            [("Job", "night-29384756"), ("CronJob", "night")],
        ),
        (pod({"apiVersion": "batch/v1", "kind": "Job", "name": "night-1"}), [("Job", "night-1")]),
        (pod({"apiVersion": "v1", "kind": "ReplicationController", "name": "old"}), [("ReplicationController", "old")]),
    ],
)
def test_the_controllers_of_a_pod_are_told_from_the_pod(
    controlled: ObjectMeta, kinds: Sequence[tuple[str, str]]
) -> None:
    assert [(each.kind, each.name) for each in workloads_of(controlled)] == list(kinds)


def test_a_workload_comes_before_a_selector_and_the_lowest_name_before_others() -> None:
    index = RecommendationIndex()
    for each in (
        recommendation("a-selector", selector(app="web")),
        recommendation("z", workload("Deployment", "web")),
        recommendation("y", workload("ReplicaSet", "web-1")),
        recommendation("x", workload("Deployment", "web", "apps/v1"), namespace="other"),
    ):
        index.put(each)

    found = [
        index.find(pod(replica_set("web-1"), pod_template_hash="1", app="web")),
        index.find(pod(app="web")),
        index.find(pod(app="api")),
    ]

    assert [each and each.key for each in found] == ["shop/y", "shop/a-selector", None]


def test_a_pod_that_is_being_created_is_found_by_the_namespace_of_the_request() -> None:
    index = RecommendationIndex()
    index.put(recommendation("web", selector(app="web")))

    assert index.find(pod(app="web", namespace="")) is None
    assert index.find(pod(app="web", namespace=""), "shop") is not None


@pytest.mark.parametrize(
    "target",
    [
        {"type": "podSelector"},
        selector(),
        {"type": "podSelector", "podSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
        {"type": "workload"},
        workload("CloneSet", "web"),
        {**selector(app="web"), "type": "other"},
    ],
)
def test_a_target_that_cannot_be_used_is_that_of_no_pod(target: Document) -> None:
    index = RecommendationIndex()
    index.put(recommendation("web", target))
    found = index.find(pod({"apiVersion": "apps.kruise.io/v1", "kind": "CloneSet", "name": "web"}, app="web"))
    index.remove(recommendation("web", target))

    assert found is None
    assert not len(index)


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), min_size=1)
_REQUIREMENTS = st.fixed_dictionaries(
    {"key": st.sampled_from(["app", "tier"]), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
)
_TARGETS = st.one_of(
    st.builds(workload, st.sampled_from(["Deployment", "ReplicaSet", "StatefulSet"]), st.sampled_from(["w", "w-1"])),
    st.builds(lambda labels: selector(**labels), _LABELS),
    st.builds(lambda each: {"type": "podSelector", "podSelector": {"matchExpressions": [each]}}, _REQUIREMENTS),
)
_SPACES = st.sampled_from(["shop", "other"])
_STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "remove"]), _NAMES, _SPACES, _TARGETS), max_size=12)
_PODS = st.builds(
    lambda owner, labels, namespace: pod(owner, namespace, pod_template_hash="1", **labels),
    st.sampled_from([None, replica_set("w-1"), {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"}]),
    st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"])),
    _SPACES,
)


def slowly(known: Sequence[Recommendation], of: ObjectMeta) -> str | None:
    """By looking at all Recommendations of the namespace."""
    near = [each for each in known if each.metadata.namespace == of.namespace]
    owning = [each for each in near if workload_of_target(each.spec.target) in workloads_of(of)]
    selecting = [
        each
        for each in near
        if each.spec.target.type == "podSelector" and compile_selector(each.spec.target.pod_selector).matches(of.labels)
    ]
    return min((each.metadata.key for each in owning or selecting), default=None)


@given(_STEPS, st.lists(_PODS, max_size=4))
def test_the_index_finds_what_looking_at_all_of_them_finds(
    steps: list[tuple[str, str, str, Document]], pods: list[ObjectMeta]
) -> None:
    index, known = RecommendationIndex(), dict[str, Recommendation]()
    for verb, name, namespace, target in steps:
        each = recommendation(name, target, namespace)
        if verb == "put":
            index.put(each)
            known[each.metadata.key] = each
        else:
            index.remove(each)
            known.pop(each.metadata.key, None)

    found = [index.find(each) for each in pods]

    assert [each and each.key for each in found] == [slowly(list(known.values()), each) for each in pods]
    assert len(index) == len(known)


def status(age: timedelta = timedelta(), *conditions: str, **amounts: str) -> Document:
    resources = amounts or {"cpu": "1500m", "memory": "1Gi"}
    return {
        "updateTime": (NOW - age).isoformat(),
        "podStatus": {"containerStatuses": [{"containerName": "main", "resources": resources}]},
        "conditions": [{"type": each, "status": "True", "message": f"why {each}"} for each in conditions],
    }


def test_amounts_are_in_milli_cores_and_bytes_and_others_are_left_out() -> None:
    amounts: Document = {"cpu": "0.5", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert recommended(recommendation("web", selector(app="web"), **status(**amounts))).containers == {
        "main": {"cpu": 500, "memory": 1 << 30}
    }
    assert recommended(recommendation("web", selector(app="web"), **status(cpu="-1", memory="0"))).containers == {}


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (status(), ""),
        ({}, "recommends nothing yet"),
        (status(cpu="0"), "recommends nothing yet"),
        (status(timedelta(hours=25)), "is stale: it was written 25 hours ago"),
        (status(timedelta(hours=24)), ""),
        (status(timedelta(hours=-24)), ""),
        (status(timedelta(days=-30)), "is dated 720 hours ahead"),
        (status(timedelta(), "LowConfidence"), "is of low confidence: why LowConfidence"),
        (status(timedelta(), "ConfigUnsupported"), "is not supported: why ConfigUnsupported"),
        (status(timedelta(), "NoObjectsMatched"), ""),
    ],
)
def test_a_recommendation_that_must_not_be_used_says_why(of: Document, why: str) -> None:
    text = recommended(recommendation("web", selector(app="web"), **of)).unusable(NOW)

    assert text == "" if not why else why in text


def test_low_confidence_may_be_accepted() -> None:
    found = recommended(recommendation("web", selector(app="web"), **status(timedelta(), "LowConfidence")))

    assert found.unusable(NOW, low_confidence_is_used=True) == ""
