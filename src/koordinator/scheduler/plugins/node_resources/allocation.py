"""How full nodes would be with the pod on them, resource by resource: the input of the resource scorers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from koordinator.api import resource_names
from koordinator.scheduler.engine.batch_kernel import BatchKernel, Slots
from koordinator.scheduler.engine.columns import EXACT_BELOW, Ints, NodeColumns, Rows, at
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.resource_index import CPU, MEMORY
from koordinator.scheduler.engine.row_amounts import Floats

CPU_AND_MEMORY: Final = (CPU, MEMORY)
"""What is scored for most pods; also the columns of ``non_zero_requested``."""
_OF_EVERY_NODE: Final = ("cpu", "memory", "ephemeral-storage")
"""What is scored for every pod. Other names without a prefix, such as ``pods``, do not count, as upstream."""


class Fill(NamedTuple):
    """Nodes as they would be with the pod on them. Matrices have the shape (resources, rows)."""

    requested: Any
    """Made for the caller, who may overwrite it."""
    allocatable: Any
    """To be read only."""
    weights: NDArray[np.float64]
    """One integer for each resource."""
    total_weight: int
    complete: bool
    """Whether every node has all the resources, and no amount is so large that percentages computed in floating point
    might be off: then both matrices hold floats. Otherwise they hold integers, and an allocatable of zero excludes the
    resource from that row's score."""


Scorer = Callable[[Fill], Ints]
"""Returns a score for each row."""


ScorerOfOne = Callable[[Sequence[int], Sequence[int], "Allocation"], int | None]
"""Returns the same for a single node in plain integers, from the requested and allocatable amounts there of each
resource; None if it does not handle the case."""


class ResourceWeight(Protocol):
    """A resource to score, with its weight."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the pod adds to the resources that are scored for it."""

    columns: tuple[int, ...]
    added: tuple[int, ...]
    with_defaults: bool
    """Whether requests with defaults count for CPU and memory instead of the plain ones."""
    items: tuple[tuple[int, int, int], ...]
    """``columns`` with ``added`` and their integer weights."""
    added_to_rows: NDArray[np.float64]
    """``added`` in the shape (resources, 1)."""
    float_weights: NDArray[np.float64]
    """The weights as an array: numpy multiplies matrices of floats far faster than of integers."""
    total_weight: int


class AllocationScorer:
    """Scores rows of nodes for the resources of a plugin's arguments."""

    def __init__(
        self,
        columns: NodeColumns,
        resources: Sequence[ResourceWeight],
        scorer: Scorer,
        scorer_of_one: ScorerOfOne | None = None,
    ) -> None:
        self._columns = columns
        self._resources = [
            (each.name, each.weight) for each in resources if each.name in _OF_EVERY_NODE or is_scalar(each.name)
        ]
        self._scorer = scorer
        self._scorer_of_one = scorer_of_one

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
            added_to_rows=np.array(added, dtype=np.float64).reshape(-1, 1),
            float_weights=np.array(weights, dtype=np.float64),
            total_weight=sum(weights),
        )

    def score(self, allocation: Allocation, rows: Rows) -> Ints:
        """One score for each of ``rows``."""
        if not allocation.columns:
            return np.zeros(rows.shape[0], dtype=np.int64)
        return self._scorer(self._fill(allocation, rows))

    def score_many(self, like: Allocation, added: Floats, rows: Rows) -> Ints | None:
        """Scores of shape (rows, kinds) for pods that add ``added`` (2, kinds) to CPU and memory, which are scored for
        ``like``, with the same weights. None where each kind has to be scored by itself."""
        columns, kinds = self._columns, added.shape[1]
        amounts = columns.amounts(rows)
        if columns.largest_amount >= EXACT_BELOW or not amounts.have_cpu_and_memory:
            return None
        taken = amounts.non_zero_requested if like.with_defaults else amounts.requested
        # As if each row were there once for each kind.
        requested = (taken[:, :, np.newaxis] + added[:, np.newaxis, :]).reshape(len(CPU_AND_MEMORY), -1)
        allocatable = amounts.allocatable.repeat(kinds, axis=1)
        scores = self._scorer(Fill(requested, allocatable, like.float_weights, like.total_weight, True))
        return scores.reshape(rows.shape[0], kinds)

    def _fill(self, allocation: Allocation, rows: Rows) -> Fill:
        columns = self._columns
        if allocation.columns == CPU_AND_MEMORY and columns.largest_amount < EXACT_BELOW:
            amounts = columns.amounts(rows)
            if amounts.have_cpu_and_memory:
                requested = amounts.non_zero_requested if allocation.with_defaults else amounts.requested
                requested = requested + allocation.added_to_rows
                return Fill(requested, amounts.allocatable, allocation.float_weights, allocation.total_weight, True)
        defaulted = CPU_AND_MEMORY if allocation.with_defaults else ()
        taken = [
            at((columns.non_zero_requested if column in defaulted else columns.requested)[:, column], rows) + added
            for column, added, _ in allocation.items
        ]
        allocatable = [at(columns.allocatable[:, column], rows) for column in allocation.columns]
        weights, total_weight = allocation.float_weights, allocation.total_weight
        return Fill(np.stack(taken), np.stack(allocatable), weights, total_weight, False)

    def score_one(self, allocation: Allocation, row: int) -> int:
        """The score of a single row."""
        if self._scorer_of_one is not None and allocation.columns:
            numbers = self._columns.numbers[row]
            taken = numbers.counted if allocation.with_defaults else numbers.requested
            score = self._scorer_of_one(taken, numbers.allocatable, allocation)
            if score is not None:
                return score
        return int(self.score(allocation, np.array((row,), dtype=np.intp))[0])


def with_defaults(pod: PodInfo) -> Mapping[str, int]:
    """The pod's requests, those for CPU and memory with defaults."""
    cpu, memory = pod.request.non_zero
    return {**pod.request.amounts, resource_names.CPU: cpu, resource_names.MEMORY: memory}


def is_scalar(name: str) -> bool:
    """Extended resources, huge pages and attachable volumes: those that only some nodes have."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


class BatchAllocation(BatchKernel):
    """Scores all kinds for which CPU and memory are scored together, others one after the other."""

    def __init__(self, scorer: AllocationScorer) -> None:
        self._scorer = scorer
        self._kinds: list[Allocation] = []
        self._usual: Allocation | None = None
        """The allocation of one of the kinds for which CPU and memory are scored: all these have the same weights."""
        self._others: list[int] = []
        """The slots of the other kinds."""
        self._added = Slots(added=np.zeros((len(CPU_AND_MEMORY), 0)))

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        allocation: Allocation = state
        self._kinds.append(allocation)
        if allocation.columns == CPU_AND_MEMORY:
            self._usual = allocation
            self._added.put(added=allocation.added)
        else:
            self._others.append(slot)
            self._added.put(added=0)

    def evaluate(self, rows: Rows) -> Ints:
        scores = self._scorer.score_many(self._usual, self._added["added"], rows) if self._usual is not None else None
        if scores is None:
            return np.stack([self._scorer.score(allocation, rows) for allocation in self._kinds], axis=1)
        for slot in self._others:
            scores[:, slot] = self._scorer.score(self._kinds[slot], rows)
        return scores
