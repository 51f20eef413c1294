"""Deadlines on an injected clock."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.deadline import unless, within


async def forever() -> None:
    await asyncio.Event().wait()


async def value() -> int:
    return 1


def test_result_in_time() -> None:
    async def scenario() -> int:
        return await within(ManualClock(), 5, value())

    assert asyncio.run(scenario()) == 1


def test_work_is_cancelled_at_the_deadline() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        waiting = asyncio.ensure_future(within(clock, 5, forever()))
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.2)
        with pytest.raises(TimeoutError):
            await waiting

    asyncio.run(scenario())


def test_system_clock_has_deadlines_too() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(within(SystemClock(), 0.001, forever()))


def test_cancellation_from_outside_is_no_timeout() -> None:
    async def scenario() -> None:
        waiting = asyncio.ensure_future(within(ManualClock(), 5, forever()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


async def failure() -> None:
    raise KeyError("work")


def test_work_ends_before_the_stop() -> None:
    async def scenario() -> bool:
        return await unless(asyncio.Event(), value())

    assert asyncio.run(scenario())


def test_work_is_cancelled_at_the_stop() -> None:
    async def scenario() -> bool:
        stop = asyncio.Event()
        stop.set()
        return await unless(stop, forever())

    assert not asyncio.run(scenario())


def test_what_the_work_raises_comes_out() -> None:
    async def scenario() -> bool:
        return await unless(asyncio.Event(), failure())

    with pytest.raises(KeyError):
        asyncio.run(scenario())
