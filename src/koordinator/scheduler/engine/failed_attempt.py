"""An attempt for which no node passed, as PostFilter plugins see it: why, and what would be if pods were not there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import numpy as np

from koordinator.scheduler.engine.adjustment import adjusted, difference, shift
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.findings import FilterFindings
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.row_memory import RowMemory
from koordinator.scheduler.engine.verdicts import Failure

T = TypeVar("T")


class Attempt:
    """Implements FailedAttempt for one pod and the evaluation of its class."""

    def __init__(
        self,
        state: ClusterState,
        evaluation: Evaluation,
        pod: PodInfo,
        memory: RowMemory,
        check_time: Callable[[], None] = lambda: None,
    ) -> None:
        """``check_time`` raises when the decision has taken too long: to look for room on thousands of nodes may."""
        self.kept_for_others: list[int] = []
        """The rows where the pod would fit if nobody had been promised room there."""
        self.only: str | None = None
        """The only node that was looked at, if a plugin had settled on one."""
        self._state = state
        self._evaluation = evaluation
        self._pod = pod
        self._memory = memory
        self._check_time = check_time

    @cached_property
    def statuses(self) -> Sequence[NodeStatus]:
        """See FailedAttempt."""
        plan, rows_of = self._evaluation.plan, self._state.view.columns.row_of
        if plan.rejection is not None:
            plugin, reason = plan.rejection
            return (NodeStatus(plugin, (reason,), np.array(list(rows_of.values()), dtype=np.intp)),)
        if self.only is not None:
            row = rows_of.get(self.only)
            failure = self._evaluation.failure_of(row) if row is not None else None
            return (self._status([failure]),) if failure is not None else ()
        found = [*self._evaluation.failures(), *map(self._when_promises_are_kept, self.kept_for_others)]
        grouped: dict[tuple[str, int], list[Failure]] = {}
        for failure in found:
            grouped.setdefault((failure.plugin.name, failure.code), []).append(failure)
        return tuple(self._status(members) for members in grouped.values())

    def _status(self, members: Sequence[Failure]) -> NodeStatus:
        first = members[0]
        reasons = tuple(first.plugin.reasons(self._pod, first.state, first.code))
        return NodeStatus(first.plugin.name, reasons, np.concatenate([each.rows for each in members]))

    def _when_promises_are_kept(self, row: int) -> Failure:
        failure = self._failure(row, (), nominated_before(self._state, self._pod, row))
        assert failure is not None
        return failure

    def fits(self, row: int, without: Sequence[PodInfo]) -> bool:
        """See FailedAttempt."""
        self._check_time()
        added = nominated_before(self._state, self._pod, row)
        questions = self._evaluation.open_questions(row, added=bool(added))
        if questions is None:
            return False
        if all(entry.plugin.from_columns for entry in questions):
            with adjusted(self._state.view.columns, {row: difference(without, added)}):
                return self._passes(questions, row)
        return self._tried(row, without, added)

    def least(self, row: int, candidates: Sequence[PodInfo]) -> list[PodInfo] | None:
        """See FailedAttempt."""
        self._check_time()
        added = nominated_before(self._state, self._pod, row)
        questions = self._evaluation.open_questions(row, added=bool(added))
        if questions is None:
            return None
        if all(entry.plugin.from_columns for entry in questions):
            return self._least_by_columns(row, candidates, added, questions)
        gone = list(candidates)
        if not self._tried(row, gone, added):
            return None
        for pod in candidates:
            without = [other for other in gone if other is not pod]
            if self._tried(row, without, added):
                gone = without
        return gone

    def reasons(self, row: int, without: Sequence[PodInfo]) -> Sequence[Reason]:
        """See FailedAttempt."""
        self._check_time()
        failure = self._failure(row, without, nominated_before(self._state, self._pod, row))
        return failure.plugin.reasons(self._pod, failure.state, failure.code) if failure is not None else ()

    def _failure(self, row: int, without: Sequence[PodInfo], added: Sequence[PodInfo]) -> Failure | None:
        """Who would rule ``row`` out if pods were gone and others were there; None if nobody would."""
        questions = self._evaluation.open_questions(row, added=bool(added))
        if questions is None or not all(entry.plugin.from_columns for entry in questions):
            with self._supposing(row, without, added):
                return self._evaluation.failure_of(row)
        with adjusted(self._state.view.columns, {row: difference(without, added)}):
            for entry in questions:
                code = entry.plugin.filter_one(self._evaluation.pod, entry.state, row)
                if code:
                    return Failure(entry.plugin, entry.state, code, np.array((row,), dtype=np.intp))
        return None

    def _least_by_columns(
        self, row: int, candidates: Sequence[PodInfo], added: Sequence[PodInfo], questions: Sequence[FilterFindings]
    ) -> list[PodInfo] | None:
        columns = self._state.view.columns
        with adjusted(columns, {row: difference(candidates, added)}):
            if not self._passes(questions, row):
                return None
            back: list[PodInfo] = []
            gone: list[PodInfo] = []
            try:
                for pod in candidates:
                    back.append(pod)
                    shift(columns, row, pod, 1)
                    if not self._passes(questions, row):
                        shift(columns, row, back.pop(), -1)
                        gone.append(pod)
            finally:
                for pod in back:
                    shift(columns, row, pod, -1)
        return gone

    def _passes(self, questions: Sequence[FilterFindings], row: int) -> bool:
        return not any(entry.plugin.filter_one(self._evaluation.pod, entry.state, row) for entry in questions)

    @contextmanager
    def _supposing(self, row: int, without: Sequence[PodInfo], added: Sequence[PodInfo]) -> Iterator[None]:
        """The evaluation shows what would be; what is, again, at the end."""
        with self._state.supposing(row, without, added):
            self._evaluation.refresh()
            yield
        self._evaluation.refresh()

    def _tried(self, row: int, without: Sequence[PodInfo], added: Sequence[PodInfo]) -> bool:
        self._check_time()
        with self._supposing(row, without, added):
            return bool(self._evaluation.feasible[row])

    def remember(self, question: Hashable, answer: Callable[[int], T]) -> Callable[[int], T]:
        """See FailedAttempt. Asks anew each time when the verdict on a node depends on other nodes, too."""
        if not self._evaluation.is_local:
            return answer
        columns, memory = self._state.view.columns, self._memory
        known: dict[int, tuple[tuple[str, ...], T]] = memory.answers(question, columns)

        def recalled(row: int) -> T:
            promised = tuple([pod.uid for pod in nominated_before(self._state, self._pod, row)])
            found = known.get(row)
            if found is not None and found[0] == promised:
                return found[1]
            result = answer(row)
            known[row] = promised, result
            memory.nothing_changed(columns)
            return result

        return recalled


def nominated_before(state: ClusterState, pod: PodInfo, row: int) -> list[PodInfo]:
    """The pods that were promised room on ``row`` and that ``pod`` may not take it from: not on a node yet, and more
    important, or equally so and promised earlier."""
    view = state.view
    nominated = view.nominations.on(view.columns.names[row])
    if not nominated:
        return []
    found: list[PodInfo] = []
    seen = False
    for other in nominated:
        if other.uid == pod.uid:
            # Those of its own importance that come later wait for it, or each would wait for the other.
            seen = True
            continue
        # Another scheduler does not know of our promises: to equals of it we would wait for each other, too.
        counts_equals = not seen and not view.nominations.is_foreign(other.uid)
        if other.priority + counts_equals > pod.priority and state.node_of(other.uid) is None:
            found.append(other)
    return found
