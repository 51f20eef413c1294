"""The machine's clocks, and the one that tests move."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from koordinator.base.clock import ManualClock, SteadyTime, SystemClock


@pytest.mark.skipif(sys.platform != "linux", reason="the clock that counts suspension is Linux's")
def test_intervals_include_the_time_that_the_machine_was_suspended_for() -> None:
    """So that a lease has run out for a leader whose machine was asleep."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    read = SystemClock().monotonic()
    assert before <= read <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_intervals_never_run_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_who_is_woken_runs_until_it_sleeps_again_however_many_turns_that_takes_the_event_loop() -> None:
    clock, done = ManualClock(), list[str]()

    async def work() -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        while True:
            await clock.sleep(1)
            asyncio.get_running_loop().call_soon(queue.put_nowait, "request")
            await queue.get()
            for _ in range(5):
                await asyncio.sleep(0)
            done.append(f"at {clock.monotonic()}")

    async def scenario() -> None:
        task = asyncio.create_task(work())
        await clock.advance(2)
        task.cancel()

    asyncio.run(scenario())
    assert done == ["at 1.0", "at 2.0"]


@pytest.mark.parametrize(
    ("set_by", "offset"),
    [
        (timedelta(days=30), timedelta(days=-30)),
        (timedelta(hours=-1), timedelta(hours=1)),
        # Or else it would drift away from the times of other programs.
        (timedelta(seconds=1), timedelta()),
    ],
)
def test_steady_time_goes_on_when_the_clock_is_set(set_by: timedelta, offset: timedelta) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    steady = SteadyTime(clock)
    asyncio.run(clock.advance(60))
    clock.set_wall(clock.now() + set_by)
    asyncio.run(clock.advance(60))
    assert (steady.offset, steady.now()) == (offset, clock.now() + offset)
