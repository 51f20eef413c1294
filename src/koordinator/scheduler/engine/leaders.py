"""The rows that share the highest total, followed while single rows change.

While like pods are placed one after the other, each placement changes one row, and of hundreds that share the highest
total one drops out: to look for them among all nodes each time cost an eighth of a decision.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

INFEASIBLE: Final = -1
"""The total of a row that no pod of the class may go to."""


class Leaders(Sequence[int]):
    """Row numbers, ascending; none where they would have to be looked for. ``find`` does so; ``follow`` and ``forget``
    say what has changed since."""

    def __init__(self) -> None:
        self._rows: list[int] | None = None
        self._found: NDArray[np.intp] | None = None
        """In place of ``_rows`` as long as none has changed: many are found and never looked at."""
        self._highest = INFEASIBLE

    def __len__(self) -> int:
        if self._found is not None:
            return len(self._found)
        return len(self._rows) if self._rows is not None else 0

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
        """Look for the feasible rows with the highest of ``totals``; there may be none."""
        self.forget()
        highest = totals.item(totals.argmax()) if totals.shape[0] else INFEASIBLE
        if highest != INFEASIBLE:
            self._highest = highest
            # Without the checks of flatnonzero, which cost as much as the work.
            self._found = (totals == highest).nonzero()[0]

    def follow(self, row: int, total: int) -> None:
        """The total of one row may be another now."""
        if self._found is not None:
            self._rows, self._found = self._found.tolist(), None
        rows = self._rows
        if rows is None:
            return
        if total > self._highest:
            self._highest, self._rows = total, [row]
            return
        index = bisect_left(rows, row)
        among = index < len(rows) and rows[index] == row
        if among and total < self._highest:
            del rows[index]
        elif total == self._highest and not among:
            rows.insert(index, row)

    def forget(self) -> None:
        """Totals of many rows may have changed."""
        self._rows = self._found = None
