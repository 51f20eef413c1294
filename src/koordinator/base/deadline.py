"""Deadlines on an injected clock: asyncio's own timeouts only use the machine's clock, and tests use a manual one.

For occasional awaits; the API client has a cheaper mechanism for thousands of requests than one timer each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from koordinator.base.clock import Clock, SystemClock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, and cancel it and raise TimeoutError once ``seconds`` of ``clock`` have passed."""
    if isinstance(clock, SystemClock):
        async with asyncio.timeout(seconds):
            return await work
    async with asyncio.timeout(None) as scope:
        timer = asyncio.create_task(_expire(clock, seconds, scope), name="deadline")
        try:
            return await work
        finally:
            timer.cancel()


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Await ``work``, and cancel it when ``stop`` is set. Returns whether ``work`` completed."""
    tasks = [asyncio.create_task(work), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if tasks[0].cancelled():
        return False
    tasks[0].result()
    return True


async def _expire(clock: Clock, seconds: float, scope: asyncio.Timeout) -> None:
    await clock.sleep(seconds)
    scope.reschedule(asyncio.get_running_loop().time())
