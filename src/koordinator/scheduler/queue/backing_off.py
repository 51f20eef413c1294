"""Pods that are not to be tried before a moment: the one whose pause ends first comes first."""

from __future__ import annotations

import heapq
from typing import Final

from koordinator.scheduler.queue.queued_pod import QueuedPod

_SPARE: Final = 256


class BackingOff:
    """Entries whose ticket has changed are void: they wait somewhere else by now."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueuedPod]] = []
        self._limit = _SPARE
        """With more entries, the void ones are thrown away."""

    def __len__(self) -> int:
        """The entries that are held, void ones included."""
        return len(self._heap)

    @property
    def first(self) -> QueuedPod | None:
        """The pod whose pause ends first."""
        while self._heap:
            _, ticket, entry = self._heap[0]
            if ticket == entry.ticket:
                return entry
            heapq.heappop(self._heap)
        return None

    def push(self, entry: QueuedPod) -> None:
        """Until ``entry.backoff_until``."""
        heapq.heappush(self._heap, (entry.backoff_until, entry.ticket, entry))
        if len(self._heap) > self._limit:
            self._heap = [each for each in self._heap if each[1] == each[2].ticket]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _SPARE
