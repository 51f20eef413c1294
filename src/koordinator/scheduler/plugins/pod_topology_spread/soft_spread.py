"""Score: prefers nodes whose domains have fewer matching pods, by the ScheduleAnyway constraints.

All scores depend on which nodes are feasible, since each constraint is weighted by the number of their domains. So they
are all computed together, once for each cell, that is a set of rows with equal values for all constraints.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.row_amounts import grown
from koordinator.scheduler.plugins.node_labels import NAMELESS
from koordinator.scheduler.plugins.pod_topology_spread.constraints import HOSTNAME, SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.spread import Spread

MISSING: Final = -1
"""The value, instead of its domain or its number of pods, of a node without the topology key."""
APART: Final = 0
"""The number of the cell of rows that get no score."""
_FEW_CHANGES: Final = 32


class Cells:
    """Assigns each row to a cell, and counts the feasible rows of each cell."""

    def __init__(self, values: list[Ints], apart: Mask) -> None:
        """``values``: for each constraint the values by row, possibly MISSING; ``apart``: the rows that get no
        score."""
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
        """Whether so many cells may be empty that rebuilding is due."""
        bound: int = 2 * self.of_row.shape[0] + 64
        return self.size > bound

    def values(self, index: int) -> Ints:
        """Cell -> the value of its rows for the constraint of this index; undefined for APART."""
        return self._values[index][: self.size]

    def feasible_rows(self) -> Ints:
        """Cell -> number of feasible rows."""
        return self._feasible_rows[: self.size]

    def place(self, row: int, signature: tuple[int, ...] | None) -> bool:
        """Set the values of the row, None for a row that gets no score. Return whether its cell has changed."""
        cell, before = APART if signature is None else self._cell(signature), self.of_row.item(row)
        if cell == before:
            return False
        self.of_row[row] = cell
        if self._feasible.item(row):
            self._feasible_rows[before] -= 1
            self._feasible_rows[cell] += 1
        return True

    def elect(self, feasible: Mask) -> None:
        """Set the feasible rows; the mask may be shorter than the number of rows."""
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
        """Extend the arrays by row to ``capacity``."""
        self.of_row, self._feasible = grown(self.of_row, (capacity,)), grown(self._feasible, (capacity,))

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
    """For each position the number of its combination of values, and for each number its first position."""
    numbers = np.zeros(values[0].shape[0], dtype=np.int64)
    firsts = np.zeros(0, dtype=np.intp)
    for value in values:
        span = int(value.max(initial=0)) + 2
        _, firsts, numbers = np.unique(numbers * span + value + 1, return_index=True, return_inverse=True)
    return numbers, firsts


_Floats = NDArray[np.float64]
_Lookup = tuple[Ints, Rows]
_NO_CELLS: Final = Cells([np.zeros(0, dtype=np.int64)], np.zeros(0, dtype=np.bool_))


class SoftSpread:
    """The Score state of one class of pods."""

    def __init__(
        self, columns: NodeColumns, spread: Spread, constraints: tuple[SpreadConstraint, ...], *, needs_all_keys: bool
    ) -> None:
        self._columns = columns
        self._version = -1
        """The version of the columns that the cells reflect."""
        self._spread = spread
        self._constraints = constraints
        self._needs_all_keys = needs_all_keys
        self._cells = _NO_CELLS

    def apply_delta(self, rows: Rows) -> bool:
        """Update the state after changes on ``rows``. Return whether scores may have changed."""
        if not self._spread.built:
            return True
        if self._spread.is_much(rows.shape[0]) or self._cells.too_many:
            self._build()
            return True
        of_node = self._columns.touched_in(Aspect.NODE, rows, self._version)
        domains, moved = self._spread.apply_delta(rows.tolist(), rows[of_node].tolist())
        self._version = self._columns.version
        if self._cells.of_row.shape[0] < self._spread.keyed.shape[0]:
            self._cells.widen(self._spread.keyed.shape[0])
        changed = any(domains)
        for row in sorted(moved):
            changed |= self._cells.place(row, self._signature(row))
        return changed

    def scores(self, feasible: Mask) -> Ints:
        """The score of each feasible row, 0..100; 0 for nodes that lack a topology key."""
        if not self._spread.built:
            self._build()
        cells = self._cells
        cells.elect(feasible)
        scores: Ints = self._scores_of_cells(cells.feasible_rows())[cells.of_row[: feasible.shape[0]]]
        return scores

    def _build(self) -> None:
        self._spread.build()
        self._version = self._columns.version
        keyed = self._spread.keyed
        apart = ~keyed if self._needs_all_keys else np.zeros_like(keyed)
        values = []
        for index, constraint in enumerate(self._constraints):
            domain = self._spread.domain(index)
            if constraint.topology_key == HOSTNAME:
                values.append(np.where(domain < 0, MISSING, self._spread.pods(index)))
            else:
                values.append(domain)
        self._cells = Cells(values, apart)

    def _signature(self, row: int) -> tuple[int, ...] | None:
        """The values of ``row`` for all constraints, which determine its score; None if it gets no score."""
        spread = self._spread
        if self._needs_all_keys and not spread.keyed.item(row):
            return None
        values = []
        for index, constraint in enumerate(self._constraints):
            value = spread.domain_of(index, row)
            if value >= 0 and constraint.topology_key == HOSTNAME:
                value = spread.pods(index).item(row)
            values.append(value)
        return tuple(values)

    def _scores_of_cells(self, rows: Ints) -> Ints:
        """The score of each cell; ``rows``: cell -> number of feasible rows."""
        evaluated = rows > 0
        evaluated[APART] = False
        if not evaluated.any():
            return np.zeros(rows.shape[0], dtype=np.int64)
        raw = _rounded(self._crowding(rows, evaluated))
        among = raw[evaluated]
        lowest, highest = int(among.min()), int(among.max())
        if highest == 0:
            scores = np.full(rows.shape[0], MAX_NODE_SCORE, dtype=np.int64)
        else:
            scores = MAX_NODE_SCORE * (highest + lowest - raw) // highest
        scores[APART] = 0
        return scores

    def _crowding(self, rows: Ints, evaluated: Mask) -> _Floats:
        """The raw score of each cell: the matching pods in its domains, weighted by topology, plus ``maxSkew - 1`` for
        each constraint, which reduces relative differences. Lower is better."""
        total: _Floats = np.zeros(rows.shape[0])
        for index, constraint in enumerate(self._constraints):
            values = self._cells.values(index)
            if constraint.topology_key == HOSTNAME:
                domains, pods = int(rows.sum()) - int(rows[APART]), values
            else:
                number = np.maximum(values, NAMELESS)
                domains = int(np.count_nonzero(np.bincount(number[evaluated])))
                pods = self._spread.counts[index].pods[number]
            crowding = pods * _weight(domains) + float(constraint.max_skew - 1)
            if not self._needs_all_keys:
                crowding[values == MISSING] = 0.0
            total += crowding
        return total


def _weight(domains: int) -> float:
    """The weight of a topology, which makes counts of topologies with few and with many domains comparable."""
    return math.log(domains + 2)


def _rounded(values: _Floats) -> Ints:
    """The values (not negative) rounded half up, as Go's math.Round does; floor(x + 0.5) could err in the addition."""
    whole = np.floor(values)
    whole += values - whole >= 0.5
    rounded: Ints = whole.astype(np.int64)
    return rounded
