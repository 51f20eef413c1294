"""What is read of pods: requests of any tier, and which containers were killed for memory, each kill once."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.manager.recommender.observed_pods import Kill, new_kills
from tests.manager.recommender.pods import GIB, Document, container, pod

AT = "2026-01-01T00:05:00Z"
OOM: Document = {"terminated": {"reason": "OOMKilled", "finishedAt": AT}}
RUNNING: Document = {"running": {}}


def status(state: Document, last: Document | None = None, restarts: int = 0) -> Any:
    found = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    return pod(status={"containerStatuses": [found]})


@pytest.mark.parametrize(
    ("requests", "cores", "size"),
    [
        ({"cpu": "500m", "memory": "1Gi"}, 0.5, GIB),
        ({"kubernetes.io/batch_cpu": "500", "kubernetes.io/batch_memory": "1Gi"}, 0.5, GIB),
        ({"kubernetes.io/mid_cpu": "250", "kubernetes.io/mid_memory": "1Gi"}, 0.25, GIB),
        ({}, 0, 0),
    ],
)
def test_requests_are_those_of_the_pod_s_tier(requests: dict[str, str], cores: float, size: float) -> None:
    found = pod("p", container("main", **requests)).containers[0]
    assert (found.cpu_request, found.memory_request) == (cores, size)


def test_sidecars_are_containers_and_other_init_containers_are_not() -> None:
    found = pod(spec={"initContainers": [container("setup"), container("proxy") | {"restartPolicy": "Always"}]})
    assert [each.name for each in found.containers] == ["main", "proxy"]


@pytest.mark.parametrize(
    "after", [status(OOM), status(RUNNING, OOM, restarts=1), status({"waiting": {"reason": "CrashLoopBackOff"}}, OOM)]
)
def test_a_kill_is_found_wherever_it_shows_first(after: Any) -> None:
    assert {(kill.container, kill.at is not None) for kill in new_kills(status(RUNNING), after)} == {("main", True)}


def test_a_kill_counts_once_while_it_moves_from_state_to_last_state() -> None:
    assert new_kills(status(OOM), status(RUNNING, OOM, restarts=1)) == set()


def test_the_next_kill_counts_again() -> None:
    later: Document = {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-01T00:06:00Z"}}
    (kill,) = new_kills(status(RUNNING, OOM, restarts=1), status(later, OOM, restarts=1))
    assert kill.at is not None
    assert kill.at.minute == 6


def test_other_ends_are_no_kills() -> None:
    assert new_kills(status(RUNNING), status({"terminated": {"reason": "Error", "finishedAt": AT}})) == set()


def test_a_kill_without_a_time_counts_once() -> None:
    untimed: Document = {"terminated": {"reason": "OOMKilled"}}
    assert new_kills(status(RUNNING), status(untimed)) == {Kill("main", None)}
    assert new_kills(status(untimed), status(RUNNING, untimed, restarts=1)) == set()
