"""Adapters for plugins whose result for one node depends on others: their state of a class of pods covers all nodes,
and computes the results."""

from __future__ import annotations

from typing import Any, Protocol

from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.plugin_forms import ElementwiseFilterPlugin, RankingScorePlugin, SomeRows
from koordinator.scheduler.engine.pod_info import PodInfo


class FilterCodes(Protocol):
    """Filter results of all rows for one class of pods. See ElementwiseFilterPlugin for the methods."""

    def codes(self, rows: SomeRows) -> Any: ...

    def apply_delta(self, rows: Rows) -> Rows | None: ...


class Scores(Protocol):
    """Scores of all rows for one class of pods. See RankingScorePlugin for the methods."""

    def apply_delta(self, rows: Rows) -> bool: ...

    def scores(self, feasible: Mask) -> Ints: ...


class CrossNodeFilterState(ElementwiseFilterPlugin):
    """A Filter plugin whose PreFilter returns FilterCodes as state."""

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        filter_results: FilterCodes = state
        return filter_results.codes(rows)

    def apply_delta(self, pod: PodInfo, state: Any, rows: Rows) -> Rows | None:
        filter_results: FilterCodes = state
        return filter_results.apply_delta(rows)


class CrossNodeScoreState(RankingScorePlugin):
    """A Score plugin whose PreScore returns Scores as state. All final scores depend on which rows are feasible."""

    def apply_score_delta(self, pod: PodInfo, state: Any, rows: Rows) -> bool:
        scores: Scores = state
        return scores.apply_delta(rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        scores: Scores = state
        return scores.scores(feasible)
