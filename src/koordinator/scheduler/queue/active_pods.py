"""The pods that may be tried now: the most important first, and among equals every profile in turn.

Profiles share one process. Order by importance is exact across all of them; within the same importance a profile with
ten thousand pods that fail again and again must not keep the single pod of another one waiting.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from koordinator.scheduler.queue.queued_pod import QueuedPod

_SPARE: Final = 256
_Heap = list[tuple[tuple[Any, ...], int, QueuedPod]]


class ActivePods:
    """Sort keys end with the age; what is before that is the importance. Entries whose ticket has changed are void."""

    def __init__(self) -> None:
        self._heaps: dict[str, _Heap] = {}
        self._limits: dict[str, int] = {}
        """By profile: with more entries, the void ones are thrown away."""
        self._served: dict[str, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        """The entries that are held, void ones included."""
        return sum(map(len, self._heaps.values()))

    def push(self, key: tuple[Any, ...], entry: QueuedPod) -> None:
        profile = entry.pod.pod.spec.scheduler_name
        heap = self._heaps.setdefault(profile, [])
        heapq.heappush(heap, (key, entry.ticket, entry))
        if len(heap) > self._limits.get(profile, _SPARE):
            # A standby takes no pods, but sees them come and go.
            heap[:] = [each for each in heap if each[1] == each[2].ticket]
            heapq.heapify(heap)
            self._limits[profile] = 2 * len(heap) + _SPARE

    def pop(self) -> QueuedPod | None:
        """The next pod; None when there is none."""
        best: str | None = None
        rank: tuple[Any, ...] = ()
        for profile, heap in self._heaps.items():
            while heap and heap[0][1] != heap[0][2].ticket:
                heapq.heappop(heap)
            if not heap:
                continue
            if len(self._heaps) == 1:
                return heapq.heappop(heap)[2]
            key = heap[0][0]
            of_profile = (*key[:-1], self._served.get(profile, 0))
            if best is None or of_profile < rank:
                best, rank = profile, of_profile
        if best is None:
            return None
        self._turn += 1
        self._served[best] = self._turn
        return heapq.heappop(self._heaps[best])[2]
