"""Selects one of the nodes that passed: the best, unless the pod is nominated to one or a plugin prefers some.

A node that pods of at least the same priority are nominated to is taken only if the pod fits beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from koordinator.scheduler.engine.class_state import INFEASIBLE
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.failed_attempt import Attempt
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.simulation import nominated_before


class RandomSource(Protocol):
    """The part of ``random.Random`` that the chooser uses."""

    def randrange(self, stop: int, /) -> int: ...


class Chooser:
    """``choose`` for one profile's engine."""

    def __init__(self, state: ClusterState, random: RandomSource) -> None:
        self._state = state
        self._random = random
        self.tied = 0
        """For the last chosen row: how many rows shared its total, itself included; 0 when it was not chosen for its
        total."""

    def choose(self, evaluation: Evaluation, pod: PodInfo, attempt: Attempt, preferred: Iterable[str]) -> int | None:
        """The chosen row; None if there is none, then ``attempt.nominated_to_others`` has the rows that are nominated
        to other pods."""
        view = self._state.view
        self.tied = 0
        nominated = "" if view.nominations.is_empty else view.nominations.node_of(pod.uid)
        for name in (nominated, *preferred):
            row = view.columns.row_of.get(name) if name else None
            if row is not None and evaluation.feasible[row] and self._has_capacity(pod, row, attempt):
                return row
        passed_over: dict[int, int] = {}
        try:
            while (best := evaluation.best()).size:
                tied = best.size
                row = best[self._random.randrange(tied)]
                if self._has_capacity(pod, row, attempt):
                    self.tied = tied
                    return row
                # The check may have restored the totals of rows that were passed over before.
                for other in (*passed_over, row):
                    if evaluation.totals[other] != INFEASIBLE:
                        passed_over[other] = evaluation.hide(other)
        finally:
            if passed_over:
                evaluation.show(passed_over.items())
        attempt.nominated_to_others = list(passed_over)
        return None

    def take(self, evaluation: Evaluation, pod: PodInfo, attempt: Attempt, name: str) -> int | None:
        """The row of the node ``name`` if the pod can go there, else None."""
        self.tied = 0
        row = self._state.view.columns.row_of.get(name)
        if row is None or not evaluation.feasible[row]:
            return None
        if self._has_capacity(pod, row, attempt):
            return row
        attempt.nominated_to_others = [row]
        return None

    def _has_capacity(self, pod: PodInfo, row: int, attempt: Attempt) -> bool:
        return not nominated_before(self._state.view, pod, row) or attempt.fits(row, ())
