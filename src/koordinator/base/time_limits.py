"""Time limits for things that exist by the hundred: requests in flight, watches, the connections of a server.

One task checks all limits twice a second while there are any, so that starting and ending one costs next to nothing.
Other awaits have a deadline of their own (``koordinator.base.deadline``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from koordinator.base.clock import Clock

_SWEEP_SECONDS = 0.5
_AT_ONCE = 32
"""Limits that expire in one turn of the event loop: to close thousands of connections takes a good part of a second."""


class Limit:
    """Expires at ``at``, in monotonic seconds; infinite until ``extend`` is called."""

    __slots__ = ("at", "expire", "expired")

    def __init__(self, expire: Callable[[], object]) -> None:
        self.at = inf
        self.expire = expire
        self.expired = False


class TimeLimits:
    """Calls ``expire`` of each limit within half a second after it has passed, and removes the limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[Limit, None] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def add(self, limit: Limit) -> None:
        """Check ``limit`` until it is removed."""
        self._limits[limit] = None
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="time-limits")

    def extend(self, limit: Limit, seconds: float) -> None:
        """Let ``limit`` expire ``seconds`` from now."""
        limit.at = self._clock.monotonic() + seconds

    def remove(self, limit: Limit) -> None:
        self._limits.pop(limit, None)

    async def _sweep(self) -> None:
        while self._limits:
            await self._clock.sleep(_SWEEP_SECONDS)
            now = self._clock.monotonic()
            for number, limit in enumerate([limit for limit in self._limits if limit.at <= now], 1):
                if limit not in self._limits or limit.at > now:
                    continue  # removed or extended meanwhile
                self.remove(limit)
                limit.expired = True
                limit.expire()
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._sweeper = None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
