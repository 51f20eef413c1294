"""One class of pods against all nodes: its state, refreshed from the dirty nodes, and the choice of a node.

The first refresh evaluates every node; later ones only those on which an aspect that a plugin reads has changed. A few
dirty nodes, the usual case while identical pods are placed one after the other, cost one call for each plugin and node,
and no pass over all nodes; that is here, and passes over many nodes are in ``class_state``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import attrgetter, itemgetter, or_
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.batch_evaluator import BatchEvaluator
from koordinator.scheduler.engine.cached_results import (
    FEW_CHANGES,
    ONE_BY_ONE,
    CachedFilterResults,
    Failure,
    ScaledScores,
    Scores,
    SharedResults,
    failures,
)
from koordinator.scheduler.engine.class_plan import plan_class
from koordinator.scheduler.engine.class_state import EVERYTHING, INFEASIBLE, ClassState
from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import UNTIMED, PointTimes, Profile
from koordinator.scheduler.engine.view import ClusterView

_SPARE_ROWS: Final = 64
_of_row = attrgetter("of_row")


class RandomSource(Protocol):
    """The part of ``random.Random`` that ``Evaluation.choose`` uses."""

    def randrange(self, stop: int, /) -> int: ...


class Choice(msgspec.Struct, frozen=True):
    """The row that a pod goes to."""

    row: int | None
    tied: int = 0
    """How many rows shared its total, itself included; 0 when it was not chosen for its total."""
    passed_over: tuple[int, ...] = ()
    """Without a row, those that had no capacity."""


class BestNodes:
    """The indices of the nodes with the highest total, ascending; empty if not known, until ``find`` computes them.
    ``apply_delta`` and ``forget`` report changes."""

    def __init__(self) -> None:
        self.size = 0
        """How many there are."""
        self._rows: list[int] = []
        self._found: NDArray[np.intp] | None = None
        """In place of ``_rows`` until one changes: most results of ``find`` are never looked at."""
        self._highest = INFEASIBLE
        """Their total; INFEASIBLE while they are not known."""

    def __getitem__(self, index: int) -> int:
        return self._rows[index] if self._found is None else self._found.item(index)

    def first(self, count: int) -> list[int]:
        """The first so many of them."""
        return self._rows[:count] if self._found is None else self._found[:count].tolist()

    def find(self, totals: Scores) -> None:
        """Find the feasible rows with the highest of ``totals``; there may be none."""
        self.forget()
        highest = totals.item(totals.argmax()) if totals.shape[0] else INFEASIBLE
        if highest != INFEASIBLE:
            self._highest = highest
            # Without the checks of flatnonzero, which cost as much as the work.
            self._found = (totals == highest).nonzero()[0]
            self.size = self._found.shape[0]

    def apply_delta(self, row: int, total: int) -> None:
        """The total of one row may have changed."""
        if self._highest == INFEASIBLE:
            return
        if self._found is not None:
            self._rows, self._found = self._found.tolist(), None
        rows = self._rows
        if total > self._highest:
            self._highest, self._rows, self.size = total, [row], 1
            return
        index = bisect_left(rows, row)
        among = index < len(rows) and rows[index] == row
        if among and total < self._highest:
            del rows[index]
            self.size -= 1
        elif total == self._highest and not among:
            rows.insert(index, row)
            self.size += 1

    def forget(self) -> None:
        """Totals of many rows may have changed."""
        self._rows, self._found, self.size, self._highest = [], None, 0, INFEASIBLE


class Evaluation(ClassState):
    """Feasibility and totals of all rows for one class of pods, represented by ``pod``."""

    def __init__(
        self,
        profile: Profile,
        view: ClusterView,
        pod: PodInfo,
        times: PointTimes = UNTIMED,
        shared: SharedResults | None = None,
        batch: BatchEvaluator | None = None,
    ) -> None:
        super().__init__(plan_class(profile, view, pod, times, shared), profile, view, pod)
        self.incoming = pod
        """The pod of the class that was evaluated last."""
        self._batch = batch if self._may_join() else None
        self._best_nodes = BestNodes()
        """Current between two changes of ``totals``; each change is reported to it."""
        self._scores_of: dict[int, list[int]] = {}
        """What ``scores_of`` has returned for rows that have not changed since: the best nodes are mostly the same."""
        self._rejecting: list[tuple[int, CachedFilterResults]] = []
        """The filters that have ever rejected a row, with their indices, when the columns counted ``_rejecting_at``."""
        self._rejecting_at = 0

    def refresh(self) -> None:
        """Refresh all rows to the present version of the columns."""
        columns = self._columns
        if self.plan.rejection is not None or self.version == columns.version:
            return
        if self._batch is not None and self.number is not None:
            self._batch.advance(self)
            if self.version == columns.version:
                return
        size = columns.size
        if self.feasible.shape[0] < size or self.totals.shape[0] < size:
            self._grow(size + max(_SPARE_ROWS, size >> 4))
        if self.version < 0:
            self._update(EVERYTHING, self._present(columns.alive_rows), stale=True)
            self.version = columns.version
            return
        before = self.version
        self._apply_changes()
        self.version = columns.version
        batch = self._batch
        if batch is not None and (self.number is not None or columns.version - before > batch.far):
            self._batch = batch if batch.take_note(self, before) else None

    def choose(self, preferred: Iterable[str], has_capacity: Callable[[int], bool], random: RandomSource) -> Choice:
        """The first of the ``preferred`` nodes that is feasible and has capacity, else the best that has, chosen at
        random among equals. ``has_capacity``: whether the pod fits on a feasible row beside pods that are nominated to
        it."""
        row_of = self._columns.row_of
        for name in preferred:
            row = row_of.get(name)
            if row is not None and self.feasible[row] and has_capacity(row):
                return Choice(row)
        passed_over: dict[int, int] = {}
        try:
            while (best := self.best()).size:
                tied = best.size
                row = best[random.randrange(tied)]
                if has_capacity(row):
                    return Choice(row, tied)
                # The check may have restored the totals of rows that were passed over before.
                for other in (*passed_over, row):
                    if (total := self.totals.item(other)) != INFEASIBLE:
                        passed_over[other], self.totals[other] = total, INFEASIBLE
                self._best_nodes.forget()
        finally:
            if passed_over:
                self._best_nodes.forget()
            for other, total in passed_over.items():
                self.totals[other] = total
        return Choice(None, passed_over=tuple(passed_over))

    def take(self, name: str, has_capacity: Callable[[int], bool]) -> Choice:
        """The row of the node ``name``, if the pod can go there."""
        row = self._columns.row_of.get(name)
        if row is None or not self.feasible[row]:
            return Choice(None)
        return Choice(row) if has_capacity(row) else Choice(None, passed_over=(row,))

    def best(self) -> BestNodes:
        """The feasible rows that share the highest total, ascending; empty when there is none. To be read before
        anything changes."""
        best_nodes = self._best_nodes
        if not best_nodes.size:
            best_nodes.find(self.totals[: self._columns.size])
        return best_nodes

    def next_best(self, best: int, count: int) -> list[int]:
        """Up to ``count`` feasible rows with the highest totals after ``best``."""
        if self._best_nodes.size > count:
            return [row for row in self._best_nodes.first(count + 1) if row != best][:count]
        found: list[int] = []
        totals, row = self.totals[: self._columns.size], best
        hidden = [(row, totals.item(row))]
        totals[row] = INFEASIBLE
        while len(found) < count and (total := totals.item(row := int(totals.argmax()))) != INFEASIBLE:
            found.append(row)
            hidden.append((row, total))
            totals[row] = INFEASIBLE
        for row, total in hidden:
            totals[row] = total
        return found

    def scores_of(self, rows: Sequence[int]) -> tuple[list[int], ...]:
        """Of each row, the weighted scores in the order of ``score_names``; to be read only."""
        known, found = self._scores_of, []
        for row in rows:
            scores = known.get(row)
            if scores is None:
                scores = known[row] = self._read_scores(row)
            found.append(scores)
        return tuple(found)

    def first_rejecting_plugins(self) -> tuple[str, ...]:
        """The plugins that are the first to reject some considered node, in the order of the profile."""
        if self._first_names is None:
            counts = zip(self._filters, self._first_counts.tolist(), strict=False)
            self._first_names = tuple(entry.plugin.name for entry, count in counts if count)
        return self._first_names

    def _apply_changes(self) -> None:
        """Recompute what changed since ``version``."""
        columns = self._columns
        changed = columns.changes_since(self.version, FEW_CHANGES)
        if changed is None:
            touched = columns.touched_since(self.version)
            self.has_news |= bool(touched.aspects & columns.static_aspects)
            self._apply_rows(touched.aspects, touched.rows, touched.alive)
            return
        aspects = reduce(or_, changed.values(), 0)
        if aspects & ~self._reads:
            changed = {row: found for row, found in changed.items() if found & self._reads}
            aspects = reduce(or_, changed.values(), 0)
        if not changed:
            return
        if len(changed) <= ONE_BY_ONE and self._is_simple and not aspects & columns.static_aspects:
            self._apply_few(aspects, changed)
            return
        self.has_news |= bool(aspects & columns.static_aspects)
        rows = np.array(sorted(changed), dtype=np.intp)
        self._apply_rows(aspects, rows, rows[columns.alive[rows]])

    def _apply_few(self, aspects: int, changed: Collection[int]) -> None:
        """Apply changes of ``aspects`` of a few rows, none of which is new."""
        stale = False
        if self._is_cross_node:
            rows = np.array(sorted(changed), dtype=np.intp)
            reached, stale = self._reached(aspects, rows, rows[:0])
            if reached:
                self._update(aspects, rows, stale=stale, further=self._evaluate_reached(reached))
                return
        version, count = self._columns.version, len(changed)
        for cached in self._readers.get(aspects) or self._readers_of(aspects):
            # Earlier changes are included there: this class refreshed it then, or they do not matter to it.
            if cached.version == version:
                continue
            if count <= cached.few:
                for row in changed:
                    value = cached.one(cached.pod, cached.state, row) * cached.factor
                    if not cached.is_noted:
                        cached.of_row[row] = value
                    elif cached.of_row[row] != value:
                        cached.note(row, value)
            else:
                cached.evaluate(np.array(sorted(changed), dtype=np.intp))
            cached.version = version
        if self._overlays is not None:
            stale |= self._look_again(np.array(sorted(changed), dtype=np.intp))
        for row in changed:
            stale |= self._conclude(row)
        if not stale and self._scaling:
            stale = bool([each for each in self._scaling if each.changed_at > self.version])
        if stale and self._scaling and self._rescale():
            self._add_up()

    def _conclude(self, row: int) -> bool:
        """Recompute feasibility and the total of one row; returns whether feasibility has changed."""
        if self._rejecting_at != self._columns.rejecting:
            self._note_rejecting()
        if self.overlaid:
            first = self._first_rejecting(row)
        else:
            first = self._passed
            for index, entry in self._rejecting:
                if entry.of_row[row]:
                    first = index
                    break
        scores = self._scores_of[row] = self._read_scores(row)
        feasible, before = first == self._passed, self.feasible.item(row)
        if not (feasible and before):
            known = self._first.item(row)
            if first != known:
                self.has_news = True
                self._first_counts[known] -= 1
                self._first_counts[first] += 1
                self._first_names = None
                self._first[row] = first
            self.feasible[row] = feasible
            self.feasible_count += feasible - before
        self.totals[row] = total = sum(scores) if feasible else INFEASIBLE
        self._best_nodes.apply_delta(row, total)
        return bool(feasible != before)

    def _first_rejecting(self, row: int) -> int:
        """The index of the first filter that rejects the row, which may be seen adjusted."""
        seen = self.overlaid.get(row)
        filters = self._filters
        codes = [entry.has_rejected and entry.of_row[row] for entry in filters] if seen is None else seen.codes
        return next((index for index, code in enumerate(codes) if code), self._passed)

    def _read_scores(self, row: int) -> list[int]:
        if row in self.overlaid:
            own = zip(self.overlaid[row].scores, self._weighted, strict=True)
            return [each.of_row[row] if isinstance(each, ScaledScores) else value for value, each in own]
        return list(map(itemgetter(row), map(_of_row, self._weighted)))

    def _note_rejecting(self) -> None:
        """A filter has rejected a row for the first time."""
        self._rejecting_at = self._columns.rejecting
        self._rejecting = [(index, entry) for index, entry in enumerate(self._filters) if entry.has_rejected]

    def _forget_rows(self) -> None:
        """Totals of many rows may have changed."""
        self._best_nodes.forget()
        self._scores_of.clear()

    def failure_of(self, row: int) -> Failure | None:
        """The first plugin that rejects ``row``; None when it is feasible."""
        found = self._failures(np.array((row,), dtype=np.intp)) if not self.feasible[row] else []
        return found[0] if found else None

    def failures(self) -> list[Failure]:
        """The infeasible rows that were considered, grouped by the first plugin that rejects them and its code."""
        rows = self.rows
        return self._failures(rows[~self.feasible[rows]])

    def _failures(self, rows: Rows) -> list[Failure]:
        if not self.overlaid:
            return failures(self._filters, rows)
        own = np.isin(rows, list(self.overlaid))
        return failures(self._filters, rows[~own]) + [
            Failure(entry.plugin, entry.state, code, np.array((row,), dtype=np.intp))
            for row in rows[own].tolist()
            for entry, code in list(zip(self._filters, self.overlaid[row].codes, strict=True))[self._first[row] :][:1]
        ]

    def filters_to_run(self, row: int, *, added: bool) -> list[CachedFilterResults] | None:
        """The filters that have to run again for ``row`` if pods were taken off it (and, with ``added``, others put
        there); None when another one rejects the row whichever pods are on it. Current only after ``refresh``."""
        if self.plan.rejection is not None or not self._present(np.array((row,), dtype=np.intp)).shape[0]:
            return None
        filters = []
        seen = self.overlaid.get(row)
        for index, entry in enumerate(self._filters):
            passes = not (entry.values[row] if seen is None else seen.codes[index])
            if entry.is_pod_dependent and not (passes and entry.plugin.monotone and not added):
                filters.append(entry)
            elif not passes:
                return None
        return filters
