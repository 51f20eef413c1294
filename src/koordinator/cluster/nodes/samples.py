"""Recent samples of many series on one time axis: a ring of rows x moments, bounded by construction.

All series are sampled at the same moments, so that a window is one slice and its statistics one vector operation over
all nodes that report together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koordinator.cluster.nodes.noise import Floats

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of some rows: ``times[k]`` and, for CPU (cores) and memory (bytes), ``[k, row]``; absent is NaN."""

    times: Floats
    cpu: Floats
    memory: Floats

    def counts(self) -> NDArray[np.int64]:
        """How many samples each row has."""
        counts: NDArray[np.int64] = np.count_nonzero(~np.isnan(self.cpu), axis=0)
        return counts

    def averages(self) -> tuple[Floats, Floats]:
        """The arithmetic mean of each row; NaN for a row without samples."""
        counts = self.counts()
        present = np.where(counts > 0, counts, np.nan)
        return np.nansum(self.cpu, axis=0) / present, np.nansum(self.memory, axis=0) / present

    def percentiles(self, percent: int) -> tuple[Floats, Floats]:
        """The element at rank ⌊n·p⌋ (counted from 1, at least 1) of each row's sorted samples; no interpolation."""
        return _percentile(self.cpu, self.counts(), percent), _percentile(self.memory, self.counts(), percent)

    def spans(self) -> Floats:
        """Seconds from the first to the last sample of each row; NaN for a row without samples."""
        present = ~np.isnan(self.cpu)
        if not len(self.times):
            return np.full(self.cpu.shape[1], np.nan)
        first = self.times[present.argmax(axis=0)]
        last = self.times[len(self.times) - 1 - present[::-1].argmax(axis=0)]
        return np.where(present.any(axis=0), last - first, np.nan)


def _percentile(values: Floats, counts: NDArray[np.int64], percent: int) -> Floats:
    if not len(values):
        return np.full(values.shape[1], np.nan)
    ranks = np.maximum(counts * percent // 100 - 1, 0)
    # NaN sorts last, so that the first ``counts`` elements of a column are its samples.
    chosen: Floats = np.take_along_axis(np.sort(values, axis=0), ranks[np.newaxis, :], axis=0)[0]
    return chosen


class SampleRing:
    """The last ``slots`` samples of a growing set of rows."""

    def __init__(self, slots: int, rows: int = 64) -> None:
        self._slots = slots
        self._head = 0
        self._filled = 0
        self._times = np.full(slots, np.nan)
        self._cpu = np.full((slots, rows), np.nan)
        self._memory = np.full((slots, rows), np.nan)

    def append(self, time: float, rows: Rows, cpu: Floats, memory: Floats) -> None:
        """Add a sample of ``rows``; every other row has none at this moment. ``time`` never goes back."""
        if len(rows):
            self._grow(int(rows.max()) + 1)
        slot = self._head
        self._times[slot] = time
        self._cpu[slot] = np.nan
        self._memory[slot] = np.nan
        self._cpu[slot, rows] = cpu
        self._memory[slot, rows] = memory
        self._head = (slot + 1) % self._slots
        self._filled = min(self._filled + 1, self._slots)

    def forget(self, row: int) -> None:
        """Drop a row's samples, so that its place can be given to another series."""
        if row < self._cpu.shape[1]:
            self._cpu[:, row] = np.nan
            self._memory[:, row] = np.nan

    def window(self, rows: Rows, start: float, end: float) -> Window:
        """The samples from ``start`` to ``end``, both included, oldest first."""
        if len(rows):
            self._grow(int(rows.max()) + 1)
        order = (self._head - self._filled + np.arange(self._filled)) % self._slots
        times = self._times[order]
        chosen = order[(times >= start) & (times <= end)]
        grid = np.ix_(chosen, rows)
        return Window(self._times[chosen], self._cpu[grid], self._memory[grid])

    def _grow(self, rows: int) -> None:
        have = self._cpu.shape[1]
        if rows <= have:
            return
        more = np.full((self._slots, max(rows, 2 * have) - have), np.nan)
        self._cpu = np.hstack([self._cpu, more])
        self._memory = np.hstack([self._memory, more])
