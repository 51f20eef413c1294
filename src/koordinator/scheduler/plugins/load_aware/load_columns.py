"""The load of all nodes as columns: what filter and score compare, one row a node.

Loads and limits lie side by side, so that the same number (``USAGE``, ``PROD``, ``AGGREGATED``) finds a load and the
thresholds that it is held against. Each row is kept as plain lists as well: most decisions look at a single row, where
an array costs more to read than it saves.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Mask
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
_KINDS: Final = 4
_FIRST_ROWS: Final = 64
_Lists = list[Sequence[int]]
Item = TypeVar("Item", bound=np.generic)


class LoadColumns:
    """``loads`` and ``limits`` have the shape (kinds, resources, rows). The writers keep a row current."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._width = len(settings.resources)
        self.rows = 0
        self.reported: Mask = np.zeros(0, dtype=np.bool_)
        """The node has a NodeMetric with a measurement in it."""
        self.has_metric: Mask = np.zeros(0, dtype=np.bool_)
        self.expired: Mask = np.zeros(0, dtype=np.bool_)
        self.aggregates: Mask = np.zeros(0, dtype=np.bool_)
        """The filter compares aggregated usage on this node."""
        self.limited: Mask = np.zeros((_KINDS, 0), dtype=np.bool_)
        """By kind: some threshold is set."""
        self.loads: Ints = self._matrix(0)
        self.limits: Ints = self._matrix(0)
        self.loads_of: list[_Lists] = []
        """``loads`` row by row."""
        self.limits_of: list[_Lists] = []
        self._expiry: list[tuple[float, int]] = []

    def ensure(self, row: int) -> None:
        """Make room for ``row``."""
        if row < self.rows:
            return
        rows = max(_FIRST_ROWS, 2 * self.rows, row + 1)
        for name in ("reported", "has_metric", "expired", "aggregates"):
            setattr(self, name, _grown(getattr(self, name), np.zeros(rows, dtype=np.bool_)))
        self.limited = _grown(self.limited, np.zeros((_KINDS, rows), dtype=np.bool_))
        for name in ("loads", "limits"):
            setattr(self, name, _grown(getattr(self, name), self._matrix(rows)))
        for lists in (self.loads_of, self.limits_of):
            lists.extend([[0] * self._width] * _KINDS for _ in range(rows - self.rows))
        self.rows = rows

    def write_node(self, row: int, capacity: Sequence[int], thresholds: Thresholds) -> None:
        """The node is new or changed."""
        self.ensure(row)
        limits: _Lists = [thresholds.usage, thresholds.prod, thresholds.aggregated, capacity]
        self.limits_of[row] = limits
        self.limits[:, :, row] = limits
        self.limited[:, row] = [any(amounts) for amounts in limits]
        self.aggregates[row] = thresholds.aggregation is not None

    def write_load(self, row: int, node: NodeLoad, thresholds: Thresholds) -> bool:
        """What was measured of the node, or which pods are on it, may have changed; returns whether anything that
        decisions read did."""
        self.ensure(row)
        metric = node.metric
        before = bool(self.has_metric[row]), bool(self.reported[row])
        now = metric is not None, metric is not None and metric.measured
        self.has_metric[row], self.reported[row] = now
        if metric is None:
            return before != now
        usage = _sum(metric.usage, node.sums.node_delta)
        prod = _sum(node.sums.prod_usage, node.sums.prod_delta)
        if self._settings.prod_includes_system:
            prod = _sum(prod, metric.system)
        wanted = thresholds.aggregation, self._settings.score_aggregation
        aggregated = [usage if key is None else _aggregated(node, key) for key in wanted]
        loads: _Lists = [usage, prod, *aggregated]
        known = self.loads_of[row]
        if known == loads:
            return before != now
        self.loads_of[row] = loads
        for kind, amounts in enumerate(loads):
            if amounts != known[kind]:
                # Few numbers: one by one is faster than as an array.
                for index, amount in enumerate(amounts):
                    self.loads[kind, index, row] = amount
        return True

    def write_report_time(self, row: int, since: float | None, now: float) -> None:
        """From when on the report ages; without a time it has expired already."""
        self.ensure(row)
        expires = (since or 0.0) + self._settings.expiration_seconds
        self.expired[row] = since is None or expires <= now
        if not self.expired[row]:
            heapq.heappush(self._expiry, (expires, row))

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

    def _matrix(self, rows: int) -> Ints:
        return np.zeros((_KINDS, self._width, rows), dtype=np.int64)


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
