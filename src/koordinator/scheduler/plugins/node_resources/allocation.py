"""How full nodes would be with the pod on them, resource by resource: what the resource scorers start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import CPU, MEMORY, Ints, NodeColumns, Rows
from koordinator.scheduler.engine.pod_info import PodInfo

Scorer = Callable[[Ints, Ints, Ints], Ints]
"""(requested, allocatable, weights) -> scores. Shapes (rows, resources), the same, (resources,). An allocatable of
zero leaves the resource out of that row's score."""


ScorerOfOne = Callable[[Sequence[int], Sequence[int], Sequence[int]], int | None]
"""The same for a single node in plain integers; None where it has no answer of its own."""


class ResourceWeight(Protocol):
    """A resource to score, and how much it counts."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the pod adds to the resources that are scored for it."""

    columns: Rows
    added: Ints
    weights: Ints
    chosen: tuple[int, ...]
    """``columns``, and below ``added`` and ``weights``, as plain integers."""
    amounts: tuple[int, ...]
    factors: tuple[int, ...]
    non_zero: tuple[tuple[int, int], ...]
    """(position, column of non_zero_requested): where the requests with defaults count instead of the plain ones."""


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
        self._resources = [(columns.resources.column(each.name), each.name, each.weight) for each in resources]
        self._scorer = scorer
        self._scorer_of_one = scorer_of_one

    def prepare(self, pod: PodInfo, *, non_zero: bool) -> Allocation:
        """The resources that count for this pod: extended ones only if it requests them."""
        self._columns.fit_resources()
        amounts = pod.request.amounts
        chosen = [
            (column, weight)
            for column, name, weight in self._resources
            if amounts.get(column, 0) > 0 or not is_scalar(name)
        ]
        with_defaults = (CPU, MEMORY) if non_zero else ()
        added = [
            pod.request.non_zero[column] if column in with_defaults else amounts.get(column, 0) for column, _ in chosen
        ]
        return Allocation(
            columns=np.array([column for column, _ in chosen], dtype=np.intp),
            added=np.array(added, dtype=np.int64),
            weights=np.array([weight for _, weight in chosen], dtype=np.int64),
            chosen=tuple(column for column, _ in chosen),
            amounts=tuple(added),
            factors=tuple(weight for _, weight in chosen),
            non_zero=tuple((index, column) for index, (column, _) in enumerate(chosen) if column in with_defaults),
        )

    def score(self, allocation: Allocation, rows: Rows) -> Ints:
        """One score for each of ``rows``."""
        if not allocation.columns.shape[0]:
            return np.zeros(rows.shape[0], dtype=np.int64)
        columns = self._columns
        cells = (rows[:, np.newaxis], allocation.columns)
        requested: NDArray[np.int64] = columns.requested[cells]
        for index, column in allocation.non_zero:
            requested[:, index] = columns.non_zero_requested[rows, column]
        requested += allocation.added
        return self._scorer(requested, columns.allocatable[cells], allocation.weights)

    def score_one(self, allocation: Allocation, row: int) -> int:
        """The score of a single row."""
        columns, chosen = self._columns, allocation.chosen
        if self._scorer_of_one is not None and chosen:
            all_requested, all_allocatable = columns.requested[row].tolist(), columns.allocatable[row].tolist()
            requested = [all_requested[column] for column in chosen]
            for index, column in allocation.non_zero:
                requested[index] = columns.non_zero_requested[row, column].item()
            requested = [amount + more for amount, more in zip(requested, allocation.amounts, strict=True)]
            allocatable = [all_allocatable[column] for column in chosen]
            score = self._scorer_of_one(requested, allocatable, allocation.factors)
            if score is not None:
                return score
        return int(self.score(allocation, np.array((row,), dtype=np.intp))[0])


def is_scalar(name: str) -> bool:
    """Extended resources, huge pages and attachable volumes: what a node has only if it says so."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
