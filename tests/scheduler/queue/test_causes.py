"""What brings pods into the pools of the queue is counted by upstream's labels."""

from __future__ import annotations

import pytest

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod, of_event
from koordinator.scheduler.queue.scheduling_queue import QueueOptions, SchedulingQueue
from tests.scheduler.fakes import describe, make_pod

WAKES = frozenset({EventKind.NODE_ADD})


class Counted:
    """A queue with one pod, and what it has counted since the last look."""

    def __init__(self, *, gated: bool = False) -> None:
        self.seconds = 0.0
        self.gated = gated
        options = QueueOptions(initial_backoff=1.0, max_in_unschedulable=60.0)
        self.queue = SchedulingQueue(lambda pod, at: (at,), self._gate, lambda: self.seconds, options)
        self._seen: dict[tuple[Pool, str], int] = {}
        self.queue.add(describe(make_pod("p")))

    def news(self) -> dict[tuple[Pool, str], int]:
        before, self._seen = self._seen, dict(self.queue.incoming)
        return {key: count - before.get(key, 0) for key, count in self._seen.items() if count > before.get(key, 0)}

    def pop(self) -> QueuedPod:
        entry = self.queue.pop()
        assert entry is not None
        return entry

    def add_unschedulable(self) -> None:
        self.queue.add_unschedulable(self.pop(), WAKES, "no room")
        self.news()

    def change(self) -> None:
        changed: Pod = make_pod("p", labels={"changed": "yes"})
        self.queue.add(describe(changed))

    def _gate(self, pod: PodInfo) -> str | None:
        return "gated" if self.gated else None


def test_a_new_pod_comes_to_the_active_ones() -> None:
    assert Counted().news() == {(Pool.ACTIVE, "UnschedulablePodAdd"): 1}


def test_a_new_pod_with_a_gate_comes_to_the_gated_ones() -> None:
    assert Counted(gated=True).news() == {(Pool.GATED, "UnschedulablePodAdd"): 1}


def test_a_gated_pod_that_changes_comes_to_the_active_ones() -> None:
    counted = Counted(gated=True)
    counted.news()
    counted.gated = False
    counted.change()
    assert counted.news() == {(Pool.ACTIVE, "UnschedulablePodUpdate"): 1}


def test_a_pod_that_fits_nowhere_is_unschedulable() -> None:
    counted = Counted()
    counted.news()
    counted.queue.add_unschedulable(counted.pop(), WAKES, "no room")
    assert counted.news() == {(Pool.UNSCHEDULABLE, "ScheduleAttemptFailure"): 1}


def test_an_error_makes_a_pod_back_off() -> None:
    counted = Counted()
    counted.news()
    counted.queue.retry(counted.pop(), "the API is away")
    assert counted.news() == {(Pool.BACKOFF, "ScheduleAttemptFailure"): 1}


def test_the_end_of_a_back_off_is_counted() -> None:
    counted = Counted()
    counted.queue.retry(counted.pop(), "the API is away")
    counted.news()
    counted.seconds += 2.0
    counted.queue.flush()
    assert counted.news() == {(Pool.ACTIVE, "BackoffComplete"): 1}


def test_an_event_that_helps_is_counted_where_it_brings_the_pod() -> None:
    counted = Counted()
    counted.add_unschedulable()
    counted.queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    assert counted.news() == {(Pool.BACKOFF, "NodeAdd"): 1}


def test_a_pod_that_is_taken_before_its_back_off_ends_was_active_for_a_moment() -> None:
    counted = Counted()
    counted.add_unschedulable()
    counted.queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    counted.news()
    counted.pop()
    assert counted.news() == {(Pool.ACTIVE, "PopFromBackoffQ"): 1}


def test_a_pod_that_was_unschedulable_for_too_long_is_counted() -> None:
    counted = Counted()
    counted.add_unschedulable()
    counted.seconds += 61.0
    counted.queue.flush()
    assert counted.news() == {(Pool.ACTIVE, "UnschedulableTimeout"): 1}


def test_a_pod_that_a_plugin_activates_is_counted() -> None:
    counted = Counted()
    counted.add_unschedulable()
    counted.queue.activate(["uid-p"])
    assert counted.news() == {(Pool.ACTIVE, "ForceActivate"): 1}


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (EventKind.NODE_ALLOCATABLE, "NodeUpdateNodeAllocatable"),
        (EventKind.POD_DELETE, "AssignedPodDelete"),
        ("NodeMetric/Update", "NodeMetricUpdate"),
    ],
)
def test_events_of_the_cluster_have_upstream_s_labels(kind: str, label: str) -> None:
    assert of_event(kind) == label
