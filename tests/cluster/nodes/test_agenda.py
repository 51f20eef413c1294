"""Appointments are kept in time, one at a time for each key, and again after a failure."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random

from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.agenda import Agenda
from koordinator.kube.errors import TransportError

_Keep = Callable[[str], Awaitable[None]]


def _play(script: Callable[[Agenda, ManualClock], Awaitable[None]], keep: _Keep, concurrency: int = 4) -> None:
    async def play() -> None:
        clock = ManualClock()
        agenda = Agenda(keep, clock=clock, random=Random(1), concurrency=concurrency)
        running = asyncio.create_task(agenda.run())
        await script(agenda, clock)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_appointments_are_kept_in_the_order_of_their_times() -> None:
    kept: list[str] = []

    async def keep(key: str) -> None:
        kept.append(key)

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        agenda.put("late", 5.0)
        agenda.put("soon", 1.0)
        agenda.put("never", 60.0)
        await clock.advance(10)

    _play(script, keep)
    assert kept == ["soon", "late"]


def test_a_new_appointment_replaces_the_old_one() -> None:
    kept: list[str] = []

    async def keep(key: str) -> None:
        kept.append(key)

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        agenda.put("a", 1.0)
        agenda.put("a", 5.0)
        await clock.advance(3)
        assert kept == []
        await clock.advance(3)

    _play(script, keep)
    assert kept == ["a"]


def test_a_cancelled_appointment_is_not_kept() -> None:
    kept: list[str] = []

    async def keep(key: str) -> None:
        kept.append(key)

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        agenda.put("a", 1.0)
        agenda.cancel("a")
        await clock.advance(3)

    _play(script, keep)
    assert kept == []


def test_a_failure_leads_to_another_attempt_after_a_growing_pause() -> None:
    attempts: list[float] = []

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        clocks.append(clock)
        agenda.put("a", 0.0)
        await clock.advance(20)

    clocks: list[ManualClock] = []

    async def keep(key: str) -> None:
        attempts.append(clocks[0].monotonic())
        if len(attempts) < 4:
            raise TransportError("connection refused")

    _play(script, keep)
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert len(pauses) == 3
    assert 0.5 <= pauses[0] <= 1.0 <= pauses[1] <= 2.0 <= pauses[2] <= 4.0


def test_a_key_is_never_in_two_hands_and_its_next_appointment_waits() -> None:
    release = asyncio.Event()
    in_hand: list[int] = []
    most = [0]

    async def keep(key: str) -> None:
        in_hand.append(1)
        most[0] = max(most[0], len(in_hand))
        await release.wait()
        in_hand.pop()

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        agenda.put("a", 0.0)
        await clock.advance(1)
        agenda.put("a", 0.0)
        await clock.advance(1)
        release.set()
        await clock.advance(1)

    _play(script, keep)
    assert (most, in_hand) == ([1], [])


def test_no_more_are_in_hand_than_allowed() -> None:
    release = asyncio.Event()
    started: list[str] = []
    before: list[int] = []

    async def keep(key: str) -> None:
        started.append(key)
        await release.wait()

    async def script(agenda: Agenda, clock: ManualClock) -> None:
        for number in range(10):
            agenda.put(f"key-{number}", 0.0)
        await clock.advance(1)
        before.append(len(started))
        release.set()
        await clock.advance(1)

    _play(script, keep, concurrency=3)
    assert (before, len(started)) == ([3], 10)
