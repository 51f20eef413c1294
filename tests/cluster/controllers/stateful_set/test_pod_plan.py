"""The order in which the pods of a StatefulSet are created, deleted and replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import Object, ObjectMeta, OwnerReference
from koordinator.cluster.controllers.stateful_set.claims import wanted_references
from koordinator.cluster.controllers.stateful_set.identity import new_claims, new_pod, ordinal_of, revision_of
from koordinator.cluster.controllers.stateful_set.pod_plan import most_unavailable, plan_pods
from koordinator.cluster.controllers.stateful_set.types import ClaimRetentionPolicy, StatefulSet
from tests.cluster.controllers.stateful_set.stateful_set_in_memory import (
    StatefulSetInMemory,
    pod_of_set,
    stateful_set_with,
)

CLAIM = {"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def cluster_with(stateful_set: StatefulSet) -> StatefulSetInMemory:
    """With all pods ready."""
    cluster = StatefulSetInMemory(stateful_set)
    cluster.settle()
    return cluster


def test_pods_are_created_one_after_the_other() -> None:
    cluster = StatefulSetInMemory(stateful_set_with(3))
    assert [cluster.run_pass().create, cluster.run_pass().create] == [[0], []]
    cluster.run_pods()
    assert cluster.run_pass().create == [1]


def test_in_parallel_all_are_created_at_once() -> None:
    cluster = StatefulSetInMemory(stateful_set_with(3, pod_management_policy="Parallel"))
    assert cluster.run_pass().create == [0, 1, 2]


def test_ordinals_from_a_start() -> None:
    assert cluster_with(stateful_set_with(2, start=5)).names == ["web-5", "web-6"]


def test_scaled_down_from_the_highest_ordinal() -> None:
    cluster = cluster_with(stateful_set_with(3))
    cluster.scale(1)
    assert [pod.metadata.name for pod in cluster.run_pass().delete] == ["web-2"]
    assert cluster.run_pass().delete == []
    cluster.settle()
    assert cluster.names == ["web-0"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_made_again(phase: str) -> None:
    cluster = cluster_with(stateful_set_with(1))
    cluster.set_phase("web-0", phase)
    assert [pod.metadata.name for pod in cluster.run_pass().ended] == ["web-0"]
    cluster.settle()
    assert cluster.pods["web-0"].status.phase == "Running"


def test_an_update_begins_at_the_highest_ordinal_and_waits() -> None:
    cluster = cluster_with(stateful_set_with(3))
    cluster.update = "second"
    assert [pod.metadata.name for pod in cluster.run_pass().delete] == ["web-2"]
    assert cluster.run_pass().delete == []


def test_pods_below_the_partition_stay() -> None:
    cluster = cluster_with(stateful_set_with(3, partition=2))
    cluster.update = "second"
    cluster.settle()
    assert [revision_of(cluster.pods[name]) for name in cluster.names] == ["first", "first", "second"]
    assert (cluster.stateful_set.status.current_replicas, cluster.stateful_set.status.updated_replicas) == (2, 1)


def test_a_pod_below_the_partition_is_made_again_as_it_was() -> None:
    cluster = cluster_with(stateful_set_with(3, partition=2))
    cluster.update = "second"
    cluster.settle()
    del cluster.pods["web-0"]
    cluster.settle()
    assert revision_of(cluster.pods["web-0"]) == "first"


def test_a_finished_update_is_the_current_revision() -> None:
    cluster = cluster_with(stateful_set_with(2))
    cluster.update = "second"
    cluster.settle()
    assert (cluster.current, cluster.stateful_set.status.current_replicas) == ("second", 2)


@pytest.mark.parametrize(("limit", "most"), [(None, 1), (3, 3), ("50%", 5), ("1%", 1), (0, 1)])
def test_how_many_pods_an_update_takes_away(limit: int | str | None, most: int) -> None:
    stateful_set = stateful_set_with(10, max_unavailable=limit, pod_management_policy="Parallel")
    cluster = cluster_with(stateful_set)
    cluster.update = "second"
    assert (most_unavailable(stateful_set), len(cluster.run_pass().delete)) == (most, most)


def test_a_pod_must_be_ready_for_long_enough() -> None:
    cluster = StatefulSetInMemory(stateful_set_with(2, min_ready_seconds=30))
    cluster.run_pass()
    cluster.run_pods()
    plan = plan_pods(cluster.state())
    assert (plan.create, plan.look_again) == ([], 30.0)


@given(
    st.sampled_from(["OrderedReady", "Parallel"]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(0, 9), max_size=30),
    st.integers(0, 5),
)
def test_an_update_takes_away_no_more_than_it_may_and_ends(
    policy: str, replicas: int, most: int, events: list[int], scaled: int
) -> None:
    cluster = cluster_with(stateful_set_with(replicas, max_unavailable=most, pod_management_policy=policy))
    cluster.update = "second"
    for event in events:
        cluster.run_pass()
        state = cluster.state()
        available = sum(state.is_available(p) and p.metadata.deletion_timestamp is None for p in state.pods.values())
        assert replicas - available <= most
        cluster.run_pods(event)
    cluster.scale(scaled)
    cluster.settle()
    assert cluster.names == [f"web-{ordinal}" for ordinal in range(scaled)]
    assert {revision_of(pod) for pod in cluster.pods.values()} <= {"second"}


# Names and claims.


@pytest.mark.parametrize(
    ("name", "ordinal"), [("web-0", 0), ("web-12", 12), ("web-01", None), ("web-x", None), ("db-1", None)]
)
def test_the_ordinal_of_a_pod(name: str, ordinal: int | None) -> None:
    assert ordinal_of(stateful_set_with(1), name) == ordinal


def test_the_pod() -> None:
    stateful_set = stateful_set_with(2, volume_claim_templates=[CLAIM])
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [], "volumes": [{"name": "tmp"}]}}
    pod = new_pod(stateful_set, template, 1, "web-abc")
    assert (pod["metadata"]["name"], pod["metadata"]["generateName"]) == ("web-1", "web-")
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "web-abc",
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-1", "web")
    assert pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
        {"name": "tmp"},
    ]


def test_the_claims() -> None:
    (claim,) = new_claims(stateful_set_with(2, volume_claim_templates=[CLAIM]), 1)
    assert claim["metadata"] == {"name": "data-web-1", "labels": {"tier": "db", "app": "web"}}
    assert claim["spec"] == CLAIM["spec"]


@pytest.mark.parametrize(
    ("deleted", "scaled", "ordinal", "owner"),
    [
        ("Retain", "Retain", 0, ""),
        ("Delete", "Retain", 0, "StatefulSet"),
        ("Retain", "Delete", 0, ""),
        ("Retain", "Delete", 5, "Pod"),
        ("Delete", "Delete", 0, "StatefulSet"),
        ("Delete", "Delete", 5, "Pod"),
    ],
)
def test_what_a_claim_goes_with(deleted: str, scaled: str, ordinal: int, owner: str) -> None:
    policy = ClaimRetentionPolicy(when_deleted=deleted, when_scaled=scaled)
    stateful_set = stateful_set_with(2, persistent_volume_claim_retention_policy=policy)
    found = wanted_references(stateful_set, pod_of_set(stateful_set, ordinal), ordinal, Object())
    assert [each["kind"] for each in found or ()] == ([owner] if owner else [])


def test_a_claim_that_something_else_controls_is_left_alone() -> None:
    policy = ClaimRetentionPolicy(when_deleted="Delete")
    stateful_set = stateful_set_with(2, persistent_volume_claim_retention_policy=policy)
    other = OwnerReference(kind="Other", name="other", uid="other", controller=True)
    claim = Object(metadata=ObjectMeta(owner_references=(other,)))
    assert wanted_references(stateful_set, pod_of_set(stateful_set, 0), 0, claim) is None
