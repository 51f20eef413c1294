"""How much is left of each resource on each node: the same numbers by row, and in columns of all rows.

A number mostly changes because a pod comes or goes. Then it is what it was without what the pod adds to the load,
whatever else it follows from. So each row knows which load takes from it, and is computed anew only when that says
something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.plugins.load_aware.settings import Vector

SORTS: Final = 2
"""Pods that are not of the prod class, and those that are: an index into what is left."""
_BOTH: Final = 2
"""Index of the columns of both sorts, for rows on which the same is left for all pods."""
Item = TypeVar("Item", np.int64, np.float64)


class Left(NamedTuple):
    """What is left on a row for pods of one sort, by resource."""

    amounts: list[int]
    taken_by: int | None
    """The load that takes from it, as an index into Share.loads; None when it stays whatever pods there are."""


class Remainders(Generic[Item]):
    """``of`` is indexed by row, sort of pods and resource: most decisions look at a single row, where an array costs
    more to read than it saves. ``matrix`` has shape (sorts, resources, rows), each number ``factor``-fold."""

    def __init__(self, width: int, kind: type[Item], initial: int, factor: int = 1) -> None:
        self._width = width
        self._initial = initial
        self._factor = factor
        self.of: list[list[list[int]]] = []
        self.matrix: NDArray[Item] = np.zeros((SORTS, width, 0), dtype=kind)
        self._columns: list[list[list[NDArray[Item]]]] = []
        """The columns to write to, by sort of pods (or _BOTH) and resource."""
        self._taken: dict[int, list[tuple[list[int], int, int]]] = {}
        """Row -> what a load takes from: the amounts, the load, the index in ``_columns``."""

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` in all."""
        known = len(self.of)
        larger = np.full((SORTS, self._width, rows), self._initial * self._factor, dtype=self.matrix.dtype)
        larger[..., :known] = self.matrix
        self.matrix = larger
        self.of.extend([[self._initial] * self._width] * SORTS for _ in range(rows - known))
        one, other = [[[column] for column in of_sort] for of_sort in larger]
        self._columns = [one, other, [both + more for both, more in zip(one, other, strict=True)]]

    def write(self, row: int, left: Sequence[Left]) -> bool:
        """What is left for pods of each sort, as computed anew; returns whether that is news. The same object twice
        stands for what is always the same for both."""
        before = self.of[row]
        now = self.of[row] = [each.amounts for each in left]
        self._taken.pop(row, None)
        parts = [(left[0], _BOTH)] if left[0] is left[1] else list(zip(left, range(SORTS), strict=True))
        taken = [(part.amounts, part.taken_by, where) for part, where in parts if part.taken_by is not None]
        if taken:
            self._taken[row] = taken
        for part, where in parts:
            for columns, amount in zip(self._columns[where], part.amounts, strict=True):
                for column in columns:
                    column[row] = amount * self._factor
        return before != now

    def take(self, row: int, loads: Sequence[Vector], sign: int) -> bool:
        """The loads of ``row`` have grown by these (``sign`` 1) or shrunk (-1); returns whether that changes anything.
        For every pod that comes or goes, so it must be quick."""
        changed = False
        factor = self._factor
        for amounts, load, where in self._taken.get(row, ()):
            columns_of = self._columns[where]
            for index, more in enumerate(loads[load]):
                if more:
                    amounts[index] = amount = amounts[index] - sign * more
                    for column in columns_of[index]:
                        column[row] = amount * factor
                    changed = True
        return changed
