"""Regular duties of many nodes, spread evenly over their interval, so that a thousand of them are a trickle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, Generic, NoReturn, TypeVar

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.kube.errors import KubeError

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

_TICK: Final = 0.25
_BACKOFF: Final = BackoffPolicy(initial=0.5, maximum=15.0, reset_after=60.0)


class Rotation(Generic[T]):
    """Whose turn it is: each item once an interval, in the order in which they joined. Times are seconds."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._last = now
        self._turn = 0.0
        self._items: list[T] = []
        self._late: dict[T, None] = {}

    def join(self, item: T, *, at_once: bool = True) -> None:
        """Give the item one turn each interval and, with ``at_once``, a first one as soon as possible."""
        self._items.append(item)
        if at_once:
            self._late[item] = None

    def leave(self, item: T) -> None:
        position = self._items.index(item)
        self._items.pop(position)
        self._late.pop(item, None)
        if position < self._turn:
            self._turn -= 1

    def again(self, item: T) -> None:
        """Give the item another turn soon: its last one failed."""
        if item in self._items:
            self._late[item] = None

    def due(self, now: float, at_most: int) -> list[T]:
        """The items whose turn has come since the last call, those that are late first.

        After a long pause everybody gets one turn, not one for each interval that was missed.
        """
        count = len(self._items)
        turns = min((now - self._last) / self._interval * count, float(count))
        self._last = now
        first = int(self._turn)
        # Rounded: many small steps have to add up to whole turns.
        self._turn = round(self._turn + turns, 6)
        for turn in range(first, int(self._turn)):
            self._late[self._items[turn % count]] = None
        if count:
            self._turn %= count
        chosen = list(self._late)[:at_most]
        for item in chosen:
            del self._late[item]
        return chosen


class Duty:
    """Does something for each name of a rotation, again and again. ``do`` raises KubeError when it failed."""

    def __init__(
        self,
        what: str,
        interval: float,
        do: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
        *,
        clock: Clock,
        random: Random,
        concurrency: int,
    ) -> None:
        """``do`` is given at most ``concurrency`` names and returns those for which it failed."""
        self._what = what
        self._do = do
        self._clock = clock
        self._concurrency = concurrency
        self._backoff = Backoff(_BACKOFF, clock, random)
        self._failing = False
        self.rotation: Rotation[str] = Rotation(interval, clock.monotonic())

    async def run(self) -> NoReturn:
        """Take turns until cancelled."""
        while True:
            names = self.rotation.due(self._clock.monotonic(), self._concurrency)
            if not names:
                await self._clock.sleep(_TICK)
                continue
            failed = await self._do(names)
            for name in failed:
                self.rotation.again(name)
            if failed:
                await self._clock.sleep(self._backoff.next())
            self._log_state(bool(failed))

    def _log_state(self, failing: bool) -> None:
        if self._failing and not failing:
            logger.info("%s works again", self._what)
            self._backoff.reset()
        self._failing = failing


async def each(what: str, names: Sequence[str], do: Callable[[str], Awaitable[None]]) -> list[str]:
    """Do something for all names at the same time; returns the names for which it raised KubeError."""
    results = await asyncio.gather(*(_attempt(name, do) for name in names))
    failures = [(name, error) for name, error in zip(names, results, strict=True) if error is not None]
    if failures:
        name, error = failures[0]
        logger.warning("%s failed for %d of %d nodes, such as %s: %s", what, len(failures), len(names), name, error)
    return [name for name, _ in failures]


async def _attempt(name: str, do: Callable[[str], Awaitable[None]]) -> KubeError | None:
    try:
        await do(name)
    except KubeError as error:
        return error
    return None


# Simulated time: a clock, run ``speed`` times as fast from the moment of its making.
#
# Usage, run times and measuring windows live in simulated time, so that a day can pass in a minute. What is written to
# the API keeps real time, because other programs compare it with their own clocks.


class SimulatedTime:
    """Seconds since the epoch (UTC), as floats."""

    def __init__(self, clock: Clock, speed: float = 1.0, start_hour: float | None = None) -> None:
        """``start_hour`` is the hour of the day at which it begins; None means that of the clock."""
        self._clock = clock
        self._speed = speed
        self._began = clock.monotonic()
        start = clock.now()
        if start_hour is not None:
            midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            start = midnight + timedelta(hours=start_hour)
        self._start = start.timestamp()

    @property
    def clock(self) -> Clock:
        """The clock that it runs with; ``real`` gives seconds of it."""
        return self._clock

    def now(self) -> float:
        return self._start + self.elapsed()

    def elapsed(self) -> float:
        """Simulated seconds since the start."""
        return (self._clock.monotonic() - self._began) * self._speed

    def real(self, simulated_seconds: float) -> float:
        """How many seconds of the clock so much simulated time takes."""
        return simulated_seconds / self._speed

    def of(self, moment: datetime) -> float:
        """When a moment of the real clock was, or will be, in simulated time."""
        return self.now() + (moment - self._clock.now()).total_seconds() * self._speed
