"""The load of all nodes as columns: what filter and score compare, one row a node.

What is known of a node (loads, thresholds, whether its report counts) is kept as plain lists. Decisions see only what
follows from it: how much more a pod may add to each resource, and how much of it is free. So a pod is compared with
one number a resource, on many nodes at once or on one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import EXACT_BELOW, Ints, Mask
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad
from koordinator.scheduler.plugins.load_aware.settings import LONGEST_WINDOW, AggregatedKey, Settings, Thresholds

USAGE: Final = 0
"""All pods: measured usage and what was assigned since."""
PROD: Final = 1
"""Pods of the prod class alone."""
AGGREGATED: Final = 2
"""Usage aggregated over a window, as the filter wants it."""
SCORE_AGGREGATED: Final = 3
"""The same as the score wants it; a load only."""
CAPACITY: Final = 3
"""What the node has; a limit only."""
NO_LIMIT: Final = 1 << 62
"""Room that no pod fills."""
EXPIRED: Final = -(1 << 62)
"""The room on a node that takes no pod because its report has expired."""
_NOTHING: Final = -(1 << 62)
_KINDS: Final = 4
_SORTS: Final = 2
"""Pods that are not of the prod class, and those that are: an index into room and free."""
_FIRST_ROWS: Final = 64
_Lists = list[Sequence[int]]
Floats = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)


class LoadColumns:
    """``loads_of`` and ``limits_of`` are indexed by row, kind and resource, so that the same number (``USAGE``,
    ``PROD``, ``AGGREGATED``) finds a load and the thresholds it is held against. The writers keep a row current."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._width = len(settings.resources)
        self.rows = 0
        self.loads_of: list[_Lists] = []
        self.limits_of: list[_Lists] = []
        self.reported: list[bool] = []
        """The node has a NodeMetric with a measurement in it."""
        self.has_metric: list[bool] = []
        self.expired: list[bool] = []
        self.aggregates: Mask = np.zeros(0, dtype=np.bool_)
        """The filter compares aggregated usage on this node."""
        self.limits_prod: Mask = np.zeros(0, dtype=np.bool_)
        """The filter compares the load of prod pods with thresholds of their own when a prod pod comes."""
        self.room: Ints = self._matrix(0)
        """(sorts of pods, resources, rows): the most that a pod may be expected to use here."""
        self.free: Floats = np.zeros((_SORTS, self._width, 0))
        """(sorts of pods, resources, rows): a hundred times the capacity without the load that the score looks at."""
        self.capacity: Floats = np.ones((self._width, 0))
        """(resources, rows), at least 1."""
        self.exact = True
        """Percentages computed from ``free`` and ``capacity`` come out exact when rounded down. They are floats since a
        division of integers takes several times as long."""
        self.lacks: Mask = np.zeros((self._width, 0), dtype=np.bool_)
        """(resources, rows): the node has nothing of it."""
        self.room_of: list[_Lists] = []
        """``room`` row by row: most decisions look at a single row, where an array costs more to read than it saves."""
        self.free_of: list[_Lists] = []
        self._scored = SCORE_AGGREGATED if settings.score_aggregation is not None else USAGE
        self._scored_prod = PROD if settings.scores_prod_usage else self._scored
        self._expiry: list[tuple[float, int]] = []

    def ensure(self, row: int) -> None:
        """Make room for ``row``."""
        if row < self.rows:
            return
        rows = max(_FIRST_ROWS, 2 * self.rows, row + 1)
        more = rows - self.rows
        self.aggregates = _grown(self.aggregates, np.zeros(rows, dtype=np.bool_))
        self.limits_prod = _grown(self.limits_prod, np.zeros(rows, dtype=np.bool_))
        self.capacity = _grown(self.capacity, np.ones((self._width, rows)))
        self.lacks = _grown(self.lacks, np.ones((self._width, rows), dtype=np.bool_))
        self.room = _grown(self.room, np.full_like(self._matrix(rows), NO_LIMIT))
        self.free = _grown(self.free, np.full((*self.free.shape[:-1], rows), float(_NOTHING)))
        for flags in (self.reported, self.has_metric, self.expired):
            flags.extend([False] * more)
        for lists in (self.loads_of, self.limits_of):
            lists.extend([[0] * self._width] * _KINDS for _ in range(more))
        self.room_of.extend([[NO_LIMIT] * self._width] * _SORTS for _ in range(more))
        self.free_of.extend([[_NOTHING] * self._width] * _SORTS for _ in range(more))
        self.rows = rows

    def write_node(self, row: int, capacity: Sequence[int], thresholds: Thresholds) -> None:
        """The node is new or changed."""
        self.ensure(row)
        self.limits_of[row] = [thresholds.usage, thresholds.prod, thresholds.aggregated, capacity]
        self.limits_prod[row] = any(thresholds.prod)
        self.aggregates[row] = thresholds.aggregation is not None
        self.capacity[:, row] = [max(amount, 1) for amount in capacity]
        self.exact = self.exact and all(amount < EXACT_BELOW for amount in capacity)
        self.lacks[:, row] = [amount <= 0 for amount in capacity]
        self._conclude(row)

    def write_load(self, row: int, node: NodeLoad, thresholds: Thresholds) -> bool:
        """What was measured of the node, or which pods are on it, may have changed; returns whether anything that
        decisions read did."""
        self.ensure(row)
        metric = node.metric
        before = self.has_metric[row], self.reported[row]
        now = metric is not None, metric is not None and metric.measured
        self.has_metric[row], self.reported[row] = now
        if metric is not None:
            usage = _sum(metric.usage, node.sums.node_delta)
            prod = _sum(node.sums.prod_usage, node.sums.prod_delta)
            if self._settings.prod_includes_system:
                prod = _sum(prod, metric.system)
            wanted = thresholds.aggregation, self._settings.score_aggregation
            aggregated = [usage if key is None else _aggregated(node, key) for key in wanted]
            loads: _Lists = [usage, prod, *aggregated]
            if before == now and self.loads_of[row] == loads:
                return False
            self.loads_of[row] = loads
        elif before == now:
            return False
        self._conclude(row)
        return True

    def write_report_time(self, row: int, since: float | None, now: float) -> None:
        """From when on the report ages; without a time it has expired already."""
        self.ensure(row)
        expires = (since or 0.0) + self._settings.expiration_seconds
        self.expired[row] = since is None or expires <= now
        if not self.expired[row]:
            heapq.heappush(self._expiry, (expires, row))
        self._conclude(row)

    def write_expired(self, row: int, expired: bool) -> bool:
        """Whether the report counts as expired; returns whether that is news."""
        if self.expired[row] == expired:
            return False
        self.expired[row] = expired
        self._conclude(row)
        return True

    @property
    def next_expiry(self) -> float | None:
        """When a report may expire next, in seconds since the epoch."""
        return self._expiry[0][0] if self._expiry else None

    def due(self, now: float) -> list[int]:
        """The rows that may have expired by ``now``, each once for every report that is that old."""
        rows = []
        while self._expiry and self._expiry[0][0] <= now:
            rows.append(heapq.heappop(self._expiry)[1])
        return rows

    def clear(self, row: int) -> None:
        """The node is gone."""
        self.ensure(row)
        self.has_metric[row] = self.reported[row] = self.expired[row] = False
        self._conclude(row)

    def compared(self, row: int, *, prod: bool) -> int:
        """The kind of load that the filter looks at when a pod comes that is of the prod class, or is not."""
        limits = self.limits_of[row]
        if prod and any(limits[PROD]):
            return PROD
        return AGGREGATED if self.aggregates[row] else USAGE

    def _conclude(self, row: int) -> None:
        """Write what decisions read."""
        kind = self.compared(row, prod=False)
        room = self._room(row, kind)
        prod_kind = self.compared(row, prod=True)
        self.room_of[row] = [room, room if prod_kind == kind else self._room(row, prod_kind)]
        free = self._free(row, self._scored)
        self.free_of[row] = [free, free if self._scored_prod == self._scored else self._free(row, self._scored_prod)]
        # Few numbers: one by one is faster than as an array.
        for sort, (rooms, frees) in enumerate(zip(self.room_of[row], self.free_of[row], strict=True)):
            for index, amount in enumerate(rooms):
                self.room[sort, index, row] = amount
            for index, amount in enumerate(frees):
                self.free[sort, index, row] = amount * MAX_NODE_SCORE

    def _room(self, row: int, kind: int) -> Sequence[int]:
        bounds, capacity = self.limits_of[row][kind], self.limits_of[row][CAPACITY]
        if not self.has_metric[row] or not any(bounds):
            return [NO_LIMIT] * self._width
        if self._settings.filters_expired and self.expired[row]:
            return [NO_LIMIT if self._settings.passes_expired else EXPIRED] * self._width
        if not self.reported[row]:
            return [NO_LIMIT] * self._width
        loads = self.loads_of[row][kind]
        return [largest_load(bound, whole) - load for bound, whole, load in zip(bounds, capacity, loads, strict=True)]

    def _free(self, row: int, kind: int) -> Sequence[int]:
        if not self.reported[row] or self.expired[row]:
            return [_NOTHING] * self._width
        return [
            whole - load for whole, load in zip(self.limits_of[row][CAPACITY], self.loads_of[row][kind], strict=True)
        ]

    def _matrix(self, rows: int) -> Ints:
        return np.zeros((_SORTS, self._width, rows), dtype=np.int64)


@lru_cache(maxsize=1 << 16)
def largest_load(bound: int, whole: int) -> int:
    """The largest load that is not above ``bound`` percent of ``whole``, in the original's rounding: half a percent
    goes up, computed in floating point."""
    if bound <= 0 or whole <= 0:
        return NO_LIMIT
    load = whole * (2 * bound + 1) // 200
    while math.floor(load / whole * 100 + 0.5) > bound:
        load -= 1
    while math.floor((load + 1) / whole * 100 + 0.5) <= bound:
        load += 1
    return load


def _aggregated(node: NodeLoad, key: AggregatedKey) -> Sequence[int]:
    """Aggregated usage plus what was assigned since. Without the window asked for, only the estimates are known; with
    no particular window, plain usage stands in."""
    assert node.metric is not None
    usage = node.metric.aggregated.get(key)
    if usage is None:
        if key[1] != LONGEST_WINDOW:
            return list(node.sums.estimated)
        usage = node.metric.usage
    return _sum(usage, node.sums.node_delta)


def _sum(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)]


def _grown(old: NDArray[Item], new: NDArray[Item]) -> NDArray[Item]:
    new[..., : old.shape[-1]] = old
    return new
