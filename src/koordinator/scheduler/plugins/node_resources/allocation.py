"""How full nodes would be with the pod on them, resource by resource, and the strategies of NodeResourcesFit that
score that, on integers exactly as upstream rounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.api import resource_names
from koordinator.scheduler.configuration.upstream_arguments import ResourceSpec, ScoringStrategy, UtilizationShapePoint
from koordinator.scheduler.engine.batch_kernel import BatchKernel, Slots
from koordinator.scheduler.engine.columns import EXACT_BELOW, Ints, NodeColumns, Rows, at
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.plugin_forms import SomeRows, weighted_sum, zeros
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import chosen_of

_OF_EVERY_NODE: Final = ("cpu", "memory", "ephemeral-storage")
"""What is scored for every pod. Other names without a prefix, such as ``pods``, do not count, as upstream."""


class Fill(NamedTuple):
    """Nodes as they would be with the pod on them. Matrices have the shape (resources, rows), or (resources, rows,
    kinds) for many kinds of pods."""

    requested: Any
    """Made for the caller, who may overwrite it."""
    allocatable: Any
    """To be read only; the same for all kinds."""
    weights: NDArray[np.float64]
    """One integer for each resource."""
    total_weight: int
    complete: bool
    """Whether every node has all the resources, and no amount is so large that percentages computed in floating point
    might be off: then both matrices hold floats. Otherwise they hold integers, and an allocatable of zero excludes the
    resource from that row's score."""


Item = tuple[Any, int, int]
"""A resource that counts: where the amounts have it, what the pod adds, and its weight."""
Amounts = Sequence[int] | Mapping[str, int]
"""Of one node, by column or by name."""


class Scorer(NamedTuple):
    """A strategy."""

    of_many: Callable[[Fill], Ints]
    """Returns a score for each row, or for each row and kind."""
    of_one: Callable[[Sequence[Item], Amounts, Amounts], int | None] = lambda items, requested, allocatable: None
    """Returns the same for a single node in plain integers, from the requested and the allocatable amounts there; None
    where it has no rule of its own for them."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the pod adds to the resources that are scored for it."""

    columns: tuple[int, ...]
    added: tuple[int, ...]
    with_defaults: bool
    """Whether requests with defaults count for CPU and memory instead of the plain ones."""
    items: tuple[Item, ...]
    """``columns`` with ``added`` and their integer weights."""
    added_to_rows: Ints
    """``added`` in the shape (resources, 1)."""
    chosen: Rows
    """Where ``RowAmounts`` have them."""
    float_weights: NDArray[np.float64]
    """The weights as an array: numpy multiplies matrices of floats far faster than of integers."""
    total_weight: int


class AllocationScorer:
    """Scores rows of nodes for the resources of a plugin's arguments."""

    def __init__(
        self,
        columns: NodeColumns,
        resources: Sequence[ResourceSpec],
        scorer: Scorer,
    ) -> None:
        self._columns = columns
        self._resources = [
            (each.name, each.weight) for each in resources if each.name in _OF_EVERY_NODE or is_scalar(each.name)
        ]
        self._of_many, self._of_one = scorer

    def prepare(self, pod: PodInfo, *, non_zero: bool) -> Allocation:
        """The resources that count for this pod: extended ones only if it requests them."""
        amounts, column_of = pod.request.amounts, self._columns.resources.column_of
        chosen = [(name, weight) for name, weight in self._resources if amounts.get(name, 0) > 0 or not is_scalar(name)]
        columns = tuple([column_of[name] for name, _ in chosen])
        if non_zero:
            amounts = with_defaults(pod)
        added = tuple([amounts.get(name, 0) for name, _ in chosen])
        weights = [weight for _, weight in chosen]
        return Allocation(
            columns=columns,
            added=added,
            with_defaults=non_zero,
            items=tuple(zip(columns, added, weights, strict=True)),
            added_to_rows=np.array(added, dtype=np.int64).reshape(-1, 1),
            chosen=chosen_of(columns, with_defaults=non_zero),
            float_weights=np.array(weights, dtype=np.float64),
            total_weight=sum(weights),
        )

    def score(self, allocation: Allocation, rows: SomeRows) -> Any:
        """The score of each of ``rows``."""
        if not isinstance(rows, int):
            return self._of_many(self._fill(allocation, rows)) if allocation.columns else zeros(rows)
        numbers = self._columns.numbers[rows]
        taken = numbers.counted if allocation.with_defaults else numbers.requested
        found = self._of_one(allocation.items, taken, numbers.allocatable)
        return self.score(allocation, np.array((rows,), dtype=np.intp)).item() if found is None else found

    def score_kinds(self, like: Allocation, added: Ints, rows: Rows) -> Ints:
        """Scores of shape (rows, kinds) for pods that add ``added`` (resources, kinds) to the resources that are scored
        for ``like``, with the same weights."""
        if not like.columns:
            return np.zeros((rows.shape[0], added.shape[1]), dtype=np.int64)
        return self._of_many(self._fill(like, rows, added))

    def _fill(self, like: Allocation, rows: Rows, of_kinds: Ints | None = None) -> Fill:
        columns = self._columns
        amounts = columns.amounts(rows)
        allocatable: Any = amounts.allocatable(like.chosen) if columns.largest_amount < EXACT_BELOW else None
        complete = allocatable is not None
        if complete:
            requested: Any = amounts.requested(like.chosen)
        else:
            defaulted = like.with_defaults
            taken = [at(columns.taken(column, with_defaults=defaulted), rows) for column in like.columns]
            requested = np.array(taken)
            allocatable = np.array([at(columns.allocatable[:, column], rows) for column in like.columns])
        if of_kinds is None:
            requested += like.added_to_rows
        else:
            requested = requested[:, :, np.newaxis] + of_kinds[:, np.newaxis, :]
            allocatable = allocatable[:, :, np.newaxis]
        return Fill(requested, allocatable, like.float_weights, like.total_weight, complete)


def with_defaults(pod: PodInfo) -> Mapping[str, int]:
    """The pod's requests, those for CPU and memory with defaults."""
    cpu, memory = pod.request.non_zero
    return {**pod.request.amounts, resource_names.CPU: cpu, resource_names.MEMORY: memory}


def is_scalar(name: str) -> bool:
    """Extended resources, huge pages and attachable volumes: those that only some nodes have."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


@dataclass(slots=True)
class _Kinds:
    """Those for which the same resources are scored, with the weights of ``like``."""

    like: Allocation
    members: Slots
    """The slot of each among all kinds, and what it adds."""


class BatchAllocation(BatchKernel):
    """Scores all kinds together for which the same resources are scored."""

    def __init__(self, scorer: AllocationScorer) -> None:
        self._scorer = scorer
        self._by_columns: dict[tuple[int, ...], _Kinds] = {}
        self._count = 0

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        allocation: Allocation = state
        kinds = self._by_columns.get(allocation.columns)
        if kinds is None:
            added = np.zeros((len(allocation.columns), 0), dtype=np.int64)
            members = Slots(slot=np.zeros(0, dtype=np.intp), added=added)
            kinds = self._by_columns[allocation.columns] = _Kinds(allocation, members)
        kinds.members.put(slot=slot, added=allocation.added)
        self._count += 1

    def evaluate(self, rows: Rows) -> Ints:
        found = [
            (kinds.members["slot"], self._scorer.score_kinds(kinds.like, kinds.members["added"], rows))
            for kinds in self._by_columns.values()
        ]
        if len(found) == 1:
            return found[0][1]
        scores = np.empty((rows.shape[0], self._count), dtype=np.int64)
        for slots, of_kinds in found:
            scores[:, slots] = of_kinds
        return scores


_Function = Callable[[Ints], Ints]
Number = TypeVar("Number", bound=np.generic)

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
        counted = _of_shape(fill.weights.astype(np.int64), scores) * ((whole > 0) & (scores > 0))
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


def _of_shape(weights: NDArray[Number], like: NDArray[Any]) -> NDArray[Number]:
    """The weights along the first axis of an array like this."""
    return weights.reshape(-1, *[1] * (like.ndim - 1))


def _mean_share(parts: Any, fill: Fill) -> Ints:
    """The weighted mean of part × 100 / whole, over the resources that a node has. ``parts`` are overwritten."""
    if fill.complete:
        parts *= _HUNDRED
        parts /= fill.allocatable
        np.floor(parts, out=parts)
        total = weighted_sum(fill.weights, parts)
        total /= fill.total_weight or 1
        mean: Ints = total.astype(np.int64)
        return mean
    present = fill.allocatable > 0
    percent = np.where(present, parts, 0) * MAX_NODE_SCORE // np.maximum(fill.allocatable, 1)
    weights = _of_shape(fill.weights.astype(np.int64), percent)
    counted: Ints = (weights * present).sum(axis=0)
    sums: Ints = (weights * percent).sum(axis=0)
    return sums // np.maximum(counted, 1)
