"""The queue's order, its pools and what wakes an unschedulable pod."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import QueueOptions, SchedulingQueue
from tests.scheduler.fakes import describe, make_pod

WAKES = frozenset({EventKind.POD_DELETE, EventKind.NODE_ADD})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def by_priority(pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
    return (-pod.priority, queued_at)


def gate(pod: PodInfo) -> str | None:
    return "waiting for a gate" if "gate" in pod.pod.metadata.labels else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> SchedulingQueue:
    return SchedulingQueue(by_priority, gate, clock, QueueOptions())


def add(queue: SchedulingQueue, name: str, **pod: Any) -> None:
    queue.add(describe(make_pod(name, **pod)))


def pop(queue: SchedulingQueue) -> QueuedPod:
    entry = queue.pop()
    assert entry is not None
    return entry


def names(queue: SchedulingQueue) -> list[str]:
    found = []
    while (entry := queue.pop()) is not None:
        found.append(entry.pod.pod.metadata.name)
    return found


def test_priority_first_then_age(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "old")
    clock.now += 1
    add(queue, "young")
    add(queue, "urgent", priority=9)
    assert names(queue) == ["urgent", "old", "young"]


def test_equals_come_in_the_order_of_arrival(queue: SchedulingQueue) -> None:
    for name in "cab":
        add(queue, name)
    assert names(queue) == ["c", "a", "b"]


def test_a_unschedulable_pod_waits_for_an_event_that_helps(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    queue.add_unschedulable(pop(queue), WAKES, "full")
    clock.now += 5
    queue.on_event(ClusterEvent(EventKind.NODE_LABEL))
    assert queue.pop() is None
    queue.on_event(ClusterEvent(EventKind.POD_DELETE))
    assert names(queue) == ["p"]


def test_an_event_during_the_attempt_is_not_missed(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.BACKOFF


def test_an_event_before_the_attempt_does_not_count(queue: SchedulingQueue) -> None:
    add(queue, "p")
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    entry = pop(queue)
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.UNSCHEDULABLE


def test_a_change_of_the_pod_during_its_attempt_is_not_missed(queue: SchedulingQueue) -> None:
    add(queue, "p", cpu="4")
    entry = pop(queue)
    add(queue, "p", cpu="1")
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.BACKOFF


def test_a_pod_whose_victims_are_evicted_is_not_tried(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    queue.await_victims(pop(queue))
    queue.on_event(ClusterEvent(EventKind.POD_DELETE))
    clock.now += 1000
    assert queue.pop() is None
    assert queue.take("uid-p") is None


def test_what_happens_while_victims_are_evicted_is_not_missed(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.await_victims(entry)
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.BACKOFF


def test_a_pod_that_has_its_capacity_now_keeps_its_turn(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "old")
    entry = pop(queue)
    queue.await_victims(entry)
    clock.now += 1
    add(queue, "young")
    queue.add_unschedulable(entry, WAKES, "full", ready=True)
    assert names(queue) == ["old", "young"]


def test_a_pod_that_loses_its_nomination_while_victims_are_evicted_is_tried_again(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.await_victims(entry)
    queue.activate(["uid-p"])
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.BACKOFF


def test_a_pod_that_is_removed_while_victims_are_evicted_does_not_come_back(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.await_victims(entry)
    queue.remove("uid-p")
    queue.add_unschedulable(entry, WAKES, "full", ready=True)
    assert queue.pop() is None


def test_a_change_of_a_unschedulable_pod_wakes_it(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p", cpu="4")
    queue.add_unschedulable(pop(queue), WAKES, "full")
    clock.now += 5
    add(queue, "p", cpu="1")
    assert queue.size(Pool.ACTIVE) == 1


def test_what_its_status_says_does_not_wake_a_pod(queue: SchedulingQueue) -> None:
    add(queue, "p")
    queue.add_unschedulable(pop(queue), WAKES, "full")
    add(queue, "p")
    assert queue.size(Pool.UNSCHEDULABLE) == 1


def test_errors_back_off_longer_each_time(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    pauses = []
    for _ in range(6):
        entry = pop(queue)
        queue.retry(entry, "no answer")
        assert queue.pop() is None
        pauses.append(entry.backoff_until - clock.now)
        clock.now = entry.backoff_until
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_an_idle_scheduler_does_not_wait_for_the_back_off_of_a_pod_without_error(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    queue.add_unschedulable(entry, WAKES, "full")
    add(queue, "q")
    assert names(queue) == ["q", "p"]


def back_off(queue: SchedulingQueue, clock: Clock, *pods: tuple[str, float], errors: bool = False) -> None:
    """Have the pods fail one after another, with so many seconds in between; all of them may fit by now."""
    entries = {each.pod.pod.metadata.name: each for each in [pop(queue) for _ in pods]}
    for name, seconds in pods:
        clock.now += seconds
        if errors:
            queue.retry(entries[name], "no answer")
        else:
            queue.on_event(ClusterEvent(EventKind.NODE_ADD))
            queue.add_unschedulable(entries[name], WAKES, "full")
            assert entries[name].pool is Pool.BACKOFF


def test_an_idle_scheduler_takes_the_most_important_of_those_that_back_off(
    queue: SchedulingQueue, clock: Clock
) -> None:
    add(queue, "low")
    add(queue, "high", priority=9)
    back_off(queue, clock, ("low", 0.1), ("high", 0.1))
    assert names(queue) == ["high", "low"]


def test_a_back_off_that_ends_a_second_earlier_comes_before_priority(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "low")
    add(queue, "high", priority=9)
    back_off(queue, clock, ("low", 0.1), ("high", 1.0))
    assert names(queue) == ["low", "high"]


def test_back_offs_that_end_in_the_same_second_end_together(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "low")
    add(queue, "high", priority=9)
    back_off(queue, clock, ("low", 0.1), ("high", 0.8), errors=True)
    assert queue.next_deadline() == 102.0
    clock.now = 101.9
    assert queue.pop() is None, "none of them has ended, though a second has passed since the first failed"
    clock.now = 102.0
    assert names(queue) == ["high", "low"]


def test_a_pod_that_must_wait_its_back_off_out_holds_up_no_other(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "broken", priority=9)
    back_off(queue, clock, ("broken", 0.1), errors=True)
    add(queue, "p")
    back_off(queue, clock, ("p", 0.5))
    assert names(queue) == ["p"]


def test_a_new_priority_counts_in_back_off(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    add(queue, "q", priority=5)
    back_off(queue, clock, ("q", 0.1), ("p", 0.1))
    add(queue, "p", priority=9)
    assert names(queue) == ["p", "q"]


def test_a_forgotten_pod_is_tried_again_after_five_minutes(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    queue.add_unschedulable(pop(queue), WAKES, "full")
    assert queue.next_deadline() == clock.now + 300
    clock.now += 299
    assert queue.pop() is None
    clock.now += 1
    assert names(queue) == ["p"]


def test_the_next_deadline_is_the_end_of_the_first_back_off(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    queue.retry(pop(queue), "no answer")
    assert queue.next_deadline() == clock.now + 1


def test_a_gated_pod_stays_out_until_its_gate_is_gone(queue: SchedulingQueue) -> None:
    add(queue, "p", labels={"gate": "closed"})
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    assert queue.pop() is None
    assert queue.size(Pool.GATED) == 1
    add(queue, "p")
    assert names(queue) == ["p"]


def test_a_pod_removed_in_flight_is_not_put_back(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.remove("uid-p")
    queue.retry(entry, "no answer")
    queue.add_unschedulable(entry, WAKES, "full")
    assert len(queue) == 0


def test_a_pod_that_replaced_one_in_flight_is_another(queue: SchedulingQueue) -> None:
    add(queue, "p")
    entry = pop(queue)
    queue.remove("uid-p")
    add(queue, "p")
    queue.add_unschedulable(entry, WAKES, "full")
    assert queue.size(Pool.ACTIVE) == 1


def test_a_removed_pod_is_not_woken(queue: SchedulingQueue, clock: Clock) -> None:
    add(queue, "p")
    queue.add_unschedulable(pop(queue), WAKES, "full")
    queue.remove("uid-p")
    clock.now += 400
    queue.on_event(ClusterEvent(EventKind.NODE_ADD))
    assert queue.pop() is None


def test_a_new_priority_counts_while_waiting(queue: SchedulingQueue) -> None:
    add(queue, "p")
    add(queue, "q", priority=5)
    add(queue, "p", priority=9)
    assert names(queue) == ["p", "q"]


def test_capacity_of_a_nominated_node_activates_only_the_nominated_pod(clock: Clock) -> None:
    def queueing_hint(entry: QueuedPod, event: ClusterEvent) -> bool:
        return entry.pod.uid == "uid-b"

    queue = SchedulingQueue(by_priority, gate, clock, QueueOptions(), queueing_hint, lambda event: ["uid-b"])
    for name in "abc":
        add(queue, name)
    for entry in [pop(queue) for _ in "abc"]:
        queue.add_unschedulable(entry, WAKES, "full", group="alike")
    clock.now += 5
    queue.on_event(ClusterEvent(EventKind.POD_DELETE))
    assert names(queue) == ["b"]


def test_capacity_beyond_that_of_nominated_pods_activates_all(clock: Clock) -> None:
    queue = SchedulingQueue(by_priority, gate, clock, nominated_to=lambda event: ["uid-a"])
    for name in "ab":
        add(queue, name)
    for entry in [pop(queue) for _ in "ab"]:
        queue.add_unschedulable(entry, WAKES, "full", group="alike")
    clock.now += 5
    queue.on_event(ClusterEvent(EventKind.POD_DELETE))
    assert sorted(names(queue)) == ["a", "b"]


def test_a_pod_whose_gate_cannot_be_queried_is_queried_about_again(clock: Clock) -> None:
    errors = iter([PluginError("no answer"), PluginError("no answer")])

    def broken(pod: PodInfo) -> str | None:
        error = next(errors, None)
        if error is not None:
            raise error
        return None

    queue = SchedulingQueue(by_priority, broken, clock, QueueOptions())
    add(queue, "p")
    entry = queue.get("uid-p")
    assert entry is not None
    assert (entry.pool, entry.reason, queue.size(Pool.GATED)) == (Pool.GATED, "no answer", 1)
    assert queue.pop() is None
    assert queue.next_deadline() == clock.now + 1
    clock.now += 1
    assert queue.pop() is None
    assert queue.next_deadline() == clock.now + 2
    clock.now += 2
    assert pop(queue) is entry


def test_a_change_of_a_pod_whose_gate_cannot_be_queried_asks_it_at_once(clock: Clock) -> None:
    def broken(pod: PodInfo) -> str | None:
        if "fixed" not in pod.pod.metadata.labels:
            raise PluginError("no answer")
        return None

    queue = SchedulingQueue(by_priority, broken, clock, QueueOptions())
    add(queue, "p")
    add(queue, "p", labels={"fixed": ""})
    clock.now += 1
    assert names(queue) == ["p"]
    clock.now += 60
    assert names(queue) == []
