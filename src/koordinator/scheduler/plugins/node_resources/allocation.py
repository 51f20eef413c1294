"""How full nodes would be with the pod on them, resource by resource: what the resource scorers start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from koordinator.scheduler.engine.columns import CPU, MEMORY, Ints, NodeColumns, Rows, at
from koordinator.scheduler.engine.pod_info import PodInfo

_WITH_DEFAULTS: Final = (CPU, MEMORY)
"""The columns of ``non_zero_requested``."""
_OF_EVERY_NODE: Final = ("cpu", "memory", "ephemeral-storage")
"""What is scored for every pod. Other names without a prefix, such as ``pods``, count for nothing, as upstream."""

Scorer = Callable[[Sequence[Ints], Sequence[Ints], Sequence[int]], Ints]
"""(requested, allocatable, weights) -> scores. One array of shape (rows,) for each resource, the same, one weight for
each. An allocatable of zero leaves the resource out of that row's score."""


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

    columns: tuple[int, ...]
    added: tuple[int, ...]
    weights: tuple[int, ...]
    with_defaults: bool
    """Of CPU and memory, requests with defaults count instead of the plain ones."""
    pairs: tuple[tuple[int, int], ...]
    """``columns`` with ``added``."""


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
            (columns.resources.column(each.name), each.name, each.weight)
            for each in resources
            if each.name in _OF_EVERY_NODE or is_scalar(each.name)
        ]
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
        defaulted = _WITH_DEFAULTS if non_zero else ()
        added = [
            pod.request.non_zero[column] if column in defaulted else amounts.get(column, 0) for column, _ in chosen
        ]
        chosen_columns = tuple(column for column, _ in chosen)
        return Allocation(
            columns=chosen_columns,
            added=tuple(added),
            weights=tuple(weight for _, weight in chosen),
            with_defaults=non_zero,
            pairs=tuple(zip(chosen_columns, added, strict=True)),
        )

    def score(self, allocation: Allocation, rows: Rows) -> Ints:
        """One score for each of ``rows``."""
        if not allocation.columns:
            return np.zeros(rows.shape[0], dtype=np.int64)
        columns, defaulted = self._columns, _WITH_DEFAULTS if allocation.with_defaults else ()
        requested = [
            at((columns.non_zero_requested if column in defaulted else columns.requested)[:, column], rows) + added
            for column, added in allocation.pairs
        ]
        allocatable = [at(columns.allocatable[:, column], rows) for column in allocation.columns]
        return self._scorer(requested, allocatable, allocation.weights)

    def score_one(self, allocation: Allocation, row: int) -> int:
        """The score of a single row."""
        columns, chosen = self._columns, allocation.columns
        if self._scorer_of_one is not None and chosen:
            used, whole = columns.requested[row].tolist(), columns.allocatable[row].tolist()
            if allocation.with_defaults:
                # CPU and memory are the first two columns of both.
                used[:2] = columns.non_zero_requested[row].tolist()
            requested = [used[column] + more for column, more in allocation.pairs]
            score = self._scorer_of_one(requested, [whole[column] for column in chosen], allocation.weights)
            if score is not None:
                return score
        return int(self.score(allocation, np.array((row,), dtype=np.intp))[0])


def is_scalar(name: str) -> bool:
    """Extended resources, huge pages and attachable volumes: what a node has only if it says so."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
