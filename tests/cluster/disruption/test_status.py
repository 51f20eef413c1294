"""What a budget's status says of its pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.disruption import UnknownReplicas, budget_status, recheck_after

_NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _budget(status: Document | None = None, **spec: Any) -> Document:
    return {"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status or {}}


def _pod(name: str, *, ready: bool = True, **metadata: Any) -> Document:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": {"name": name, **metadata}, "status": {"conditions": conditions}}


def _pods(ready: int, unready: int = 0) -> list[Document]:
    return [_pod(f"p{index}", ready=index < ready) for index in range(ready + unready)]


def _status(budget: Document, pods: Sequence[Document], replicas: int = 0) -> Document:
    return budget_status(budget, pods, lambda pods: replicas, _NOW)


@pytest.mark.parametrize(
    ("spec", "ready", "unready", "replicas", "expected"),
    [
        ({"minAvailable": 2}, 3, 0, 0, (3, 2, 3, 1)),
        ({"minAvailable": 2}, 1, 2, 0, (1, 2, 3, 0)),
        ({"minAvailable": "50%"}, 3, 0, 5, (3, 3, 5, 0)),
        ({"minAvailable": "50%"}, 5, 0, 5, (5, 3, 5, 2)),
        ({"maxUnavailable": 1}, 3, 0, 3, (3, 2, 3, 1)),
        ({"maxUnavailable": 1}, 2, 1, 3, (2, 2, 3, 0)),
        ({"maxUnavailable": "30%"}, 3, 0, 3, (3, 2, 3, 1)),
        ({"maxUnavailable": 9}, 2, 0, 2, (2, 0, 2, 2)),
        ({"minAvailable": 0}, 0, 0, 0, (0, 0, 0, 0)),
        ({}, 2, 0, 0, (2, 0, 0, 0)),
    ],
)
def test_counts(spec: Document, ready: int, unready: int, replicas: int, expected: tuple[int, ...]) -> None:
    status = _status(_budget(**spec), _pods(ready, unready), replicas)
    names = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    assert tuple(status[name] for name in names) == expected
    assert status["observedGeneration"] == 3


def test_the_condition_says_whether_a_pod_may_go() -> None:
    (refused,) = _status(_budget(minAvailable=1), _pods(1))["conditions"]
    assert (refused["status"], refused["reason"], refused["observedGeneration"]) == ("False", "InsufficientPods", 3)
    (allowed,) = _status(_budget({"conditions": [refused]}, minAvailable=1), _pods(2))["conditions"]
    assert (allowed["status"], allowed["reason"]) == ("True", "SufficientPods")


def test_the_same_again_changes_nothing() -> None:
    status = _status(_budget(minAvailable=1), _pods(2))
    later = _NOW + timedelta(hours=1)
    assert budget_status(_budget(status, minAvailable=1), _pods(2), lambda pods: 0, later) == status


def test_pods_that_are_going_do_not_count() -> None:
    pods = [*_pods(2), _pod("gone", deletionTimestamp="2026-01-01T12:00:00Z")]
    assert _status(_budget(minAvailable=1), pods)["currentHealthy"] == 2


def test_an_evicted_pod_does_not_count_until_it_is_overdue() -> None:
    fresh, overdue = "2026-01-01T11:59:00Z", "2026-01-01T11:57:59Z"
    old = {"disruptedPods": {"p0": fresh, "p1": overdue, "p9": fresh}}
    status = _status(_budget(old, minAvailable=1), _pods(3))
    assert status["disruptedPods"] == {"p0": fresh}
    assert status["currentHealthy"] == 2
    assert recheck_after(status, _NOW) == timedelta(minutes=1)


def test_a_share_of_nobody_knows_what_allows_nothing() -> None:
    def unknown(pods: Sequence[Document]) -> int:
        raise UnknownReplicas('found no controllers for pod "p0"')

    status = budget_status(_budget({"disruptionsAllowed": 4}, maxUnavailable=1), _pods(1), unknown, _NOW)
    assert status["disruptionsAllowed"] == 0
    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert status["conditions"][0]["message"] == 'found no controllers for pod "p0"'


def test_a_share_that_is_none_allows_nothing() -> None:
    status = _status(_budget(maxUnavailable="some"), _pods(2), 2)
    assert (status["disruptionsAllowed"], status["conditions"][0]["reason"]) == (0, "SyncFailed")


def test_an_eviction_without_a_time_is_overdue() -> None:
    assert _status(_budget({"disruptedPods": {"p0": None}}, minAvailable=0), _pods(1))["disruptedPods"] == {}
