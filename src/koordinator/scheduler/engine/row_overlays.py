"""Nodes that one class of pods sees adjusted: those where a reservation holds something for its pods.

Filter results and scores are shared by all classes; for the few rows that transformers adjust for a class, the class
keeps codes and scores of its own, in place of the shared ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.scheduler.engine.cached_results import CachedFilterResults, CachedScores
from koordinator.scheduler.engine.columns import NodeColumns, Rows
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.framework_hooks import FilterTransformer, ScoreTransformer
from koordinator.scheduler.engine.journal import Adjustment, Journal
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OverlaidNode:
    """Filter and Score results for a row as the class sees it."""

    codes: tuple[int, ...]
    """In the order of the class's filters."""
    scores: tuple[int, ...]
    """Weighted; the input of ``normalize`` where the plugin has one."""


class RowOverlays:
    """The transformers' adjustments of rows for the class of ``pod``; falsy where no transformer applies to it."""

    def __init__(self, profile: Profile, pod: PodInfo) -> None:
        self._pod = pod
        self._before_filter: list[FilterTransformer] = [
            each for each in profile.filter_transformers if each.transforms(pod)
        ]
        self._before_score: list[ScoreTransformer] = [
            each for each in profile.score_transformers if each.transforms(pod)
        ]

    def __bool__(self) -> bool:
        return bool(self._before_filter or self._before_score)

    def rows(
        self, rows: Rows, filters: Sequence[CachedFilterResults], scores: Sequence[CachedScores]
    ) -> dict[int, OverlaidNode]:
        """Those of ``rows`` that transformers adjust for the class, with their results."""
        for_filters = [self._of_filter(each, rows) for each in self._before_filter]
        for_scores = [self._of_score(each, rows) for each in self._before_score]
        adjusted = {row for adjustments in (*for_filters, *for_scores) for row in adjustments}
        found: dict[int, OverlaidNode] = {}
        for row in sorted(adjusted):
            own_filters = [each[row] for each in for_filters if row in each]
            own_scores = [each[row] for each in for_scores if row in each]
            found[row] = self._evaluate(row, own_filters, own_scores, filters, scores)
        return found

    def show(self, journal: Journal, rows: Rows) -> None:
        """Apply the adjustments of ``rows`` that Filter plugins see for this class."""
        for transformer in self._before_filter:
            for row, adjustment in self._of_filter(transformer, rows).items():
                journal.adjust(row, adjustment)

    def evaluate(self, row: int, compute: Callable[[], T]) -> T:
        """The result of ``compute``, called while ``row`` is as Filter plugins see it for this class."""
        if not self._before_filter:
            return compute()
        with self._before_filter[0].view.simulate() as journal:
            self.show(journal, np.array((row,), dtype=np.intp))
            return compute()

    def _evaluate(
        self,
        row: int,
        for_filters: Iterable[Adjustment],
        for_scores: Iterable[Adjustment],
        filters: Sequence[CachedFilterResults],
        scores: Sequence[CachedScores],
    ) -> OverlaidNode:
        first = (*self._before_filter, *self._before_score)[0]
        with first.view.simulate() as journal:
            for adjustment in for_filters:
                journal.adjust(row, adjustment)
            journal.inform([entry for entry in filters if entry.is_cross_node])
            # The class's own pod: the plugin treats it like the one that results are shared with, but its Reservations
            # are its own.
            codes = tuple([entry.plugin.filter_one(self._pod, entry.state, row) for entry in filters])
            for adjustment in for_scores:
                journal.adjust(row, adjustment)
            return OverlaidNode(codes, tuple([score.score_of(self._pod, row) for score in scores]))

    def _of_filter(self, transformer: FilterTransformer, rows: Rows) -> Mapping[int, Adjustment]:
        return _checked(transformer.view.columns, transformer.before_filter(self._pod, rows), transformer.name)

    def _of_score(self, transformer: ScoreTransformer, rows: Rows) -> Mapping[int, Adjustment]:
        return _checked(transformer.view.columns, transformer.before_score(self._pod, rows), transformer.name)


def _checked(columns: NodeColumns, adjustments: Mapping[int, Adjustment], plugin: str) -> Mapping[int, Adjustment]:
    """Return the ``adjustments`` of a plugin if they can be made; raises PluginError otherwise. An error that showed
    only in the middle of one would leave the columns half changed for all decisions."""
    for row, adjustment in adjustments.items():
        amounts = adjustment.amounts
        if not 0 <= row < columns.size:
            raise PluginError(f"plugin {plugin} adjusts row {row}, which does not exist: there are {columns.size} rows")
        for name, amount in (*amounts.items(), *zip((CPU, MEMORY), adjustment.non_zero, strict=True)):
            if not isinstance(name, str) or not isinstance(amount, int):
                raise PluginError(
                    f"plugin {plugin} adjusts the resource {name!r} of row {row} by {amount!r}: "
                    "allowed are names of resources and whole numbers"
                )
        for pod in (*adjustment.removed, *adjustment.added):
            if not isinstance(pod, PodInfo):
                raise PluginError(f"plugin {plugin} adjusts the pods of row {row} by {pod!r}: expected is a PodInfo")
    return adjustments
