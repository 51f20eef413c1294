"""Plugins whose verdict on one node depends on others: the state of a class of pods knows all nodes, and is asked."""

from __future__ import annotations

from typing import Any, Protocol

from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.framework import FilterPlugin, ScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo


class Verdicts(Protocol):
    """What Filter knows of all rows for one class of pods. See FilterPlugin for what the methods give."""

    def codes(self, rows: Rows) -> Ints: ...

    def code(self, row: int) -> int: ...

    def follow(self, rows: Rows) -> Rows | None: ...


class Scores(Protocol):
    """What Score knows of them. See ScorePlugin."""

    def follow(self, rows: Rows) -> bool: ...

    def scores(self, feasible: Mask) -> Ints: ...


class FollowedFilter(FilterPlugin):
    """PreFilter answers with Verdicts."""

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        verdicts: Verdicts = state
        return verdicts.codes(rows)

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        verdicts: Verdicts = state
        return verdicts.code(row)

    def follow(self, pod: PodInfo, state: Any, rows: Rows) -> Rows | None:
        verdicts: Verdicts = state
        return verdicts.follow(rows)


class FollowedScore(ScorePlugin):
    """PreScore answers with Scores. All final scores depend on which rows are feasible."""

    def follow_score(self, pod: PodInfo, state: Any, rows: Rows) -> bool:
        scores: Scores = state
        return scores.follow(rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        scores: Scores = state
        return scores.scores(feasible)
