"""When the report of each row expires, in memory that grows with the rows and with nothing else.

Reports come all the time, also where nobody decides and asks what has expired (on a standby), so that a new moment of a
row replaces the one before it. A later moment, which is the usual case, costs no more than that: the heap keeps the
earlier one and learns of the later when that is reached.
"""

from __future__ import annotations

import heapq
from typing import Final

_SPARE: Final = 64


class Expirations:
    """One moment a row, in seconds since the epoch."""

    def __init__(self) -> None:
        self._moments: dict[int, float] = {}
        self._queued: dict[int, float] = {}
        """The moment of the row's entry in the heap, never after the row's own; other entries of the row are void."""
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """The entries that are held, void ones included."""
        return len(self._heap)

    def set(self, row: int, moment: float) -> None:
        """The report of ``row`` expires at ``moment``, and not when it did before."""
        self._moments[row] = moment
        queued = self._queued.get(row)
        if queued is None or moment < queued:
            self._queued[row] = moment
            heapq.heappush(self._heap, (moment, row))
            if len(self._heap) > 2 * len(self._queued) + _SPARE:
                self._heap = [(when, each) for each, when in self._queued.items()]
                heapq.heapify(self._heap)

    def discard(self, row: int) -> None:
        """There is nothing to expire on ``row``."""
        self._moments.pop(row, None)
        self._queued.pop(row, None)

    @property
    def next(self) -> float | None:
        """When something may expire next; perhaps too early. None for never."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[int]:
        """The rows that have expired by ``now``, each once."""
        rows = []
        while self._heap and self._heap[0][0] <= now:
            when, row = heapq.heappop(self._heap)
            if self._queued.get(row) != when:
                continue
            moment = self._moments[row]
            if moment > now:
                self._queued[row] = moment
                heapq.heappush(self._heap, (moment, row))
            else:
                self.discard(row)
                rows.append(row)
        return rows
