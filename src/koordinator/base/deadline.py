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


async def _expire(clock: Clock, seconds: float, scope: asyncio.Timeout) -> None:
    await clock.sleep(seconds)
    scope.reschedule(asyncio.get_running_loop().time())
