"""The scoring strategies of NodeResourcesFit, on integers exactly as upstream rounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from koordinator.scheduler.configuration.upstream_arguments import ScoringStrategy, UtilizationShapePoint
from koordinator.scheduler.engine.columns import Ints
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.plugins.node_resources.allocation import (
    Fill,
    Item,
    Scorer,
)

_Function = Callable[[Ints], Ints]

_MAX_SHAPE_SCORE: Final = 10
_MAX_UTILIZATION: Final = 100
_ZERO: Final = np.zeros(())
_HUNDRED: Final = np.array(float(MAX_NODE_SCORE))
"""Costs half of plain numbers, which numpy converts at each use."""


def least_allocated(fill: Fill) -> Ints:
    """Higher for emptier nodes; 0 for a resource that would be overcommitted."""
    free = np.subtract(fill.allocatable, fill.requested, out=fill.requested)
    return _mean_share(np.maximum(free, _ZERO if fill.complete else 0, out=free), fill)


def most_allocated(fill: Fill) -> Ints:
    """Higher for fuller nodes; pods without requests, which count with defaults, may seem to overfill one."""
    return _mean_share(np.minimum(fill.requested, fill.allocatable, out=fill.requested), fill)


def least_of_one(items: Iterable[Item], requested: Any, allocatable: Any) -> int:
    """0..100 for one node, NUMA node or device, as ``least_allocated`` computes it. The amounts are by column or by
    name. A resource with nothing allocatable does not count."""
    total = weights = 0
    for key, more, weight in items:
        whole = allocatable[key]
        if whole > 0:
            part = whole - requested[key] - more
            if part > 0:
                total += part * MAX_NODE_SCORE // whole * weight
            weights += weight
    return total // weights if weights else 0


def most_of_one(items: Iterable[Item], requested: Any, allocatable: Any) -> int:
    """The same, as ``most_allocated`` computes it."""
    total = weights = 0
    for key, more, weight in items:
        whole = allocatable[key]
        if whole > 0:
            part = requested[key] + more
            total += (part * MAX_NODE_SCORE // whole if part < whole else MAX_NODE_SCORE) * weight
            weights += weight
    return total // weights if weights else 0


LEAST_ALLOCATED: Final = Scorer(least_allocated, least_of_one)
MOST_ALLOCATED: Final = Scorer(most_allocated, most_of_one)


def scorer_for(strategy: ScoringStrategy) -> Scorer:
    """The scorer of a validated strategy."""
    if strategy.type == "RequestedToCapacityRatio" and strategy.requested_to_capacity_ratio is not None:
        return Scorer(requested_to_capacity_ratio(strategy.requested_to_capacity_ratio.shape))
    return MOST_ALLOCATED if strategy.type == "MostAllocated" else LEAST_ALLOCATED


def requested_to_capacity_ratio(shape: Sequence[UtilizationShapePoint]) -> Callable[[Fill], Ints]:
    """A broken line from utilisation to score; resources with a score of 0 do not count in the mean."""
    function = broken_line([(point.utilization, point.score * (MAX_NODE_SCORE // _MAX_SHAPE_SCORE)) for point in shape])

    def score(fill: Fill) -> Ints:
        used, whole = fill.requested, fill.allocatable
        utilization = used * _MAX_UTILIZATION // np.maximum(whole, 1)
        scores = function(np.where(used > whole, _MAX_UTILIZATION, utilization).astype(np.intp))
        counted = fill.weights.astype(np.int64)[:, np.newaxis] * ((whole > 0) & (scores > 0))
        total, weight = (scores * counted).sum(axis=0), counted.sum(axis=0)
        mean = np.floor(total / np.maximum(weight, 1) + 0.5).astype(np.int64)
        return np.where(weight > 0, mean, 0)

    return score


def broken_line(points: Sequence[tuple[int, int]]) -> _Function:
    """The integer function through ``points`` (sorted by x), constant outside; divisions round towards zero, as
    Go's."""
    table = np.array([_on_line(points, x) for x in range(_MAX_UTILIZATION + 1)], dtype=np.int64)
    return lambda x: table[np.clip(x, 0, _MAX_UTILIZATION)]


def _on_line(points: Sequence[tuple[int, int]], x: int) -> int:
    for index, (right, score) in enumerate(points):
        if x <= right:
            if index == 0:
                return score
            left, before = points[index - 1]
            rise = (score - before) * (x - left)
            return before + (abs(rise) // (right - left)) * (1 if rise >= 0 else -1)
    return points[-1][1]


def _mean_share(parts: Any, fill: Fill) -> Ints:
    """The weighted mean of part × 100 / whole, over the resources that a node has. ``parts`` are overwritten."""
    if fill.complete:
        parts *= _HUNDRED
        parts /= fill.allocatable
        np.floor(parts, out=parts)
        # Costs half of the operator for few rows.
        total = fill.weights.dot(parts)
        total /= fill.total_weight or 1
        mean: Ints = total.astype(np.int64)
        return mean
    present = fill.allocatable > 0
    percent = np.where(present, parts, 0) * MAX_NODE_SCORE // np.maximum(fill.allocatable, 1)
    weights = fill.weights.astype(np.int64)
    counted: Ints = weights @ present
    sums: Ints = weights @ percent
    return sums // np.maximum(counted, 1)
