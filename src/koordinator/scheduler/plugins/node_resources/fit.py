"""NodeResourcesFit: filters nodes with enough of everything that the pod requests, and scores how full nodes are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api import resource_names
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.columns import Aspect, Ints, NodeColumns, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import FEASIBLE, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.plugin_forms import (
    ElementwiseFilterPlugin,
    ElementwiseScorePlugin,
    SomeRows,
    of_rows,
    zeros,
)
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.engine.row_amounts import PODS, UNOFFERED
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack, amount_text
from koordinator.scheduler.plugins.node_resources.allocation import AllocationScorer, BatchAllocation, scorer_for

_NOT_WANTED: Final = int(np.iinfo(np.int64).min)
"""Never missing, even where a node is overcommitted."""


class BatchFit(BatchKernel):
    """Compares all kinds together with what is free: mostly the largest requests fit, and so do all. What is missing
    is determined for each kind by itself."""

    def __init__(self, columns: NodeColumns, code: Callable[[PodInfo, Any, int], int]) -> None:
        """``code`` returns the reason code of an infeasible row."""
        self._columns = columns
        self._code = code
        self._kinds: list[tuple[PodInfo, Any]] = []
        self._wanted: Ints = np.zeros((0, 0), dtype=np.int64)
        """(resources, kinds), with spare capacity."""
        self._largest: Ints = np.zeros((0, 1), dtype=np.int64)
        """(resources, 1): of all kinds."""

    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        self._kinds.append((pod, state))
        width, capacity = self._wanted.shape
        if self._columns.resources.width > width or slot >= capacity:
            larger = np.full((self._columns.resources.width, max(2 * slot, 16)), _NOT_WANTED)
            larger[:width, :capacity] = self._wanted
            self._wanted = larger
        for column, amount in state.pairs:
            self._wanted[column, slot] = amount
        self._largest = self._wanted.max(axis=1, keepdims=True)

    def evaluate(self, rows: Rows) -> Ints | None:
        free = self._columns.amounts(rows).free[: self._largest.shape[0]]
        scarce = free < self._largest
        if not np.count_nonzero(scarce):
            return None
        codes = np.zeros((rows.shape[0], len(self._kinds)), dtype=np.int64)
        wanted, few = self._wanted[:, : len(self._kinds)], np.flatnonzero(scarce.any(axis=0))
        # There are more kinds than rows, and numpy is quick along the last axis.
        short = (free[:, few, np.newaxis] < wanted[:, np.newaxis, :]).any(axis=0)
        for index, slot in np.argwhere(short).tolist():
            codes[few[index], slot] = self._code(*self._kinds[slot], rows.item(few[index]))
        return codes


_UNRESOLVABLE: Final = 1
_FIRST_BIT: Final = 1
_MOST: Final = int(np.iinfo(np.int64).max)
_FULL: Final = "pods: the node has as many as it may have"


@dataclass(frozen=True, slots=True)
class _Wanted:
    pairs: tuple[tuple[int, int], ...]
    """Columns with amounts; the first is the pod itself, and the last is UNOFFERED if the pod requests anything that no
    node offers."""
    resources: Sequence[Sequence[tuple[str, int]]]
    """For each of ``pairs``, the names and amounts: several for UNOFFERED, of which no amount is ever free."""
    columns: tuple[int, ...]
    """Those of ``pairs``."""
    amounts: tuple[int, ...]


class NodeResourcesFit(PreFilterPlugin, ElementwiseFilterPlugin, ElementwiseScorePlugin, Explainer):
    """Codes are bit masks: bit 0 when the node could never hold the pod, then one bit for each requested resource; one
    for all that no node offers."""

    name = "NodeResourcesFit"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)
    monotone = from_columns = True
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._scorer = AllocationScorer(view.columns, strategy.resources, scorer_for(strategy))

    def class_key(self, pod: PodInfo) -> Hashable:
        return resources_key(pod)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        column_of = self.view.columns.resources.column_of
        # Upstream names missing resources in this order: pods, cpu, memory, ephemeral-storage, then the others.
        named = sorted(
            [
                (column_of[name], name, amount)
                for name, amount in pod.request.amounts.items()
                if name != resource_names.PODS and not (is_extended(name) and self._is_ignored(name))
            ]
        )
        offered = [each for each in named if each[0] != UNOFFERED]
        unoffered = [(name, amount) for column, name, amount in named if column == UNOFFERED and amount > 0]
        # A pod may request more than a node can report.
        wanted = {PODS: 1} | {column: min(amount, _MOST) for column, _, amount in offered}
        resources = [[(resource_names.PODS, 1)], *[[(name, amount)] for _, name, amount in offered]]
        if unoffered:
            wanted[UNOFFERED] = 1
            resources.append(unoffered)
        return PreFilterResult(_Wanted(tuple(wanted.items()), resources, tuple(wanted), tuple(wanted.values())))

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        columns = self.view.columns
        free: Any
        if is_one := isinstance(rows, int):
            numbers = columns.numbers[rows]
            free, code = numbers.unused, FEASIBLE
            if not any(map(lt, map(free.__getitem__, state.columns), state.amounts)):
                return code
        else:
            free, code = columns.amounts(rows).free, zeros(rows)
        for index, (column, amount) in enumerate(state.pairs, _FIRST_BIT):
            short = free[column] < amount
            if short if is_one else np.count_nonzero(short):
                code |= short << index
                if column != PODS:
                    # The number of pods never makes a node unresolvable.
                    whole = numbers.allocatable[column] if is_one else of_rows(columns.allocatable[:, column], rows)
                    code |= short & (whole < amount)
        return code

    def batch_filter(self) -> BatchKernel:
        return BatchFit(self.view.columns, self.filter_one)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        unresolvable = bool(code & _UNRESOLVABLE)
        return tuple(
            Reason("Too many pods" if name == resource_names.PODS else f"Insufficient {name}", unresolvable)
            for name, _ in _missing(state, code)
        )

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        numbers, found = self.view.columns.numbers[row], []
        for name, amount in _missing(state, code):
            free, whole = numbers.free(name), numbers.offered(name)
            text = _lack(name, amount, free, whole) if name != resource_names.PODS else _FULL
            found.append(Lack(text, (amount - free) / amount))
        return found

    def pre_score(self, pod: PodInfo) -> Any:
        return self._scorer.prepare(pod, non_zero=True)

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._scorer.score(state, rows)

    def batch_score(self) -> BatchKernel:
        return BatchAllocation(self._scorer)

    def events_to_register(self) -> frozenset[str]:
        return frozenset(
            {EventKind.NODE_ADD, EventKind.NODE_ALLOCATABLE, EventKind.POD_DELETE, EventKind.POD_SCALE_DOWN}
        )

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the node that the event is about has enough of everything now."""
        row = self.view.columns.row_of.get(event.node_name)
        return row is None or not self.filter_one(pod, self.pre_filter(pod).state, row)

    def _is_ignored(self, name: str) -> bool:
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups


def _missing(state: _Wanted, code: int) -> list[tuple[str, int]]:
    """The resources that are missing by ``code``, with the amounts that the pod requests."""
    return [each for index, found in enumerate(state.resources, _FIRST_BIT) if code >> index & 1 for each in found]


def is_extended(name: str) -> bool:
    """Whether the resource is not one of Kubernetes' own; only such resources can be ignored."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _lack(name: str, amount: int, free: int, whole: int) -> str:
    text = f"{name}: short by {amount_text(name, amount - free)} (needs {amount_text(name, amount)}, free "
    text += amount_text(name, free)
    return f"{text}; the node has {amount_text(name, whole)} in all)" if amount > whole else f"{text})"
