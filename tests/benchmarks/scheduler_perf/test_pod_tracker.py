from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from benchmarks.scheduler_perf.pod_tracker import ObservedPod, PodTracker, selected
from koordinator.api.codec import convert
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import WatchEvent

LIMIT = 10.0
A, B = ("ns", "a"), ("ns", "b")


def event(
    name: str, *, node: str = "", unschedulable: str = "", kind: Literal["MODIFIED", "DELETED"] = "MODIFIED"
) -> WatchEvent[ObservedPod]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
    document = {
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": name}},
        "spec": {"nodeName": node},
        "status": {"conditions": [condition] if unschedulable else []},
    }
    return WatchEvent(kind, convert(document, ObservedPod), "1")


def test_the_first_sight_of_a_binding_counts() -> None:
    moments = iter([1.0, 2.0])
    tracker = PodTracker(lambda: next(moments))
    tracker.on_event(event("a", node="n1"))
    tracker.on_event(event("a", node="n1"))
    assert (tracker.bindings[A].moment, tracker.bindings[A].node, tracker.bindings[A].labels) == (1, "n1", {"app": "a"})
    assert tracker.moved == set()


def test_a_second_node_is_noticed() -> None:
    tracker = PodTracker()
    tracker.on_event(event("a", node="n1"))
    tracker.on_event(event("a", node="n2"))
    assert tracker.moved == {A}


async def waiting(tracker: PodTracker, *events: WatchEvent[ObservedPod], attempted: bool = False) -> list[bool]:
    """Whether a wait for pods a and b was over before the events and after each."""
    wait = tracker.until_attempted if attempted else tracker.until_bound
    task = asyncio.create_task(wait([A, B], LIMIT))
    over = []
    for one in (None, *events):
        if one is not None:
            tracker.on_event(one)
        for _ in range(3):
            await asyncio.sleep(0)
        over.append(task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return over


def test_a_wait_ends_with_the_last_binding() -> None:
    assert asyncio.run(waiting(PodTracker(), event("a", node="n"), event("b", node="n"))) == [False, False, True]


def test_what_has_been_seen_is_not_waited_for() -> None:
    tracker = PodTracker()
    tracker.on_event(event("a", node="n"))
    assert asyncio.run(waiting(tracker, event("b", node="n"))) == [False, True]


def test_a_deleted_pod_is_not_waited_for() -> None:
    events = (event("a", node="n"), event("b", kind="DELETED"))
    assert asyncio.run(waiting(PodTracker(), *events)) == [False, False, True]


def test_a_failed_attempt_is_no_binding() -> None:
    events = (event("a", node="n"), event("b", unschedulable="no room"))
    assert asyncio.run(waiting(PodTracker(), *events)) == [False, False, False]


def test_a_failed_attempt_is_an_attempt() -> None:
    events = (event("a", node="n"), event("b", unschedulable="no room"))
    assert asyncio.run(waiting(PodTracker(), *events, attempted=True)) == [False, False, True]


def test_a_wait_that_is_too_long_says_what_the_scheduler_said() -> None:
    tracker = PodTracker()
    tracker.on_event(event("a", unschedulable="no room"))
    with pytest.raises(KoordinatorError, match="2 pods were not bound in 0 s, such as ns/a: Unschedulable: no room"):
        asyncio.run(tracker.until_bound([A, B], 0))


@pytest.mark.parametrize(
    ("selector", "expected"), [(None, True), ({}, True), ({"a": "1"}, True), ({"a": "2"}, False), ({"c": "1"}, False)]
)
def test_selectors_compare_labels(selector: dict[str, str] | None, expected: bool) -> None:
    assert selected({"a": "1", "b": "2"}, selector) is expected
