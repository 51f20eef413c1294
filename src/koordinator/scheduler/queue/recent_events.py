"""What has happened while pods were in flight, so that nothing is missed between a decision and its parking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from koordinator.scheduler.engine.events import ClusterEvent


class RecentEvents:
    """Events by number, the first being 1; not more than ``kept`` of them."""

    def __init__(self, kept: int = 4096) -> None:
        self._kept = kept
        self._events: deque[ClusterEvent] = deque()
        self.count = 0
        """The number of the last event."""

    def add(self, event: ClusterEvent) -> None:
        self.count += 1
        self._events.append(event)
        if len(self._events) > self._kept:
            self._events.popleft()

    def forget_until(self, number: int) -> None:
        """Nobody asks any more for events up to ``number``."""
        while self._events and self.count - len(self._events) < number:
            self._events.popleft()

    def since(self, number: int) -> Iterator[ClusterEvent] | None:
        """The events after ``number``; None when some of them are not known any more."""
        known = self.count - number
        if known > len(self._events):
            return None
        return islice(self._events, len(self._events) - known, None)
