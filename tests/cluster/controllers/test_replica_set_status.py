"""The status of a ReplicaSet, worked out from its pods."""

from __future__ import annotations

import msgspec

from koordinator.api.meta import Condition
from koordinator.cluster.controllers.conditions import status_patch
from koordinator.cluster.controllers.replica_set.status import Observation, new_status, next_available_in
from koordinator.cluster.controllers.workloads import ReplicaSet, ReplicaSetStatus
from tests.cluster.controllers.objects import NOW, ago, pod, replica_set


def _patient(seconds: int, **others: object) -> ReplicaSet:
    made = replica_set(replicas=3)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, min_ready_seconds=seconds))


def test_pods_are_counted() -> None:
    unlabelled = pod("c")
    unlabelled = msgspec.structs.replace(
        unlabelled, metadata=msgspec.structs.replace(unlabelled.metadata, labels={"app": "other"})
    )
    pods = [pod("a", ready=ago(60)), pod("b", ready=ago(2)), unlabelled]
    status = new_status(_patient(10), Observation(pods, terminating=4), NOW)
    assert status == ReplicaSetStatus(
        replicas=3,
        fully_labeled_replicas=2,
        ready_replicas=2,
        available_replicas=1,
        terminating_replicas=4,
        observed_generation=1,
    )


def test_the_next_look_is_when_a_pod_becomes_available() -> None:
    pods = [pod("a", ready=ago(60)), pod("b", ready=ago(2)), pod("c", ready=ago(7)), pod("d")]
    assert next_available_in(_patient(10), pods, NOW) == 3


def test_nothing_is_due_when_all_ready_pods_are_available() -> None:
    assert next_available_in(_patient(10), [pod("a", ready=ago(10)), pod("b")], NOW) is None


def test_a_failure_is_a_condition_until_it_is_over() -> None:
    failed = new_status(replica_set(replicas=3), Observation([pod("a")], 0, "exceeded quota"), NOW)
    assert failed.conditions == [
        Condition(
            type="ReplicaFailure",
            status="True",
            reason="FailedCreate",
            message="exceeded quota",
            last_transition_time=NOW,
        )
    ]
    again = msgspec.structs.replace(replica_set(replicas=3), status=failed)
    assert new_status(again, Observation([pod("a")], 0), NOW).conditions == []


def test_too_many_pods_are_a_failure_to_delete() -> None:
    status = new_status(replica_set(replicas=0), Observation([pod("a")], 0, "no"), NOW)
    assert [each.reason for each in status.conditions] == ["FailedDelete"]


def test_a_patch_has_what_differs_and_removes_counts_that_are_zero() -> None:
    old = ReplicaSetStatus(replicas=1, ready_replicas=1, available_replicas=1, observed_generation=3)
    new = ReplicaSetStatus(replicas=0, available_replicas=1, observed_generation=3)
    assert status_patch(old, new) == {"status": {"readyReplicas": None, "replicas": 0}}


def test_an_equal_status_needs_no_patch() -> None:
    assert status_patch(ReplicaSetStatus(replicas=1), ReplicaSetStatus(replicas=1)) is None
