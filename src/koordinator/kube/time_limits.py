"""Time limits by the injected clock: one sweeper ends whatever has run out, instead of a timer per request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from koordinator.base.clock import Clock
from koordinator.kube.errors import TransportError

T = TypeVar("T")
_SWEEP_SECONDS = 0.5


class Limit:
    """One thing with a time limit; leave it with ``Deadlines.release``."""

    __slots__ = ("at", "expire", "expired")

    def __init__(self, at: float, expire: Callable[[], object]) -> None:
        self.at = at
        self.expire = expire
        self.expired = False


class Deadlines:
    """Calls ``expire`` of each limit that has passed, within half a second of the moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[Limit, None] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def start(self, seconds: float, expire: Callable[[], object]) -> Limit:
        """Begin a limit of ``seconds`` from now."""
        limit = Limit(self._clock.monotonic() + seconds, expire)
        self._limits[limit] = None
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="kube-client-deadlines")
        return limit

    def extend(self, limit: Limit, seconds: float) -> None:
        """Count anew, from now."""
        limit.at = self._clock.monotonic() + seconds

    def release(self, limit: Limit) -> None:
        self._limits.pop(limit, None)

    async def run(self, seconds: float, what: str, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` in the calling task. Raises TransportError when it takes longer than ``seconds``."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        cancelling = task.cancelling()
        limit = self.start(seconds, task.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            # As asyncio.timeout does: only a cancellation of our own becomes a timeout.
            if limit.expired and task.uncancel() <= cancelling:
                raise TransportError(f"{what}: no answer within {seconds:g} s", timed_out=True) from None
            raise
        finally:
            self.release(limit)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            now = self._clock.monotonic()
            for limit in [limit for limit in self._limits if limit.at <= now]:
                self.release(limit)
                limit.expired = True
                limit.expire()

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
