"""The rows that share the highest total, followed while single rows change.

While like pods are placed one after the other, each placement changes one row, and of hundreds that share the highest
total one drops out: to look for them among all nodes each time cost an eighth of a decision.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

INFEASIBLE: Final = -1
"""The total of a row that no pod of the class may go to."""


class Leaders:
    """``find`` looks for them where they are not known; ``follow`` and ``forget`` say what has changed since."""

    def __init__(self) -> None:
        self._rows: list[int] | None = None
        self._highest = INFEASIBLE

    @property
    def known(self) -> Sequence[int]:
        """Ascending, to be read at once; empty where they would have to be looked for."""
        return self._rows or ()

    def find(self, totals: NDArray[np.signedinteger[Any]]) -> Sequence[int]:
        """The feasible rows with the highest of ``totals``, ascending, to be read at once; none where none is."""
        highest = totals.item(totals.argmax()) if totals.shape[0] else INFEASIBLE
        if highest == INFEASIBLE:
            return ()
        self._highest = highest
        # Without the checks of flatnonzero, which cost as much as the work.
        rows: list[int] = (totals == highest).nonzero()[0].tolist()
        self._rows = rows
        return rows

    def follow(self, row: int, total: int) -> None:
        """The total of one row may be another now."""
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
        self._rows = None
