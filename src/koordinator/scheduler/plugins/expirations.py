"""When things expire, such as reports of nodes and pods that are leaving: in memory that is bounded by what is there,
also where nobody asks, as on an instance that waits to lead."""

from __future__ import annotations

import heapq
from typing import Any, Final, Generic, TypeVar

_SPARE: Final = 64
Key = TypeVar("Key", bound=Any)
"""Keys of one sort, which can be compared."""


class Expirations(Generic[Key]):
    """One time of expiry for each key, in seconds since the epoch."""

    def __init__(self) -> None:
        self._moments: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        """The time of the key's entry in the heap, never after the key's own; other entries of the key are void."""
        self._heap: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        """The number of entries, void ones included."""
        return len(self._heap)

    def set(self, key: Key, moment: float) -> None:
        """Set the time at which ``key`` expires, in place of an earlier one."""
        self._moments[key] = moment
        queued = self._queued.get(key)
        if queued is None or moment < queued:
            self._queued[key] = moment
            heapq.heappush(self._heap, (moment, key))
            if len(self._heap) > 2 * len(self._queued) + _SPARE:
                self._heap = [(when, each) for each, when in self._queued.items()]
                heapq.heapify(self._heap)

    def discard(self, key: Key) -> None:
        """Remove the expiry of ``key``."""
        self._moments.pop(key, None)
        self._queued.pop(key, None)

    @property
    def next(self) -> float | None:
        """When something may expire next, possibly too early. None for never."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Key]:
        """The keys that have expired by ``now``, each once."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._queued.get(key) != when:
                continue
            moment = self._moments[key]
            if moment > now:
                self._queued[key] = moment
                heapq.heappush(self._heap, (moment, key))
            else:
                self.discard(key)
                keys.append(key)
        return keys
