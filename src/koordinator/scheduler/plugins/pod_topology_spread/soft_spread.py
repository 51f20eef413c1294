"""Score: nodes whose domains have fewer like pods are better, by the ScheduleAnyway constraints.

All scores depend on which nodes are feasible: the number of their domains weighs the constraints against each other. So
they are all computed together, once for each cell of like rows.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.plugins.pod_topology_spread.cells import APART, MISSING, Cells
from koordinator.scheduler.plugins.pod_topology_spread.constraints import HOSTNAME, SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.spread import Spread
from koordinator.scheduler.plugins.pod_topology_spread.topologies import NAMELESS

_Floats = NDArray[np.float64]
_Lookup = tuple[Ints, Rows]
_NO_CELLS: Final = Cells([np.zeros(0, dtype=np.int64)], np.zeros(0, dtype=np.bool_))


class SoftSpread:
    """The state of Score for one class of pods."""

    def __init__(
        self, columns: NodeColumns, spread: Spread, constraints: tuple[SpreadConstraint, ...], *, needs_all_keys: bool
    ) -> None:
        self._columns = columns
        self._version = -1
        """The version of the columns that everything is current for."""
        self._spread = spread
        self._constraints = constraints
        self._needs_all_keys = needs_all_keys
        self._cells = _NO_CELLS

    def apply_delta(self, rows: Rows) -> bool:
        """Bring ``rows`` up to date; returns whether scores may have changed."""
        if not self._spread.built:
            return True
        if self._spread.is_much(rows.shape[0]) or self._cells.too_many:
            self._build()
            return True
        of_node = self._columns.touched_in(Aspect.NODE, rows, self._version)
        delta = self._spread.apply_delta(rows.tolist(), rows[of_node].tolist())
        self._version = self._columns.version
        if self._cells.of_row.shape[0] < self._spread.keyed.shape[0]:
            self._cells.widen(self._spread.keyed.shape[0])
        changed = any(delta.domains)
        for row in sorted(delta.rows):
            changed |= self._cells.place(row, self._signature(row))
        return changed

    def scores(self, feasible: Mask) -> Ints:
        """0..100 for each feasible row, 0 for nodes that lack a key."""
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
                values.append(np.where(domain < 0, MISSING, self._spread.matching(index).on_row))
            else:
                values.append(domain)
        self._cells = Cells(values, apart)

    def _signature(self, row: int) -> tuple[int, ...] | None:
        """What the score of ``row`` follows from."""
        spread = self._spread
        if self._needs_all_keys and not spread.keyed.item(row):
            return None
        values = []
        for index, constraint in enumerate(self._constraints):
            value = spread.domain_of(index, row)
            if value >= 0 and constraint.topology_key == HOSTNAME:
                value = spread.matching(index).on_row.item(row)
            values.append(value)
        return tuple(values)

    def _scores_of_cells(self, rows: Ints) -> Ints:
        """``rows``: how many feasible ones there are, by cell."""
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
        """How many matching pods there are around the rows of each cell, weighted by topology; ``maxSkew`` waters
        differences down."""
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
    """Makes the counts of topologies with few and with many domains comparable."""
    return math.log(domains + 2)


def _rounded(values: _Floats) -> Ints:
    """Halves are rounded up, as Go does with what is not negative; adding a half first could err by the addition."""
    whole = np.floor(values)
    whole += values - whole >= 0.5
    rounded: Ints = whole.astype(np.int64)
    return rounded
