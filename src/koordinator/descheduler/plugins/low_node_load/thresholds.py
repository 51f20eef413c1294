"""The thresholds of a pool, completed as the original completes them, and held against its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from koordinator.api.resource_names import MEMORY
from koordinator.descheduler.plugins.low_node_load.arguments import NodePool
from koordinator.descheduler.plugins.low_node_load.expected_usage import Ints, expected_name
from koordinator.descheduler.plugins.low_node_load.load_columns import MOST, LoadColumns

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
_NEVER: Final = np.iinfo(np.int64).max
_LARGEST: Final = 1e9
"""Percent; there is no limit to what may be configured."""


@dataclass(frozen=True, slots=True)
class Percentages:
    """Resource -> percent of what is allocatable, or distance from the mean."""

    low: dict[str, float]
    high: dict[str, float]
    prod_low: dict[str, float]
    prod_high: dict[str, float]
    expected_high: dict[str, float]
    """By the names of what is expected. Always of what is allocatable."""

    @property
    def names(self) -> Sequence[str]:
        return sorted(self.low)

    @property
    def all_high(self) -> dict[str, float]:
        """The high thresholds of what was measured and of what is expected."""
        return {**self.high, **self.expected_high}


def complete_percentages(pool: NodePool) -> Percentages:
    """Every resource that any of the four names, and memory, has a low threshold; one without has its high threshold
    overwritten, too: 100 percent, or in deviation mode 0, which takes the resource out of consideration. A high
    threshold that is left out is 0."""
    low, high = dict(pool.low_thresholds or {}), dict(pool.high_thresholds or {})
    prod_low, prod_high = dict(pool.prod_low_thresholds or {}), dict(pool.prod_high_thresholds or {})
    ignored = 0.0 if pool.use_deviation_thresholds else 100.0
    expected = pool.expected_high_thresholds or {}
    for name in {*low, *high, *prod_low, *prod_high, MEMORY, *expected}:
        if name not in low:
            low[name] = high[name] = ignored
        if name not in prod_low:
            prod_low[name] = prod_high[name] = ignored
        high.setdefault(name, 0.0)
        prod_high.setdefault(name, 0.0)
    expected_high = {expected_name(name): percent for name, percent in expected.items()}
    return Percentages(low, high, prod_low, prod_high, expected_high)


def misleading(pool: NodePool) -> Sequence[str]:
    """Sentences about thresholds that do not mean what they seem to."""
    found = []
    for prefix, low, high in (
        ("", pool.low_thresholds or {}, pool.high_thresholds or {}),
        ("prod", pool.prod_low_thresholds or {}, pool.prod_high_thresholds or {}),
    ):
        low_field, high_field = (f"{prefix}Low", f"{prefix}High") if prefix else ("low", "high")
        found += [
            f"{high_field}Thresholds[{name}] has no effect without {low_field}Thresholds[{name}]"
            for name in sorted(high.keys() - low.keys())
        ]
        found += [
            f"{low_field}Thresholds[{name}] without {high_field}Thresholds[{name}] lets nothing be evicted"
            for name in sorted(low.keys() - high.keys())
        ]
    return found


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Nodes x resources each, scaled as the usage. A resource without a threshold is never over it."""

    low: Ints
    high: Ints
    prod_low: Ints
    prod_high: Ints


def node_thresholds(columns: LoadColumns, percentages: Percentages, *, deviation: bool) -> Thresholds:
    """``trunc(percent x 0.01 x allocatable)``, in deviation mode with the percent around the mean of all nodes. A node
    that is expected to be hot is no target, either."""
    found = _of_measured(columns, percentages, deviation=deviation)
    for column, name in enumerate(columns.resources):
        if name in percentages.expected_high:
            share = _share(columns, column, percentages.expected_high[name])
            for limits in (found.low, found.high, found.prod_low, found.prod_high):
                limits[:, column] = share
    return found


def _of_measured(columns: LoadColumns, percentages: Percentages, *, deviation: bool) -> Thresholds:
    if not deviation:
        return Thresholds(
            *(
                _absolute(columns, each)
                for each in (percentages.low, percentages.high, percentages.prod_low, percentages.prod_high)
            )
        )
    mean, prod_mean = _mean(columns, columns.usage), _mean(columns, columns.prod_usage)
    low, high = _around(columns, mean, percentages.low, percentages.high)
    prod_low, prod_high = _around(columns, prod_mean, percentages.prod_low, percentages.prod_high)
    return Thresholds(low, high, prod_low, prod_high)


def _absolute(columns: LoadColumns, percentages: dict[str, float]) -> Ints:
    found = np.full(columns.allocatable.shape, _NEVER, dtype=np.int64)
    for column, name in enumerate(columns.resources):
        if name in percentages:
            found[:, column] = _share(columns, column, percentages[name])
    return found


def _share(columns: LoadColumns, column: int, percent: float | Floats) -> Ints:
    # In this order of operations, so that the truncation agrees with the original's to the unit.
    share = np.minimum(percent, _LARGEST) * 0.01 * columns.allocatable[:, column].astype(np.float64)
    share = np.minimum(share, MOST // columns.scales[column])
    scaled: Ints = share.astype(np.int64) * columns.scales[column]
    return scaled


def _mean(columns: LoadColumns, usage: Ints) -> Floats:
    """Percent of the allocatable amount for each resource; a node without any of it counts as using none."""
    if not len(usage):
        return np.zeros(len(columns.resources))
    total = columns.allocatable.astype(np.float64)
    used = (-(-usage // columns.scales)).astype(np.float64)
    shares = np.divide(used, total, out=np.zeros_like(used), where=total != 0) * 100.0
    mean: Floats = shares.sum(axis=0) / len(usage)
    return mean


def _around(columns: LoadColumns, mean: Floats, low: dict[str, float], high: dict[str, float]) -> tuple[Ints, Ints]:
    lows = np.full(columns.allocatable.shape, _NEVER, dtype=np.int64)
    highs = lows.copy()
    for column, name in enumerate(columns.resources):
        if name not in low:
            continue
        if low[name] == 0:
            lows[:, column] = highs[:, column] = columns.allocatable[:, column] * columns.scales[column]
            continue
        lows[:, column] = _share(columns, column, min(max(mean[column] - low[name], 0.0), 100.0))
        highs[:, column] = _share(columns, column, min(max(mean[column] + high.get(name, 0.0), 0.0), 100.0))
    return lows, highs


@dataclass(frozen=True, slots=True)
class Groups:
    """Row numbers, each row in at most one group."""

    low: Sequence[int]
    """Free capacity for any pod by the usage of the node, but not for more pods of class prod."""
    source: Sequence[int]
    prod_low: Sequence[int]
    """Free capacity for pods of class prod only."""
    prod_high: Sequence[int]
    both_low: Sequence[int]


def classify(columns: LoadColumns, thresholds: Thresholds) -> Groups:
    """Nodes that are cordoned are never low. What pods use that are terminating, or gone since the report, makes no
    node hot: more evictions for it would be too many. But it counts as used until a report shows that it is gone:
    such a node is no target, either."""
    schedulable = np.array([not node.spec.unschedulable for node in columns.nodes], dtype=np.bool_)
    low = schedulable & (columns.usage <= thresholds.low).all(axis=1)
    prod_low = schedulable & (columns.prod_usage <= thresholds.prod_low).all(axis=1)
    high = (columns.usage > thresholds.high).any(axis=1)
    prod_high = (columns.prod_usage > thresholds.prod_high).any(axis=1)
    source = ~low & high
    stays_high = (columns.usage - columns.leaving > thresholds.high).any(axis=1)
    stays_prod_high = (columns.prod_usage - columns.prod_leaving > thresholds.prod_high).any(axis=1)
    return Groups(
        low=_rows(low & ~prod_high & ~prod_low),
        source=_rows(source & stays_high),
        prod_low=_rows(~low & ~source & ~prod_high & prod_low),
        prod_high=_rows(~source & prod_high & stays_prod_high),
        both_low=_rows(low & ~prod_high & prod_low),
    )


def _rows(mask: Mask) -> list[int]:
    return [int(row) for row in np.flatnonzero(mask)]
