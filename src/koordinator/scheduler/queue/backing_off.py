"""Pods that are not to be tried before a moment: the one whose pause ends first comes first."""

from __future__ import annotations

import heapq

from koordinator.scheduler.queue.queued_pod import QueuedPod


class BackingOff:
    """Entries whose ticket has changed are void: they wait somewhere else by now."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueuedPod]] = []

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
