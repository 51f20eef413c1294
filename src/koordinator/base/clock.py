"""Injected time: loops and decisions take a clock as an argument, so that tests and simulations control time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol


class Clock(Protocol):
    """Wall time for timestamps in API objects, monotonic time for intervals, and sleeping."""

    def now(self) -> datetime:
        """The wall time, in UTC; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease; only differences are meaningful."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds`` of monotonic time."""
        ...


_monotonic: Callable[[], float] = time.monotonic
if sys.platform == "linux":
    # CLOCK_BOOTTIME keeps running while the machine is suspended. With CLOCK_MONOTONIC, a leader that was suspended for
    # an hour would still consider its lease valid.
    _monotonic = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


_FOLLOWED: Final = timedelta(minutes=1)
"""A clock that is set by less than this is followed: it changes no weight by as much as a thousandth."""


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(_monotonic)
    """The C function itself, without a wrapper: it is called several times per request and per decision."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SteadyTime:
    """The wall time, less what the clock has been set by since this was made.

    For what is weighed by the time that has passed, not by what a clock shows that somebody sets: a sample that bears
    a time of next month would outweigh all others until then.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = timedelta()
        self._last = clock.now(), clock.monotonic()

    @property
    def offset(self) -> timedelta:
        """To be added to the wall time."""
        wall, second = self._last
        now, monotonic = self._last = self._clock.now(), self._clock.monotonic()
        jump = now - wall - timedelta(seconds=monotonic - second)
        if abs(jump) >= _FOLLOWED:
            self._offset -= jump
        return self._offset

    def now(self) -> datetime:
        return self._clock.now() + self.offset


class ManualClock:
    """A clock that advances only by ``advance``; for tests and for simulated time.

    ``advance`` moves both clocks and wakes the sleepers whose deadline has passed, in the order of their deadlines.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 0.0
        self._sequence = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._sequence), future))
        await future

    def set_wall(self, now: datetime) -> None:
        """Set the wall clock alone, as an administrator or NTP may do."""
        self._now = now

    @property
    def sleepers(self) -> int:
        """The number of tasks that sleep on this clock."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    async def advance(self, seconds: float) -> None:
        """Move time forward: wake each sleeper at its own deadline, and let it run before the next one wakes."""
        end = self._monotonic + seconds
        await _let_others_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._move_to(deadline)
            if not future.done():
                future.set_result(None)
            await _let_others_run()
        self._move_to(end)

    def _move_to(self, monotonic: float) -> None:
        self._now += timedelta(seconds=monotonic - self._monotonic)
        self._monotonic = monotonic


async def _let_others_run() -> None:
    # A woken task often needs several iterations of the event loop (queues, locks) before it sleeps again. asyncio's
    # own loop exposes its ready queue; other loops, such as uvloop's, do not.
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(20):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
