"""One class of pods against all nodes: verdicts and scores, kept current row by row.

The first look computes every row; later ones only the rows that changed in an aspect that a plugin reads. One changed
row, the usual case while like pods are placed one after the other, costs one call a plugin and no pass over all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.adjustment import adjusted
from koordinator.scheduler.engine.class_plan import PlannedFilter, plan_class
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.verdicts import Failure, failures, first_to_rule_out

INFEASIBLE: Final = -1
"""The total of a row that no pod of the class may go to."""
_FEW_CHANGES: Final = 64
_OF_PODS: Final = 1 << Aspect.PODS | 1 << Aspect.LOAD
_EVERYTHING: Final = (1 << len(Aspect)) - 1


class Evaluation:
    """Verdicts and scores of all rows for one class of pods, represented by ``pod``."""

    def __init__(self, profile: Profile, columns: NodeColumns, pod: PodInfo) -> None:
        self._columns = columns
        self.plan = plan = plan_class(profile, pod)
        self.pod = plan.pod or pod
        self._filter_transformers = profile.filter_transformers
        self._score_transformers = profile.score_transformers
        self._transformed = bool(self._filter_transformers or self._score_transformers)
        self.version = -1
        """The version of the columns that everything here is current for."""
        self._filters = plan.filters
        self._scores = plan.scores
        self.score_names = tuple(score.plugin.name for score in self._scores)
        self._normalized = [index for index, score in enumerate(self._scores) if score.raw is not None]
        self._follows = any(entry.follows for entry in plan.filters) or any(entry.follows for entry in plan.scores)
        self._codes: NDArray[np.int64] = np.zeros((len(self._filters), 0), dtype=np.int64)
        self._weighted: Ints = np.zeros((len(self._scores), 0), dtype=np.int64)
        self.feasible: Mask = np.zeros(0, dtype=np.bool_)
        self.totals: Ints = np.zeros(0, dtype=np.int64)
        """Weighted sum of the scores, INFEASIBLE where the pod cannot go."""

    def refresh(self) -> None:
        """Bring all rows up to the present version of the columns."""
        columns = self._columns
        if self.plan.rejection is not None or self.version == columns.version:
            return
        if self.feasible.shape[0] < columns.size:
            self._grow(columns.alive.shape[0])
        if self.version < 0:
            self._evaluate([(_EVERYTHING, self._present(np.flatnonzero(columns.alive[: columns.size])))])
        else:
            self._follow()
        self.version = columns.version

    def best(self) -> Rows:
        """The feasible rows that share the highest total; empty when there is none."""
        totals = self.totals[: self._columns.size]
        if not totals.shape[0]:
            return np.zeros(0, dtype=np.intp)
        highest = totals[totals.argmax()]
        if highest == INFEASIBLE:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(totals == highest)

    def next_best(self, excluded: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` feasible rows with the highest totals after those of ``excluded``."""
        found: list[int] = []
        hidden = [(row, self.hide(row)) for row in excluded]
        while len(found) < count:
            row = int(self.totals[: self._columns.size].argmax())
            if self.totals[row] == INFEASIBLE:
                break
            found.append(row)
            hidden.append((row, self.hide(row)))
        self.show(hidden)
        return found

    def scores_of(self, row: int) -> list[int]:
        """Weighted scores of the row, in the order of ``score_names``."""
        scores: list[int] = self._weighted[:, row].tolist()
        return scores

    @property
    def feasible_count(self) -> int:
        """How many nodes pods of the class may go to."""
        return int(np.count_nonzero(self.feasible))

    def hide(self, row: int) -> int:
        """Take ``row`` out of the choice until ``show``; returns its total."""
        total = int(self.totals[row])
        self.totals[row] = INFEASIBLE
        return total

    def show(self, hidden: Iterable[tuple[int, int]]) -> None:
        """Put hidden rows (row, total) back."""
        for row, total in hidden:
            self.totals[row] = total

    def failure_of(self, row: int) -> Failure | None:
        """The first plugin that rules out ``row``; None when it is feasible."""
        found = failures(self._filters, self._codes, np.array((row,), dtype=np.intp)) if not self.feasible[row] else []
        return found[0] if found else None

    def first_to_rule_out(self) -> tuple[str, ...]:
        """The plugins that are the first to rule out some node that was looked at, in the order of the profile."""
        return first_to_rule_out(self._filters, self._codes, self._ruled_out())

    def failures(self) -> list[Failure]:
        """The infeasible rows that were looked at, grouped by the first plugin that rules them out and its code."""
        return failures(self._filters, self._codes, self._ruled_out())

    def _ruled_out(self) -> Rows:
        rows = self._present(np.flatnonzero(self._columns.alive[: self._columns.size]))
        return rows[~self.feasible[rows]]

    @property
    def is_local(self) -> bool:
        """Whether the verdict on each node depends on that node alone."""
        return not self._follows

    def open_questions(self, row: int, *, added: bool) -> list[PlannedFilter] | None:
        """The filters that have to be asked again about ``row`` if pods were taken off it (and, with ``added``, others
        put there); None when another one rules the row out whoever is on it. Current only after ``refresh``."""
        if self.plan.rejection is not None or not self._present(np.array((row,), dtype=np.intp)).shape[0]:
            return None
        questions = []
        for index, entry in enumerate(self._filters):
            passes = not self._codes[index, row]
            if entry.reads & _OF_PODS and not (passes and entry.plugin.monotone and not added):
                questions.append(entry)
            elif not passes:
                return None
        return questions

    def _present(self, rows: Rows) -> Rows:
        """Those of ``rows`` that are looked at for this class."""
        if self.plan.restricted_to is None:
            return rows
        names = self._columns.names
        return np.array([row for row in rows.tolist() if names[row] in self.plan.restricted_to], dtype=np.intp)

    def _follow(self) -> None:
        """Recompute what changed since ``version``."""
        columns = self._columns
        changed = columns.changes_since(self.version, _FEW_CHANGES)
        work: list[tuple[int, Rows]] = []
        gone: list[int] = []
        if changed is not None:
            for row, aspects in changed.items():
                if columns.alive[row]:
                    work.append((aspects, np.array((row,), dtype=np.intp)))
                else:
                    gone.append(row)
        else:
            masks = np.zeros(columns.size, dtype=np.int64)
            for aspect in Aspect:
                masks |= columns.touched_since(self.version, (aspect,)).astype(np.int64) << int(aspect)
            gone = np.flatnonzero((masks > 0) & ~columns.alive[: columns.size]).tolist()
            masks[gone] = 0
            work = [(int(mask), np.flatnonzero(masks == mask)) for mask in np.unique(masks) if mask]
        reached, stale = self._reached(work, gone) if self._follows else ([], False)
        if self.plan.restricted_to is not None:
            # A freed row may have been given to a node that this class does not look at.
            gone.extend(row for _, rows in work for row in rows.tolist())
            work = [(mask, self._present(rows)) for mask, rows in work]
        if gone:
            self.feasible[gone] = False
            self.totals[gone] = INFEASIBLE
        self._evaluate(work, stale=bool(gone and self._normalized) or stale)
        self._judge_again(reached)

    def _reached(self, work: Iterable[tuple[int, Rows]], gone: list[int]) -> tuple[list[tuple[int, Rows]], bool]:
        """Tell the plugins that look across nodes what has changed. Returns (index of a filter, the further rows that
        it has to judge again), and whether scores of other rows are out of date."""
        changed = [*work, (_EVERYTHING, np.array(gone, dtype=np.intp))]
        reached, stale = [], False
        for index, entry in enumerate(self._filters):
            if entry.follows and (rows := _of_interest(changed, entry.reads)) is not None:
                further = entry.plugin.follow(self.pod, entry.state, rows)
                if further is not None and further.shape[0]:
                    reached.append((index, further))
        for score in self._scores:
            if score.follows and (rows := _of_interest(changed, score.reads)) is not None:
                stale |= score.plugin.follow_score(self.pod, score.state, rows)
        return reached, stale

    def _judge_again(self, reached: Iterable[tuple[int, Rows]]) -> None:
        """Rows on which nothing changed, but of which a filter has to think again."""
        touched = np.zeros(self._columns.size, dtype=np.bool_)
        for index, rows in reached:
            rows = self._present(rows[self._columns.alive[rows]])
            entry = self._filters[index]
            self._codes[index, rows] = entry.plugin.filter(self.pod, entry.state, rows)
            touched[rows] = True
        rows = np.flatnonzero(touched)
        if rows.shape[0] and self._combine(rows) and self._normalized:
            self._normalize()

    def _evaluate(self, work: Iterable[tuple[int, Rows]], *, stale: bool = False) -> None:
        """Recompute rows in the plugins that read what changed of them: pairs of (aspects, rows). ``stale``: scores
        that depend on other rows are out of date already."""
        for aspects, rows in work:
            if rows.shape[0] == 1 and not self._transformed:
                stale |= self._evaluate_row(aspects, int(rows[0]))
            elif rows.shape[0]:
                stale |= self._evaluate_rows(aspects, rows)
        if stale:
            self._normalize()

    def _evaluate_row(self, aspects: int, row: int) -> bool:
        """As _evaluate_rows for a single row, without numpy's cost per call where plain integers do."""
        pod, changed = self.pod, False
        for index, entry in enumerate(self._filters):
            if entry.reads & aspects:
                self._codes[index, row] = entry.plugin.filter_one(pod, entry.state, row)
        for index, score in enumerate(self._scores):
            if score.reads & aspects:
                value = score.plugin.score_one(pod, score.state, row)
                if score.raw is None:
                    self._weighted[index, row] = value * score.weight
                elif score.raw[row] != value:
                    score.raw[row] = value
                    changed = True
        feasible = not any(self._codes[:, row].tolist())
        changed |= bool(self.feasible[row]) != feasible
        self.feasible[row] = feasible
        self.totals[row] = sum(self._weighted[:, row].tolist()) if feasible else INFEASIBLE
        return changed and bool(self._normalized)

    def _evaluate_rows(self, aspects: int, rows: Rows) -> bool:
        """Returns whether scores of other rows depend on what changed here."""
        if self._transformed:
            with ExitStack() as seen:
                for transformer in self._filter_transformers:
                    seen.enter_context(adjusted(self._columns, transformer.before_filter(self.pod, rows)))
                self._filter_rows(aspects, rows)
                for scorer in self._score_transformers:
                    seen.enter_context(adjusted(self._columns, scorer.before_score(self.pod, rows)))
                changed = self._score_rows(aspects, rows)
        else:
            self._filter_rows(aspects, rows)
            changed = self._score_rows(aspects, rows)
        changed |= self._combine(rows)
        return changed and bool(self._normalized)

    def _filter_rows(self, aspects: int, rows: Rows) -> None:
        for index, entry in enumerate(self._filters):
            if entry.reads & aspects:
                self._codes[index, rows] = entry.plugin.filter(self.pod, entry.state, rows)

    def _score_rows(self, aspects: int, rows: Rows) -> bool:
        """Returns whether a score that others are scaled by has changed."""
        changed = False
        for index, score in enumerate(self._scores):
            if score.reads & aspects:
                values = score.plugin.score(self.pod, score.state, rows)
                if score.raw is None:
                    self._weighted[index, rows] = values * score.weight
                elif not np.array_equal(score.raw[rows], values):
                    score.raw[rows] = values
                    changed = True
        return changed

    def _combine(self, rows: Rows) -> bool:
        """Verdicts and totals from what the plugins said of each row; returns whether a verdict has changed."""
        feasible = ~self._codes[:, rows].any(axis=0)
        changed = not np.array_equal(self.feasible[rows], feasible)
        self.feasible[rows] = feasible
        self.totals[rows] = np.where(feasible, self._weighted[:, rows].sum(axis=0), INFEASIBLE)
        return changed

    def _normalize(self) -> None:
        """Scale the scores that depend on each other, and add everything up again."""
        size = self._columns.size
        feasible = self.feasible[:size]
        for index in self._normalized:
            score = self._scores[index]
            assert score.raw is not None
            scaled = score.plugin.normalize(self.pod, score.state, score.raw[:size], feasible)
            self._weighted[index, :size] = (score.raw[:size] if scaled is None else scaled) * score.weight
        self.totals[:size] = np.where(feasible, self._weighted[:, :size].sum(axis=0), INFEASIBLE)

    def _grow(self, capacity: int) -> None:
        known = self.feasible.shape[0]
        self._codes = _widened(self._codes, capacity)
        self._weighted = _widened(self._weighted, capacity)
        self.feasible = np.concatenate([self.feasible, np.zeros(capacity - known, dtype=np.bool_)])
        self.totals = np.concatenate([self.totals, np.full(capacity - known, INFEASIBLE, dtype=np.int64)])
        for score in self._scores:
            if score.raw is not None:
                score.raw = np.concatenate([score.raw, np.zeros(capacity - known, dtype=np.int64)])


def _of_interest(changed: Iterable[tuple[int, Rows]], reads: int) -> Rows | None:
    """The rows of which an aspect in ``reads`` changed; None when there are none."""
    parts = [rows for aspects, rows in changed if aspects & reads and rows.shape[0]]
    return (parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))) if parts else None


def _widened(array: Ints, columns: int) -> Ints:
    larger = np.zeros((array.shape[0], columns), dtype=array.dtype)
    larger[:, : array.shape[1]] = array
    return larger
