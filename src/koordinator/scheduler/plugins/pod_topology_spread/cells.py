"""Rows that cannot but have the same score, as one cell: in the same domains, with as many matching pods on the node
itself where that counts. Thousands of nodes are a few cells: scores are computed for cells and looked up for rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Mask, Rows

MISSING: Final = -1
"""What a node without the topology key has in place of its domain or of its pods."""
APART: Final = 0
"""The cell of the rows that get no score."""
_FEW_CHANGES: Final = 32


class Cells:
    """Each row is in one cell; each cell knows how many feasible rows it has."""

    def __init__(self, values: list[Ints], apart: Mask) -> None:
        """``values`` of each constraint by row, MISSING among them; ``apart``: the rows that get no score."""
        rows = np.flatnonzero(~apart)
        numbers, firsts = _distinct([value[rows] for value in values])
        self.of_row: Rows = np.zeros(apart.shape[0], dtype=np.intp)
        self.of_row[rows] = numbers + 1
        self.size = int(firsts.shape[0]) + 1
        """Cells in use, APART included; arrays by cell may be longer."""
        spare = np.zeros(self.size + 16, dtype=np.int64)
        self._values = [np.concatenate([spare[:1], value[rows[firsts]], spare]) for value in values]
        self._feasible_rows: Ints = np.zeros(self._values[0].shape[0], dtype=np.int64)
        self._feasible: Mask = np.zeros(apart.shape[0], dtype=np.bool_)
        columns = [value[1 : self.size].tolist() for value in self._values]
        self._number_of: dict[tuple[int, ...], int] = {
            signature: number for number, signature in enumerate(zip(*columns, strict=True), start=1)
        }

    @property
    def too_many(self) -> bool:
        """Whether so many cells are empty by now that it is time to begin anew."""
        bound: int = 2 * self.of_row.shape[0] + 64
        return self.size > bound

    def values(self, index: int) -> Ints:
        """What the rows of each cell have for the constraint of this number; that of APART means nothing."""
        return self._values[index][: self.size]

    def feasible_rows(self) -> Ints:
        """How many feasible rows each cell has."""
        return self._feasible_rows[: self.size]

    def place(self, row: int, signature: tuple[int, ...] | None) -> bool:
        """The row has these values now, None for a row that gets no score; returns whether its cell is another."""
        cell, before = APART if signature is None else self._cell(signature), self.of_row.item(row)
        if cell == before:
            return False
        self.of_row[row] = cell
        if self._feasible.item(row):
            self._feasible_rows[before] -= 1
            self._feasible_rows[cell] += 1
        return True

    def elect(self, feasible: Mask) -> None:
        """These rows are feasible now; the mask may be shorter than there are rows."""
        known = self._feasible[: feasible.shape[0]]
        changed = np.flatnonzero(known != feasible)
        if changed.shape[0] > _FEW_CHANGES:
            known[:] = feasible
            cells = self.of_row[np.flatnonzero(feasible)]
            self._feasible_rows = np.bincount(cells, minlength=self._feasible_rows.shape[0])
            return
        for row in changed.tolist():
            now = feasible.item(row)
            known[row] = now
            self._feasible_rows[self.of_row.item(row)] += 1 if now else -1

    def widen(self, capacity: int) -> None:
        """Make room for rows."""
        more = capacity - self.of_row.shape[0]
        self.of_row = np.concatenate([self.of_row, np.zeros(more, dtype=np.intp)])
        self._feasible = np.concatenate([self._feasible, np.zeros(more, dtype=np.bool_)])

    def _cell(self, signature: tuple[int, ...]) -> int:
        number = self._number_of.get(signature)
        if number is None:
            number = self._number_of[signature] = self.size
            self.size += 1
            if number >= self._feasible_rows.shape[0]:
                more = np.zeros(number, dtype=np.int64)
                self._values = [np.concatenate([values, more]) for values in self._values]
                self._feasible_rows = np.concatenate([self._feasible_rows, more])
            for values, value in zip(self._values, signature, strict=True):
                values[number] = value
        return number


def _distinct(values: list[Ints]) -> tuple[Rows, Rows]:
    """Numbers of the combinations of values by position, and the first position of each number."""
    numbers = np.zeros(values[0].shape[0], dtype=np.int64)
    firsts = np.zeros(0, dtype=np.intp)
    for value in values:
        span = int(value.max(initial=0)) + 2
        _, firsts, numbers = np.unique(numbers * span + value + 1, return_index=True, return_inverse=True)
    return numbers, firsts
