"""The pods that may be tried now: the most important first, and among equals every profile in turn.

Profiles share one process. Order by importance is exact across all of them; within the same importance a profile with
ten thousand pods that fail again and again must not keep the single pod of another one waiting.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

from koordinator.scheduler.queue.queued_pod import QueuedPod

_Item = tuple[tuple[Any, ...], int, QueuedPod]
"""Sort key, ticket and pod."""


class _Line:
    """The pods of one profile. Most come in their order, and so they wait in a row to which the next is appended; the
    others are in a heap, whose every step looks at a dozen pods."""

    def __init__(self) -> None:
        self._row: deque[_Item] = deque()
        self._heap: list[_Item] = []

    def push(self, item: _Item) -> None:
        row = self._row
        if not row or row[-1] < item:
            row.append(item)
        else:
            heapq.heappush(self._heap, item)

    def first(self) -> _Item | None:
        """The next pod, left where it is; those that are void are dropped on the way."""
        row, heap = self._row, self._heap
        while row and row[0][1] != row[0][2].ticket:
            row.popleft()
        while heap and heap[0][1] != heap[0][2].ticket:
            heapq.heappop(heap)
        if row and heap:
            return min(row[0], heap[0])
        return row[0] if row else heap[0] if heap else None

    def pop(self) -> QueuedPod | None:
        """The next pod, taken out."""
        first, row = self.first(), self._row
        if first is None:
            return None
        if row and row[0] is first:
            row.popleft()
        else:
            heapq.heappop(self._heap)
        return first[2]


class ActivePods:
    """Sort keys end with the age; what is before that is the importance. Entries whose ticket has changed are void."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._served: dict[str, int] = {}
        self._turn = 0

    def push(self, key: tuple[Any, ...], entry: QueuedPod) -> None:
        profile = entry.pod.pod.spec.scheduler_name
        line = self._lines.get(profile)
        if line is None:
            line = self._lines[profile] = _Line()
        line.push((key, entry.ticket, entry))

    def pop(self) -> QueuedPod | None:
        """The next pod; None when there is none."""
        best: str | None = None
        rank: tuple[Any, ...] = ()
        for profile, line in self._lines.items():
            if len(self._lines) == 1:
                return line.pop()
            first = line.first()
            if first is None:
                continue
            of_profile = (*first[0][:-1], self._served.get(profile, 0))
            if best is None or of_profile < rank:
                best, rank = profile, of_profile
        if best is None:
            return None
        self._turn += 1
        self._served[best] = self._turn
        return self._lines[best].pop()
