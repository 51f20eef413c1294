"""A deadline on any clock: asyncio's own timeouts know the machine's clock only, and tests own theirs.

For what is awaited now and then; for requests by the thousand the API client has something cheaper than a timer each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from koordinator.base.clock import Clock, SystemClock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` and cancel it when ``seconds`` of ``clock`` have passed; raises TimeoutError then."""
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
    """Await ``work`` and cancel it when ``stop`` is set; whether it came to its end."""
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
