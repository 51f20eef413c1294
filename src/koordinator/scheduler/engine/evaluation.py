"""One class of pods against all nodes: verdicts and scores, kept current row by row.

The first look computes every row; later ones only the rows that changed in an aspect that a plugin reads. One changed
row, the usual case while like pods are placed one after the other, costs one call a plugin and no pass over all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from koordinator.scheduler.engine.adjustment import adjusted
from koordinator.scheduler.engine.board import INFEASIBLE, Board
from koordinator.scheduler.engine.class_plan import plan_class
from koordinator.scheduler.engine.columns import Aspect, NodeColumns, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.point_times import UNTIMED, PointTimes
from koordinator.scheduler.engine.profile import Profile

_FEW_CHANGES: Final = 16
"""So many are looked through faster than the versions of all rows are compared."""
_SPARE_ROWS: Final = 64
_ONE_BY_ONE: Final = 3
"""So many rows are done faster in plain integers, one after the other, than as arrays."""
_EVERYTHING: Final = (1 << len(Aspect)) - 1
_OF_NODE: Final = 1 << Aspect.NODE


class Evaluation(Board):
    """Verdicts and scores of all rows for one class of pods, represented by ``pod``."""

    def __init__(self, profile: Profile, columns: NodeColumns, pod: PodInfo, times: PointTimes = UNTIMED) -> None:
        plan = plan_class(profile, pod, times)
        super().__init__(plan, columns)
        self.pod = plan.pod or pod
        self._filter_transformers = profile.filter_transformers
        self._score_transformers = profile.score_transformers
        self._transformed = bool(self._filter_transformers or self._score_transformers)
        self.version = -1
        """The version of the columns that everything here is current for."""
        self._normalized = [index for index, score in enumerate(self._scores) if score.raw is not None]
        self._follows = not self.is_local or any(entry.follows for entry in plan.scores)
        self._is_simple = not (self._follows or self._transformed or plan.restricted_to is not None)
        """Whether what changes on a row concerns that row alone."""
        self._reads = _union(entry.reads for entry in plan.filters) | _union(entry.reads for entry in plan.scores)

    def refresh(self) -> None:
        """Bring all rows up to the present version of the columns."""
        columns = self._columns
        if self.plan.rejection is not None or self.version == columns.version:
            return
        if self.feasible.shape[0] < columns.size:
            self._grow(columns.size + max(_SPARE_ROWS, columns.size >> 4))
        if self.version < 0:
            self._evaluate([(_EVERYTHING, self._present(np.flatnonzero(columns.alive[: columns.size])))])
        else:
            self._follow()
        self.version = columns.version

    def _follow(self) -> None:
        """Recompute what changed since ``version``."""
        columns = self._columns
        changed = columns.changes_since(self.version, _FEW_CHANGES)
        if changed is not None:
            if len(changed) == 1 and self._is_simple:
                ((row, aspects),) = changed.items()
                if columns.alive[row]:
                    if aspects & self._reads and self._evaluate_row(aspects, row):
                        self._normalize()
                    return
            rows = np.array(sorted(changed), dtype=np.intp)
            aspects = reduce(or_, changed.values())
        else:
            rows, aspects = columns.touched_since(self.version)
        gone, work = self._sorted_out(rows, aspects)
        reached, stale = self._reached(work, gone) if self._follows else ([], False)
        if self.plan.restricted_to is not None:
            # A freed row may have been given to a node that this class does not look at.
            gone.extend(row for _, rows in work for row in rows.tolist())
            work = [(mask, self._present(rows)) for mask, rows in work]
        if gone:
            self._rule_out(gone)
        self._evaluate(work, stale=bool(gone and self._normalized) or stale)
        if reached:
            self._judge_again(reached)

    def _sorted_out(self, rows: Rows, aspects: int) -> tuple[list[int], list[tuple[int, Rows]]]:
        """The rows that are free now, and pairs of (aspects, rows) to compute anew. ``aspects`` is what changed on any
        of ``rows``."""
        columns = self._columns
        gone: list[int] = []
        if not columns.are_all_alive:
            alive = columns.alive[rows]
            gone, rows = rows[~alive].tolist(), rows[alive]
        if not aspects & self._reads or not rows.shape[0]:
            return gone, []
        if not aspects & _OF_NODE:
            return gone, [(aspects, rows)]
        # Few nodes change as nodes; computing a little more of the others is cheaper than many small groups.
        of_node = columns.touched_in(Aspect.NODE, rows, self.version)
        groups = [(_EVERYTHING, rows[of_node]), (aspects & ~_OF_NODE, rows[~of_node])]
        return gone, [(mask, group) for mask, group in groups if mask & self._reads and group.shape[0]]

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
            # Several times as fast as sorting out what stands there twice.
            meant = np.zeros(self._columns.size, dtype=np.bool_)
            meant[rows] = True
            rows = self._present(np.flatnonzero(meant & self._columns.alive[: self._columns.size]))
            entry = self._filters[index]
            self._codes_of[index][rows] = entry.plugin.filter(self.pod, entry.state, rows)
            touched[rows] = True
        rows = np.flatnonzero(touched)
        if rows.shape[0] and self._combine(rows) and self._normalized:
            self._normalize()

    def _evaluate(self, work: Iterable[tuple[int, Rows]], *, stale: bool = False) -> None:
        """Recompute rows in the plugins that read what changed of them: pairs of (aspects, rows). ``stale``: scores
        that depend on other rows are out of date already."""
        for aspects, rows in work:
            if rows.shape[0] <= _ONE_BY_ONE and not self._transformed:
                for row in rows.tolist():
                    stale |= self._evaluate_row(aspects, row)
            else:
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
        codes = self._codes[:, row].tolist()
        feasible = not any(codes)
        before = bool(self.feasible[row])
        if not (feasible and before):
            first = len(codes) if feasible else next(index for index, code in enumerate(codes) if code)
            self._count_first([row], np.array((first,), dtype=np.int64))
            changed |= before != feasible
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
            changed |= self._combine(rows)
        else:
            verdicts_change = self._filter_rows(aspects, rows)
            changed = self._score_rows(aspects, rows)
            if verdicts_change:
                changed |= self._combine(rows)
            else:
                self._add_up(rows)
        return changed and bool(self._normalized)

    def _filter_rows(self, aspects: int, rows: Rows) -> bool:
        """Returns whether verdicts may have changed: whether any code has, or rows are looked at for the first time."""
        changed = bool(aspects & _OF_NODE)
        for index, entry in enumerate(self._filters):
            if entry.reads & aspects:
                codes = entry.plugin.filter(self.pod, entry.state, rows)
                known = self._codes_of[index]
                # Counting is several times as fast as any().
                if np.count_nonzero(known[rows] != codes):
                    known[rows] = codes
                    changed = True
        return changed

    def _score_rows(self, aspects: int, rows: Rows) -> bool:
        """Returns whether a score that others are scaled by has changed."""
        changed = False
        for index, score in enumerate(self._scores):
            if score.reads & aspects:
                values = score.plugin.score(self.pod, score.state, rows)
                if score.raw is None:
                    self._weighted_of[index][rows] = values if score.weight == 1 else values * score.weight
                elif not np.array_equal(score.raw[rows], values):
                    score.raw[rows] = values
                    changed = True
        return changed

    def _normalize(self) -> None:
        """Scale the scores that depend on each other, and add everything up again."""
        size = self._columns.size
        feasible, changed = self.feasible[:size], False
        for index in self._normalized:
            score = self._scores[index]
            assert score.raw is not None
            scaled = score.plugin.normalize(self.pod, score.state, score.raw[:size], feasible)
            weighted = (score.raw[:size] if scaled is None else scaled) * score.weight
            if not np.array_equal(weighted, self._weighted[index, :size]):
                self._weighted[index, :size] = weighted
                changed = True
        if changed:
            self.totals[:size] = np.where(feasible, np.add.reduce(self._weighted[:, :size], axis=0), INFEASIBLE)


def _union(masks: Iterable[int]) -> int:
    # A node that comes or goes concerns every class.
    return reduce(or_, masks, 1 << Aspect.NODE)


def _of_interest(changed: Iterable[tuple[int, Rows]], reads: int) -> Rows | None:
    """The rows of which an aspect in ``reads`` changed; None when there are none."""
    parts = [rows for aspects, rows in changed if aspects & reads and rows.shape[0]]
    # No row is in two of them.
    return (parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))) if parts else None
