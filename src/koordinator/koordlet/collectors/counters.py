"""Rates of counters that only grow, but when what they count is made anew."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a counter has grown in how many seconds, which are more than none."""

    amount: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.amount / self.seconds


class Counters(Generic[K]):
    """The previous reading of each counter, for as long as it can be compared with."""

    def __init__(self, lifetime: float) -> None:
        """Readings that are more than ``lifetime`` seconds apart are not compared: they say nothing of the present."""
        self._lifetime = lifetime
        self._previous: dict[K, tuple[float, int]] = {}

    def growth(self, key: K, value: int, at: float) -> Growth | None:
        """Since the previous reading, which this one replaces; ``at`` is in seconds of a clock that never goes back.

        None for a first reading, for one that comes too late, and where the counter began anew.
        """
        previous = self._previous.get(key)
        self._previous[key] = (at, value)
        if previous is None:
            return None
        before, old = previous
        if value < old or at <= before or at - before > self._lifetime:
            return None
        return Growth(value - old, at - before)

    def drop_expired(self, now: float) -> None:
        """Forget what has not been read for a lifetime: pods and containers that have ended."""
        for key in [key for key, (at, _) in self._previous.items() if now - at > self._lifetime]:
            del self._previous[key]

    def __len__(self) -> int:
        return len(self._previous)
