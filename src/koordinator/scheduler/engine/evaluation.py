"""One class of pods against all nodes: its state, refreshed from the dirty nodes.

The results of each plugin are kept as CachedResults, most of them shared with other classes; here they are combined.
The first refresh evaluates every node; later ones only those on which an aspect that a plugin reads has changed. A
single dirty node, the usual case while identical pods are placed one after the other, costs one call for each plugin
and no pass over all nodes. ``choose`` selects one of the nodes that passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import reduce
from operator import or_
from typing import Final, Protocol

import msgspec
import numpy as np

from koordinator.scheduler.engine.batch_evaluator import BatchEvaluator
from koordinator.scheduler.engine.cached_results import (
    FEW_CHANGES,
    ONE_BY_ONE,
    CachedFilterResults,
    CachedResults,
    Scores,
    SharedResults,
)
from koordinator.scheduler.engine.class_plan import plan_class
from koordinator.scheduler.engine.class_state import INFEASIBLE, ClassState
from koordinator.scheduler.engine.columns import Aspect, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import UNTIMED, PointTimes, Profile
from koordinator.scheduler.engine.row_overlays import RowOverlays
from koordinator.scheduler.engine.view import ClusterView

_SPARE_ROWS: Final = 64
_PART: Final = 8
"""If more than one row in so many has to be evaluated again, all rows are."""
_EVERYTHING: Final = -1
_OF_NODE: Final = 1 << Aspect.NODE


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
        plan = plan_class(profile, view, pod, times, shared)
        super().__init__(plan, view.columns, profile.score_type)
        self.incoming = pod
        """The pod of the class that was evaluated last."""
        self.pod = plan.pod or pod
        transforms = any(each.transforms(self.pod) for each in profile.filter_transformers)
        transforms = transforms or any(each.transforms(self.pod) for each in profile.score_transformers)
        self._overlays = RowOverlays(profile, self.pod) if transforms else None
        self._cached: tuple[CachedResults, ...] = (*self._filters, *self._scores)
        self._readers: dict[int, tuple[CachedResults, ...]] = {}
        """By bit mask of aspects: the cached results that read any of them."""
        self._scaling = tuple(score for score in self._scores if score.scales)
        self._flat: dict[int, int] = {}
        """The indices of scores that were all 0 when last scaled, with the number of rows at that time."""
        self._is_cross_node = any(cached.is_cross_node for cached in self._cached)
        self._is_simple = plan.restricted_to is None
        """Whether a single row can be evaluated by itself."""
        self._batch = batch if self._may_join() else None
        # A node that comes or goes concerns every class; only transformers know what they read.
        self._reads = reduce(or_, (cached.reads for cached in self._cached), _OF_NODE)
        if self._overlays is not None:
            self._reads = _EVERYTHING

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
            self._update(_EVERYTHING, self._present(columns.alive_rows), stale=True)
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
                    if self.totals[other] != INFEASIBLE:
                        passed_over[other] = self.hide(other)
        finally:
            if passed_over:
                self.show(passed_over.items())
        return Choice(None, passed_over=tuple(passed_over))

    def take(self, name: str, has_capacity: Callable[[int], bool]) -> Choice:
        """The row of the node ``name``, if the pod can go there."""
        row = self._columns.row_of.get(name)
        if row is None or not self.feasible[row]:
            return Choice(None)
        return Choice(row) if has_capacity(row) else Choice(None, passed_over=(row,))

    def _may_join(self) -> bool:
        """Whether all results of a row follow from that row alone, and scores are scaled by values of the Node
        objects."""
        return (
            self._is_simple
            and self._overlays is None
            and not self._is_cross_node
            and not any(score.is_pod_dependent for score in self._scaling)
        )

    def _apply_changes(self) -> None:
        """Recompute what changed since ``version``."""
        columns = self._columns
        changed = columns.changes_since(self.version, FEW_CHANGES)
        if changed is None:
            touched = columns.touched_since(self.version)
            self.has_news |= bool(touched.aspects & columns.static_aspects)
            self._apply_rows(touched.aspects, touched.rows, touched.alive)
            return
        reads, aspects = self._reads, 0
        changed = {row: found for row, found in changed.items() if found & reads}
        if not changed:
            return
        for found in changed.values():
            aspects |= found
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
        only = next(iter(changed)) if count == 1 else None
        for cached in self._readers.get(aspects) or self._readers_of(aspects):
            # Earlier changes are included there: this class refreshed it then, or they do not matter to it.
            if cached.version != version:
                if only is not None:
                    cached.evaluate_one(only)
                elif count <= cached.few:
                    for row in changed:
                        cached.evaluate_one(row)
                else:
                    cached.evaluate(np.array(sorted(changed), dtype=np.intp))
                cached.version = version
        if self._overlays is not None:
            stale |= self._look_again(np.array(sorted(changed), dtype=np.intp))
        for row in changed:
            stale |= self._conclude(row)
        if self._scaling and (stale or self._is_stale()) and self._rescale():
            self._add_up()

    def _readers_of(self, aspects: int) -> tuple[CachedResults, ...]:
        """The cached results that depend on any of ``aspects``; the others are not affected by these changes."""
        readers = self._readers[aspects] = tuple(each for each in self._cached if each.reads & aspects)
        return readers

    def _apply_rows(self, aspects: int, rows: Rows, alive: Rows) -> None:
        """Apply changes of ``aspects`` of ``rows``; ``alive`` are those of them that are in use."""
        gone = rows[~self._columns.alive[rows]] if alive.shape[0] < rows.shape[0] else rows[:0]
        if not aspects & self._reads:
            return
        reached, stale = self._reached(aspects, alive, gone) if self._is_cross_node else ([], False)
        if self.plan.restricted_to is not None:
            # A freed row may have been given to a node that this class does not consider.
            alive = self._present(alive)
            gone = np.setdiff1d(rows, alive, assume_unique=True)
        if gone.shape[0]:
            self._drop_rows(gone)
            stale = True
        self._update(aspects, alive, stale=stale, further=self._evaluate_reached(reached) if reached else None)

    def _update(self, aspects: int, rows: Rows, *, stale: bool, further: Rows | None = None) -> None:
        """``aspects`` of ``rows`` changed. ``stale``: scores that depend on other rows are out of date already.
        ``further``: the rows to combine again, if they are more than ``rows``."""
        self._evaluate(self._readers.get(aspects) or self._readers_of(aspects), aspects, rows)
        if self._overlays is not None:
            stale |= self._look_again(rows)
        one_by_one = further is None and rows.shape[0] <= ONE_BY_ONE
        meant = rows if further is None else further
        if one_by_one:
            for row in rows.tolist():
                stale |= self._conclude(row)
        elif further is not None or aspects & _OF_NODE or _has_changed(self._filters, self.version):
            stale |= self._refresh_feasible(meant)
        if (stale or self._is_stale()) and self._rescale():
            self._add_up()
        elif not one_by_one:
            self._add_up(meant)

    def _is_stale(self) -> bool:
        """Whether a score has changed that others are scaled by."""
        return _has_changed(self._scaling, self.version)

    def _evaluate(self, cached: Iterable[CachedResults], aspects: int, rows: Rows) -> None:
        for each in cached:
            if each.is_shared:
                each.refresh()
            elif each.reads & aspects:
                each.evaluate(rows)

    def _look_again(self, rows: Rows) -> bool:
        """Evaluate those of ``rows`` that transformers adjust for this class; returns whether there are or were any, so
        that scores of others may be out of date."""
        if self._is_cross_node:
            rows = np.union1d(rows, np.array(list(self.overlaid), dtype=np.intp))
        before = [row for row in rows.tolist() if self.overlaid.pop(row, None) is not None]
        assert self._overlays is not None, "the caller has looked"
        found = self._overlays.rows(rows, self._filters, self._scores)
        self.overlaid.update(found)
        for row in {*before, *found}:
            self._conclude(row)
        return bool(before or found)

    def _reached(self, aspects: int, alive: Rows, gone: Rows) -> tuple[list[tuple[CachedFilterResults, Rows]], bool]:
        """Notify the plugins that look across nodes of the changes. Returns (cached results, the further rows to be
        evaluated again), and whether scores of other rows are out of date."""
        rows = alive if not gone.shape[0] else np.union1d(alive, gone)
        reached, stale = [], False
        for entry in self._filters:
            if entry.is_cross_node and entry.reads & aspects:
                further = entry.plugin.apply_delta(self.pod, entry.state, rows)
                if further is not None and further.shape[0]:
                    reached.append((entry, further))
        for score in self._scores:
            if score.is_cross_node and score.reads & aspects:
                stale |= score.plugin.apply_score_delta(self.pod, score.state, rows)
        return reached, stale

    def _evaluate_reached(self, reached: Iterable[tuple[CachedFilterResults, Rows]]) -> Rows:
        """Evaluate unchanged rows whose filter results depend on changed ones. Returns all rows of the class: combining
        all again is cheaper than selecting many."""
        columns = self._columns
        for entry, rows in reached:
            if rows.shape[0] * _PART > columns.size:
                # Evaluating all is faster than selecting these.
                entry.evaluate(self._present(columns.alive_rows))
                continue
            # Several times as fast as sorting, in whatever order they come.
            meant = np.zeros(columns.size, dtype=np.bool_)
            meant[rows] = True
            entry.evaluate(self._present(np.flatnonzero(meant & columns.alive[: columns.size])))
        return self._present(columns.alive_rows)

    def _rescale(self) -> bool:
        """Scale the scores that depend on each other, if any; returns whether one has changed, and with it totals."""
        size = self._columns.size
        feasible, changed = self.feasible[:size], False
        for index, (score, weighted_scores) in enumerate(zip(self._scores, self._weighted, strict=True)):
            if not score.scales:
                continue
            known = weighted_scores.values
            raw = score.values[:size] if not self.overlaid else self._raw(index, size)
            is_flat = score.plugin.scales_zeros_alike and not np.count_nonzero(raw)
            if is_flat and self._flat.get(index) == size:
                continue
            if is_flat:
                self._flat[index] = size
            else:
                self._flat.pop(index, None)
            scaled = score.plugin.normalize(self.pod, score.state, raw, feasible)
            final = score.usable(raw if scaled is None else scaled, None, feasible)
            weighted = (final * score.weight).astype(known.dtype)
            if not np.array_equal(weighted, known[:size]):
                known[:size] = weighted
                changed = True
        self.has_news |= changed
        return changed

    def _raw(self, index: int, size: int) -> Scores:
        """The input of ``normalize``, with the rows that this class sees adjusted."""
        raw = self._scores[index].values[:size].copy()
        for row, seen in self.overlaid.items():
            raw[row] = seen.scores[index]
        return raw


def _has_changed(cached: Iterable[CachedResults], version: int) -> bool:
    """Whether a value of ``cached`` has changed after ``version`` of the columns."""
    return bool([each for each in cached if each.changed_at > version])
