"""The load of all nodes as columns: what filter and score compare, one row a node."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Mask
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad
from koordinator.scheduler.plugins.load_aware.settings import LONGEST_WINDOW, AggregatedKey, Settings, Thresholds

_FIRST_ROWS: Final = 64


class LoadColumns:
    """Arrays of shape (rows,) and (rows, resources). ``write`` keeps a row current."""

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
        self.load: Ints = self._matrix(0)
        """Measured usage and what was assigned since."""
        self.prod_load: Ints = self._matrix(0)
        self.filter_aggregated: Ints = self._matrix(0)
        self.score_aggregated: Ints = self._matrix(0)
        self.capacity: Ints = self._matrix(0)
        self.usage_thresholds: Ints = self._matrix(0)
        self.prod_thresholds: Ints = self._matrix(0)
        self.aggregated_thresholds: Ints = self._matrix(0)
        self._expiry: list[tuple[float, int]] = []

    def ensure(self, row: int) -> None:
        """Make room for ``row``."""
        if row < self.rows:
            return
        rows = max(_FIRST_ROWS, 2 * self.rows, row + 1)
        for name in ("reported", "has_metric", "expired", "aggregates"):
            setattr(self, name, _grown(getattr(self, name), np.zeros(rows, dtype=np.bool_)))
        for name in (
            *("load", "prod_load", "filter_aggregated", "score_aggregated", "capacity"),
            *("usage_thresholds", "prod_thresholds", "aggregated_thresholds"),
        ):
            setattr(self, name, _grown(getattr(self, name), self._matrix(rows)))
        self.rows = rows

    def write_node(self, row: int, capacity: Sequence[int], thresholds: Thresholds) -> None:
        self.ensure(row)
        self.capacity[row] = capacity
        self.usage_thresholds[row] = thresholds.usage
        self.prod_thresholds[row] = thresholds.prod
        self.aggregated_thresholds[row] = thresholds.aggregated
        self.aggregates[row] = thresholds.aggregation is not None

    def write_load(self, row: int, node: NodeLoad, thresholds: Thresholds) -> None:
        self.ensure(row)
        metric, sums = node.metric, node.sums
        self.has_metric[row] = metric is not None
        self.reported[row] = metric is not None and metric.measured
        if metric is None:
            return
        self.load[row] = [used + delta for used, delta in zip(metric.usage, sums.node_delta, strict=True)]
        base = metric.system if self._settings.prod_includes_system else (0,) * self._width
        self.prod_load[row] = [sum(parts) for parts in zip(base, sums.prod_usage, sums.prod_delta, strict=True)]
        if thresholds.aggregation is not None:
            self.filter_aggregated[row] = _aggregated(node, thresholds.aggregation)
        if self._settings.score_aggregation is not None:
            self.score_aggregated[row] = _aggregated(node, self._settings.score_aggregation)

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
        self.ensure(row)
        self.has_metric[row] = self.reported[row] = self.expired[row] = False

    def _matrix(self, rows: int) -> Ints:
        return np.zeros((rows, self._width), dtype=np.int64)


def _aggregated(node: NodeLoad, key: AggregatedKey) -> list[int]:
    """Aggregated usage plus what was assigned since. Without the window asked for, only the estimates are known; with
    no particular window, plain usage stands in."""
    assert node.metric is not None
    usage = node.metric.aggregated.get(key)
    if usage is None:
        if key[1] != LONGEST_WINDOW:
            return list(node.sums.estimated)
        usage = node.metric.usage
    return [used + delta for used, delta in zip(usage, node.sums.node_delta, strict=True)]


def _grown(old: NDArray[np.generic], new: NDArray[np.generic]) -> NDArray[np.generic]:
    new[: old.shape[0]] = old
    return new
