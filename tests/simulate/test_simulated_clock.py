"""Simulated time passes only where nobody has anything to do before it has."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from koordinator.simulate.simulated_clock import SimulatedClock

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def test_all_that_can_happen_without_time_has_happened() -> None:
    async def scenario() -> list[int]:
        clock, done = SimulatedClock(MOMENT), list[int]()

        async def chain(left: int) -> None:
            done.append(left)
            await asyncio.sleep(0)
            if left:
                await asyncio.create_task(chain(left - 1))

        task = asyncio.create_task(chain(300))
        await clock.run_ready()
        assert task.done()
        return done

    assert asyncio.run(scenario()) == list(range(300, -1, -1))


def test_each_sleeper_wakes_at_its_moment_and_goes_on_before_the_next_does() -> None:
    async def scenario() -> list[tuple[str, float]]:
        clock, woken = SimulatedClock(MOMENT), list[tuple[str, float]]()

        async def sleep(name: str, seconds: float, then: float = 0.0) -> None:
            await clock.sleep(seconds)
            woken.append((name, clock.monotonic()))
            if then:
                await sleep(f"{name} again", then)

        tasks = [asyncio.create_task(sleep(*each)) for each in (("b", 2.0), ("a", 1.0, 0.5), ("late", 9.0))]
        await clock.advance(5)
        assert clock.monotonic() == 5
        assert clock.next_deadline() == 9
        tasks[-1].cancel()
        await clock.run_ready()
        assert clock.next_deadline() is None
        return woken

    assert asyncio.run(scenario()) == [("a", 1.0), ("a again", 1.5), ("b", 2.0)]


def test_the_wall_clock_stands_still() -> None:
    async def scenario() -> datetime:
        clock = SimulatedClock(MOMENT)
        await clock.advance(1000)
        return clock.now()

    assert asyncio.run(scenario()) == MOMENT
