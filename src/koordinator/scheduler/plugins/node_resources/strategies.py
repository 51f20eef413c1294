"""The scoring strategies of NodeResourcesFit, on integers exactly as upstream rounds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from koordinator.scheduler.engine.columns import Ints
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.plugins.node_resources.allocation import ResourceWeight, Scorer, ScorerOfOne

_Function = Callable[[Ints], Ints]

_MAX_SHAPE_SCORE: Final = 10
_MAX_UTILIZATION: Final = 100


class ShapePoint(Protocol):
    """A corner of the function from utilisation (0..100) to score (0..10)."""

    @property
    def utilization(self) -> int: ...
    @property
    def score(self) -> int: ...


class Shape(Protocol):
    @property
    def shape(self) -> Sequence[ShapePoint]: ...


class Strategy(Protocol):
    """The ``scoringStrategy`` of the plugin's arguments."""

    @property
    def type(self) -> str: ...
    @property
    def resources(self) -> Sequence[ResourceWeight]: ...
    @property
    def requested_to_capacity_ratio(self) -> Shape | None: ...


def scorer_of_one_for(strategy: Strategy) -> ScorerOfOne | None:
    """The scorer of a single node, for the default strategy."""
    return least_allocated_of_one if scorer_for(strategy) is least_allocated else None


def scorer_for(strategy: Strategy) -> Scorer:
    """The scorer of a validated strategy."""
    if strategy.type == "MostAllocated":
        return most_allocated
    if strategy.type == "RequestedToCapacityRatio" and strategy.requested_to_capacity_ratio is not None:
        return requested_to_capacity_ratio(strategy.requested_to_capacity_ratio.shape)
    return least_allocated


def least_allocated(requested: Sequence[Ints], allocatable: Sequence[Ints], weights: Sequence[int]) -> Ints:
    """More for emptier nodes; nothing for a resource that would be overcommitted."""
    free = [whole - used for used, whole in zip(requested, allocatable, strict=True)]
    for amounts in free:
        np.maximum(amounts, 0, out=amounts)
    return _mean_share(free, allocatable, weights)


def least_allocated_of_one(requested: Sequence[int], allocatable: Sequence[int], weights: Sequence[int]) -> int:
    """As least_allocated, for one node."""
    total = weight = 0
    for used, whole, factor in zip(requested, allocatable, weights, strict=True):
        if whole > 0:
            weight += factor
            total += max(whole - used, 0) * MAX_NODE_SCORE // whole * factor
    return total // weight if weight else 0


def most_allocated(requested: Sequence[Ints], allocatable: Sequence[Ints], weights: Sequence[int]) -> Ints:
    """More for fuller nodes; pods without requests, which count with defaults, may seem to overfill one."""
    used = [np.minimum(taken, whole) for taken, whole in zip(requested, allocatable, strict=True)]
    return _mean_share(used, allocatable, weights)


def requested_to_capacity_ratio(shape: Sequence[ShapePoint]) -> Scorer:
    """A broken line from utilisation to score; resources that score nothing do not count in the mean."""
    function = broken_line([(point.utilization, point.score * (MAX_NODE_SCORE // _MAX_SHAPE_SCORE)) for point in shape])

    def score(requested: Sequence[Ints], allocatable: Sequence[Ints], weights: Sequence[int]) -> Ints:
        total = weight = np.zeros(requested[0].shape[0], dtype=np.int64)
        for used, whole, factor in zip(requested, allocatable, weights, strict=True):
            utilization = used * _MAX_UTILIZATION // np.maximum(whole, 1)
            scores = function(np.where(used > whole, _MAX_UTILIZATION, utilization))
            counted = factor * ((whole > 0) & (scores > 0))
            total, weight = total + scores * counted, weight + counted
        mean = np.floor(total / np.maximum(weight, 1) + 0.5).astype(np.int64)
        return np.where(weight > 0, mean, 0)

    return score


def broken_line(points: Sequence[tuple[int, int]]) -> _Function:
    """The integer function through ``points`` (sorted by x), constant outside; divisions cut towards zero, as Go's."""
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


def _mean_share(parts: Sequence[Ints], wholes: Sequence[Ints], weights: Sequence[int]) -> Ints:
    """The weighted mean of part × 100 / whole, over the resources that a node has. ``parts`` are used up."""
    total: Ints = np.zeros(parts[0].shape[0], dtype=np.int64)
    weight: Ints | int = 0
    for part, whole, factor in zip(parts, wholes, weights, strict=True):
        if np.logical_and.reduce(whole):
            part *= MAX_NODE_SCORE
            part //= whole
            weight = weight + factor
        else:
            present = whole > 0
            part = np.where(present, part, 0) * MAX_NODE_SCORE // np.maximum(whole, 1)
            weight = weight + factor * present
        total += part if factor == 1 else part * factor
    if isinstance(weight, int):
        total //= max(weight, 1)
        return total
    return total // np.maximum(weight, 1)
