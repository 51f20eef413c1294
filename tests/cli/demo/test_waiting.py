"""How the day waits: as long as anything goes on, not a moment longer than it has to, and never for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.cli.demo.waiting import PATIENCE_SECONDS, Expectation, NeverHappened, Waiting


def seconds_of(clock: ManualClock, work: Coroutine[Any, Any, None], step: float = 0.5) -> float:
    """How long ``work`` takes by the clock; raises what it raises."""

    async def run() -> float:
        task = asyncio.ensure_future(work)
        for _ in range(100_000):
            await asyncio.sleep(0)
            if task.done():
                break
            await clock.advance(step)
        await task
        return clock.monotonic()

    return asyncio.run(run())


def test_what_has_happened_is_not_waited_for() -> None:
    clock, said = ManualClock(), list[str]()

    async def missing() -> str:
        return ""

    assert seconds_of(clock, Waiting(clock, said.append).until("07:00", Expectation("it rains", missing, ()))) == 0
    assert said == []


def test_it_waits_as_long_as_anything_changes_and_says_what_for() -> None:
    clock, said = ManualClock(), list[str]()

    async def missing() -> str:
        left = 20 - int(clock.monotonic() / 100)
        return f"{left} pods are left" if left > 0 else ""

    waiting = Waiting(clock, said.append).until("07:00", Expectation("all pods are placed", missing, ()))
    assert seconds_of(clock, waiting) == pytest.approx(2000, abs=1)
    assert said[0] == "waiting until all pods are placed (20 pods are left)"
    assert said[-1] == "waiting until all pods are placed (1 pods are left)"


def test_it_gives_up_when_nothing_changes_any_more_and_says_everything() -> None:
    clock = ManualClock()

    async def missing() -> str:
        return "koord-manager works on 3 keys"

    expectation = Expectation("koord-manager has used the reports", missing, ("koord status",))
    with pytest.raises(NeverHappened) as raised:
        seconds_of(clock, Waiting(clock, lambda text: None).until("07:30", expectation))
    assert clock.monotonic() == pytest.approx(PATIENCE_SECONDS, abs=1)
    error = raised.value
    assert (error.when, error.expected) == ("07:30", "koord-manager has used the reports")
    assert error.seen == "koord-manager works on 3 keys; nothing has changed for 180 s"
    assert error.advice == ("koord status",)


def test_it_gives_up_on_what_changes_for_ever() -> None:
    clock = ManualClock()

    async def missing() -> str:
        return f"cycle {int(clock.monotonic() / 10)}"

    with pytest.raises(NeverHappened):
        seconds_of(clock, Waiting(clock, lambda text: None).until("07:30", Expectation("it ends", missing, ())), 5)


def test_what_is_watched_is_looked_at_when_the_watch_says_something() -> None:
    clock, looks = ManualClock(), list[float]()
    waiting = Waiting(clock, lambda text: None)

    async def missing() -> str:
        looks.append(clock.monotonic())
        return "" if clock.monotonic() >= 10 else "not yet"

    async def scenario() -> None:
        task = asyncio.ensure_future(waiting.until("07:00", Expectation("it is there", missing, (), is_watched=True)))
        await clock.advance(10)
        waiting.changed.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert task.done()

    asyncio.run(scenario())
    # At once, to say what is waited for, and when the watch had something.
    assert looks == [0.0, 1.0, 10.0]
