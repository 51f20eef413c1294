"""The nodes with the highest total for one class of pods, kept from one decision to the next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

INFEASIBLE: Final = -1
"""The total of a row that is infeasible for the class."""


class BestNodes(Sequence[int]):
    """The indices of the nodes with the highest total, ascending; empty if not known, until ``find`` computes them.
    ``apply_delta`` and ``forget`` report changes."""

    def __init__(self) -> None:
        self.size = 0
        """How many there are."""
        self._rows: list[int] | None = None
        self._found: NDArray[np.intp] | None = None
        """In place of ``_rows`` until one changes: most results of ``find`` are never looked at."""
        self._highest = INFEASIBLE

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if self._found is None:
            return (self._rows or [])[index]
        found: int | list[int] = self._found[index].tolist()
        return found

    def find(self, totals: NDArray[np.signedinteger[Any]]) -> None:
        """Find the feasible rows with the highest of ``totals``; there may be none."""
        self.forget()
        highest = totals.item(totals.argmax()) if totals.shape[0] else INFEASIBLE
        if highest != INFEASIBLE:
            self._highest = highest
            # Without the checks of flatnonzero, which cost as much as the work.
            self._found = (totals == highest).nonzero()[0]
            self.size = self._found.shape[0]

    def apply_delta(self, row: int, total: int) -> None:
        """The total of one row may have changed."""
        if self._found is not None:
            self._rows, self._found = self._found.tolist(), None
        rows = self._rows
        if rows is None:
            return
        if total > self._highest:
            self._highest, self._rows, self.size = total, [row], 1
            return
        index = bisect_left(rows, row)
        among = index < len(rows) and rows[index] == row
        if among and total < self._highest:
            del rows[index]
            self.size -= 1
        elif total == self._highest and not among:
            rows.insert(index, row)
            self.size += 1

    def forget(self) -> None:
        """Totals of many rows may have changed."""
        self._rows = self._found = None
        self.size = 0
