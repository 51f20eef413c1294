"""The order in which active pods are taken, however they came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.queue.pools import BackingOff
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import ActivePods
from tests.scheduler.fakes import describe, make_pod

POD = describe(make_pod("p"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
        st.tuples(st.just("void"), st.integers(0, 30), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_first_of_those_that_wait_is_taken(steps: list[tuple[str, int, int]]) -> None:
    """Those of the least importance number first, the older of them before, and the earlier pushed before its equal."""
    active = ActivePods()
    waiting: dict[int, tuple[int, int]] = {}
    entries: dict[int, QueuedPod] = {}
    for ticket, (step, importance, age) in enumerate(steps, start=1):
        if step == "push":
            entry = entries[ticket] = QueuedPod(POD, age, age, ticket=ticket)
            waiting[ticket] = importance, age
            active.push((importance, age), entry)
        elif step == "void" and importance in waiting:
            del waiting[importance]
            entries[importance].ticket = 0
        elif step == "pop":
            first = min(waiting, key=lambda number: (*waiting[number], number), default=None)
            assert active.pop() is (entries[first] if first is not None else None)
            waiting.pop(first or 0, None)


def test_pods_that_come_and_go_without_being_taken_are_forgotten() -> None:
    """As on a standby, which sees every pod of the cluster and schedules none."""
    active, staying = ActivePods(), QueuedPod(POD, 0, 0, ticket=1)
    active.push((0, 0), staying)
    for ticket in range(2, 10_000):
        entry = QueuedPod(POD, ticket, ticket, ticket=ticket)
        active.push((0, ticket), entry)
        entry.ticket = 0
    assert len(active) <= 300
    assert active.pop() is staying


@pytest.mark.parametrize("is_held", [False, True])
def test_pods_whose_pause_is_cut_short_are_forgotten(is_held: bool) -> None:
    backing_off = BackingOff()
    for ticket in range(1, 10_000):
        entry = QueuedPod(POD, 0, 0, ticket=ticket, backoff_until=ticket)
        backing_off.push((0, ticket), entry, is_held=is_held)
        entry.ticket = 0
    assert len(backing_off) <= 300
    assert backing_off.first is None
