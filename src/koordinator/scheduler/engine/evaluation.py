"""One class of pods against all nodes: verdicts and totals, kept current row by row.

What each plugin says is kept as Findings, most of them shared with other classes; here it is put together. The first
look concerns every row; later ones only the rows that changed in an aspect that a plugin reads. One changed row, the
usual case while like pods are placed one after the other, costs one call a plugin and no pass over all nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from koordinator.scheduler.engine.board import Board, Scores
from koordinator.scheduler.engine.class_plan import plan_class
from koordinator.scheduler.engine.columns import Aspect, NodeColumns, Rows
from koordinator.scheduler.engine.findings import FEW_CHANGES, ONE_BY_ONE, FilterFindings, Findings, SharedFindings
from koordinator.scheduler.engine.panel import Panel
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.point_times import UNTIMED, PointTimes
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_overlays import RowOverlays

_SPARE_ROWS: Final = 64
_PART: Final = 8
"""Where one row of so many has to be judged again, all are."""
_EVERYTHING: Final = -1
_OF_NODE: Final = 1 << Aspect.NODE


class Evaluation(Board):
    """Verdicts and totals of all rows for one class of pods, represented by ``pod``."""

    def __init__(
        self,
        profile: Profile,
        columns: NodeColumns,
        pod: PodInfo,
        times: PointTimes = UNTIMED,
        shared: SharedFindings | None = None,
        panel: Panel | None = None,
    ) -> None:
        plan = plan_class(profile, columns, pod, times, shared)
        super().__init__(plan, columns, profile.score_type)
        self.pod = plan.pod or pod
        overlays = RowOverlays(profile, self.pod)
        self._overlays = overlays if overlays else None
        self._findings: tuple[Findings, ...] = (*self._filters, *self._scores)
        self._readers: dict[int, tuple[Findings, ...]] = {}
        """By bit mask of aspects: the findings that read any of them."""
        self._scaling = tuple(score for score in self._scores if score.scales)
        self._flat: dict[int, int] = {}
        """Scores, by index, that were all 0 when they were scaled last, with the number of rows then."""
        self._follows = any(findings.follows for findings in self._findings)
        self._is_simple = plan.restricted_to is None
        """Whether a single row can be judged by itself."""
        self._panel = panel if self._may_join() else None
        # A node that comes or goes concerns every class; what transformers read is known to them alone.
        self._reads = reduce(or_, (findings.reads for findings in self._findings), _OF_NODE)
        if self._overlays is not None:
            self._reads = _EVERYTHING

    def refresh(self) -> None:
        """Bring all rows up to the present version of the columns."""
        columns = self._columns
        if self.plan.rejection is not None or self.version == columns.version:
            return
        if self._panel is not None and self.number is not None:
            if self._panel.is_due(self.version):
                self._panel.keep_up()
            if self.number is not None and self._panel.is_current(self.number):
                self.adopt(self._panel.version)
                if self.version == columns.version:
                    return
        if min(self.feasible.shape[0], self.totals.shape[0]) < columns.size:
            self._grow(columns.size + max(_SPARE_ROWS, columns.size >> 4))
        if self.version < 0:
            self._update(_EVERYTHING, self._present(columns.alive_rows), stale=True)
            self.version = columns.version
            return
        is_far = self._panel is not None and self._panel.is_far(self.version)
        self._follow()
        self.version = columns.version
        if self._panel is not None:
            self._tell(self._panel, is_far)

    def _may_join(self) -> bool:
        """Whether all that is said of a row follows from it alone, and scores are scaled by what nodes have."""
        return (
            self._is_simple
            and self._overlays is None
            and not self._follows
            and not any(score.moves for score in self._scaling)
        )

    def _tell(self, panel: Panel, is_far: bool) -> None:
        """The panel of what was found out without it."""
        if self.number is not None:
            if self._has_news or not panel.is_current(self.number):
                panel.settle(self.number)
        elif is_far and not panel.join(self):
            self._panel = None
        self._has_news = False

    def _follow(self) -> None:
        """Recompute what changed since ``version``."""
        columns = self._columns
        changed = columns.changes_since(self.version, FEW_CHANGES)
        if changed is None:
            touched = columns.touched_since(self.version)
            self._has_news |= bool(touched.aspects & columns.static_aspects)
            self._follow_rows(touched.aspects, touched.rows, touched.alive)
            return
        changed = {row: aspects for row, aspects in changed.items() if aspects & self._reads}
        if not changed:
            return
        aspects = reduce(or_, changed.values())
        if len(changed) <= ONE_BY_ONE and self._is_simple and not aspects & columns.static_aspects:
            self._follow_few(aspects, changed)
            return
        self._has_news |= bool(aspects & columns.static_aspects)
        rows = np.array(sorted(changed), dtype=np.intp)
        self._follow_rows(aspects, rows, rows[columns.alive[rows]])

    def _follow_few(self, aspects: int, changed: Collection[int]) -> None:
        """``aspects`` of a few rows are all that changed, and none of them is new."""
        stale = False
        if self._follows:
            rows = np.array(sorted(changed), dtype=np.intp)
            reached, stale = self._reached(aspects, rows, rows[:0])
            if reached:
                self._update(aspects, rows, stale=stale, further=self._judge_again(reached))
                return
        version = self._columns.version
        for findings in self._readers_of(aspects):
            # What changed before is known there: this class asked for it then, or it does not matter there.
            if findings.version != version:
                findings.judge_few(changed)
                findings.version = version
        if self._overlays is not None:
            stale |= self._look_again(np.array(sorted(changed), dtype=np.intp))
        for row in changed:
            stale |= self._conclude(row)
        if (stale or self._is_stale()) and self._rescale():
            self._add_up()

    def _readers_of(self, aspects: int) -> tuple[Findings, ...]:
        """The findings that depend on any of ``aspects``; to the others it does not matter that they are behind."""
        readers = self._readers.get(aspects)
        if readers is None:
            readers = self._readers[aspects] = tuple(each for each in self._findings if each.reads & aspects)
        return readers

    def _follow_rows(self, aspects: int, rows: Rows, alive: Rows) -> None:
        """Something of ``rows`` changed; ``alive`` are those of them that are in use."""
        gone = rows[~self._columns.alive[rows]] if alive.shape[0] < rows.shape[0] else rows[:0]
        if not aspects & self._reads:
            return
        reached, stale = self._reached(aspects, alive, gone) if self._follows else ([], False)
        if self.plan.restricted_to is not None:
            # A freed row may have been given to a node that this class does not look at.
            alive = self._present(alive)
            gone = np.setdiff1d(rows, alive, assume_unique=True)
        if gone.shape[0]:
            self._rule_out(gone)
            stale = True
        self._update(aspects, alive, stale=stale, further=self._judge_again(reached) if reached else None)

    def _update(self, aspects: int, rows: Rows, *, stale: bool, further: Rows | None = None) -> None:
        """``aspects`` changed of ``rows``. ``stale``: scores that depend on other rows are out of date already.
        ``further``: the rows to put together anew, if they are more than ``rows``."""
        self._judge(self._readers_of(aspects), aspects, rows)
        if self._overlays is not None:
            stale |= self._look_again(rows)
        one_by_one = further is None and rows.shape[0] <= ONE_BY_ONE
        meant = rows if further is None else further
        if one_by_one:
            for row in rows.tolist():
                stale |= self._conclude(row)
        elif further is not None or aspects & _OF_NODE or _last_change(self._filters) > self.version:
            stale |= self._judge_anew(meant)
        if (stale or self._is_stale()) and self._rescale():
            self._add_up()
        elif not one_by_one:
            self._add_up(meant)

    def _is_stale(self) -> bool:
        """Whether a score has changed that others are scaled by."""
        return _last_change(self._scaling) > self.version

    def _judge(self, findings: Iterable[Findings], aspects: int, rows: Rows) -> None:
        for each in findings:
            if each.is_shared:
                each.refresh()
            elif each.reads & aspects:
                each.judge(rows)

    def _look_again(self, rows: Rows) -> bool:
        """Judge those of ``rows`` that this class sees otherwise than they are; returns whether there are or were any,
        so that scores of others may be out of date."""
        if self._follows:
            rows = np.union1d(rows, np.array(list(self._seen), dtype=np.intp))
        before = [row for row in rows.tolist() if self._seen.pop(row, None) is not None]
        assert self._overlays is not None, "the caller has looked"
        found = self._overlays.rows(rows, self._filters, self._scores)
        self._seen.update(found)
        for row in {*before, *found}:
            self._conclude(row)
        return bool(before or found)

    def _reached(self, aspects: int, alive: Rows, gone: Rows) -> tuple[list[tuple[FilterFindings, Rows]], bool]:
        """Tell the plugins that look across nodes what has changed. Returns (findings, the further rows that have to be
        judged again), and whether scores of other rows are out of date."""
        rows = alive if not gone.shape[0] else np.union1d(alive, gone)
        reached, stale = [], False
        for entry in self._filters:
            if entry.follows and entry.reads & aspects:
                further = entry.plugin.follow(self.pod, entry.state, rows)
                if further is not None and further.shape[0]:
                    reached.append((entry, further))
        for score in self._scores:
            if score.follows and score.reads & aspects:
                stale |= score.plugin.follow_score(self.pod, score.state, rows)
        return reached, stale

    def _judge_again(self, reached: Iterable[tuple[FilterFindings, Rows]]) -> Rows:
        """Rows on which nothing changed, but of which a filter has to think again. Returns all rows of the class: to
        put all together anew is cheaper than to pick out many."""
        columns = self._columns
        for entry, rows in reached:
            if rows.shape[0] * _PART > columns.size:
                # To judge all is faster than to find out which are meant.
                entry.judge(self._present(columns.alive_rows))
                continue
            # Several times as fast as sorting, whatever order they come in.
            meant = np.zeros(columns.size, dtype=np.bool_)
            meant[rows] = True
            entry.judge(self._present(np.flatnonzero(meant & columns.alive[: columns.size])))
        return self._present(columns.alive_rows)

    def _rescale(self) -> bool:
        """Scale the scores that depend on each other, if any; returns whether one has changed, and with it totals."""
        size = self._columns.size
        feasible, changed = self.feasible[:size], False
        for index, (score, known) in enumerate(self._scores_and_scaled):
            if known is None:
                continue
            raw = score.values[:size] if not self._seen else self._raw(index, size)
            is_flat = score.plugin.scales_zeros_alike and not np.count_nonzero(raw)
            if is_flat and self._flat.get(index) == size:
                continue
            if is_flat:
                self._flat[index] = size
            else:
                self._flat.pop(index, None)
            scaled = score.plugin.normalize(self.pod, score.state, raw, feasible)
            final = raw if scaled is None else scaled
            score.check(final, feasible)
            weighted = (final * score.weight).astype(known.dtype)
            if not np.array_equal(weighted, known[:size]):
                known[:size] = weighted
                changed = True
        self._has_news |= changed
        return changed

    def _raw(self, index: int, size: int) -> Scores:
        """What ``normalize`` starts from, with the rows that this class sees otherwise."""
        raw = self._scores[index].values[:size].copy()
        for row, seen in self._seen.items():
            raw[row] = seen.scores[index]
        return raw


def _last_change(findings: Iterable[Findings]) -> int:
    """The version of the columns at which a value last became another."""
    return max([each.changed_at for each in findings], default=-1)
