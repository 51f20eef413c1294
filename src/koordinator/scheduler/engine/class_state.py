"""The state of one class of pods, which nodes are feasible and their total scores, and how it is computed for many
nodes at once.

The results of each plugin are kept as CachedResults, most of them shared with other classes; here they are combined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.cached_results import (
    ONE_BY_ONE,
    CachedFilterResults,
    CachedResults,
    CachedScores,
    ScaledScores,
    Scores,
)
from koordinator.scheduler.engine.class_plan import ClassPlan
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, Rows
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import grown
from koordinator.scheduler.engine.row_overlays import OverlaidNode, RowOverlays
from koordinator.scheduler.engine.view import ClusterView

INFEASIBLE: Final = -1
"""The total of a row that is infeasible for the class."""
EVERYTHING: Final = -1
"""All aspects."""
OF_NODE: Final = 1 << Aspect.NODE
_PART: Final = 8
"""If more than one row in so many has to be evaluated again, all rows are."""


class ClassState(ABC):
    """Arrays of shape (rows,); Evaluation keeps them current."""

    def __init__(self, plan: ClassPlan, profile: Profile, view: ClusterView, pod: PodInfo) -> None:
        self.plan = plan
        self.pod = plan.pod or pod
        """Represents the class."""
        self._columns, score_type = view.columns, profile.score_type
        self._filters = plan.filters
        self._scores = plan.scores
        self.score_names = tuple([score.plugin.name for score in self._scores])
        self.is_local = not any(entry.is_cross_node for entry in plan.filters)
        """Whether the result for each node depends on that node alone."""
        self._weighted: list[CachedScores | ScaledScores] = [
            ScaledScores(np.zeros(0, dtype=score_type)) if score.scales else score for score in self._scores
        ]
        """What the totals are sums of, in the order of ``_scores``."""
        self.feasible: Mask = np.zeros(0, dtype=np.bool_)
        self.totals: Scores = np.zeros(0, dtype=score_type)
        """Weighted sum of the scores, INFEASIBLE where the pod cannot go."""
        self.feasible_count = 0
        """How many nodes are feasible for pods of the class."""
        self._first: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        """The index of the first filter that rejects a row; one more than the last where none does."""
        self._first_counts: Ints = np.zeros(len(self._filters) + 1, dtype=np.int64)
        """How many rows each filter is the first to reject."""
        self._passed = len(self._filters)
        """That index where none does."""
        self._first_names: tuple[str, ...] | None = ()
        """The names of those filters; None when they have to be recomputed."""
        self.version = -1
        """The version of the columns that everything here is current for."""
        self.number: int | None = None
        """The member number in the batch evaluator; None for classes that have not joined it."""
        self._cached: tuple[CachedResults, ...] = (*self._filters, *self._scores)
        self.pod_dependent = tuple([cached for cached in self._cached if cached.is_pod_dependent])
        """Those that change as pods come and go."""
        self.overlaid: dict[int, OverlaidNode] = {}
        """What replaces the values of shared cached results, on rows that this class sees adjusted."""
        self.has_news = False
        """Something of ``static_totals`` has changed since the batch evaluator was last notified."""
        transforms = any(each.transforms(self.pod) for each in profile.filter_transformers)
        transforms = transforms or any(each.transforms(self.pod) for each in profile.score_transformers)
        self._overlays = RowOverlays(profile, self.pod) if transforms else None
        self._readers: dict[int, tuple[CachedResults, ...]] = {}
        """By bit mask of aspects: the cached results that read any of them."""
        self._scaling = tuple([score for score in self._scores if score.scales])
        self._flat: dict[int, int] = {}
        """The indices of scores that were all 0 when last scaled, with the number of rows at that time."""
        self._is_cross_node = any(cached.is_cross_node for cached in self._cached)
        self._is_simple = plan.restricted_to is None
        """Whether a single row can be evaluated by itself."""
        # A node that comes or goes concerns every class; only transformers know what they read.
        self._reads = reduce(or_, [cached.reads for cached in self._cached], OF_NODE)
        if self._overlays is not None:
            self._reads = EVERYTHING

    def _may_join(self) -> bool:
        """Whether all results of a row follow from that row alone, and scores are scaled by values of the Node
        objects."""
        return (
            self._is_simple
            and self._overlays is None
            and not self._is_cross_node
            and not any(score.is_pod_dependent for score in self._scaling)
        )

    @property
    def width(self) -> int:
        """How many numbers are stored for each row, without shared cached results."""
        own = sum(1 for cached in (*self._filters, *self._scores) if not cached.is_shared)
        return own + sum(1 for score in self._scores if score.scales) + 3

    def keep_totals_in(self, totals: Scores) -> None:
        """Keep the totals in an array that the batch evaluator writes to as well."""
        size = self._columns.size
        totals[:size], totals[size:] = self.totals[:size], INFEASIBLE
        self.totals = totals

    def dismiss(self, version: int | None) -> None:
        """Leave the batch evaluator, which has refreshed this class to ``version``, if that is given."""
        self.number = None
        self.totals = self.totals.copy()
        if version is not None:
            self.adopt(version)

    def adopt(self, version: int) -> None:
        """Adopt ``version``, for which the batch evaluator has written totals."""
        if version > self.version:
            self.version = version
            self._forget_rows()

    def static_totals(self, undecided: int) -> Scores:
        """By row, the part of the total that stays the same while pods come and go; INFEASIBLE where the node itself
        makes the row infeasible, and ``undecided`` where feasibility depends on the pods there."""
        size = self._columns.size
        first = self._first_of(slice(size), size, only_static=True)
        totals = np.zeros(size, dtype=self.totals.dtype)
        for score, weighted in zip(self._scores, self._weighted, strict=True):
            if score.scales or not score.is_pod_dependent:
                totals += weighted.values[:size]
        np.copyto(totals, INFEASIBLE, where=first != self._passed)
        np.copyto(totals, undecided, where=first != self._first[:size])
        return totals

    @property
    def rows(self) -> Rows:
        """The rows that are considered for this class, ascending."""
        return self._present(self._columns.alive_rows)

    @abstractmethod
    def _conclude(self, row: int) -> bool:
        """Recompute feasibility and the total of one row; returns whether feasibility has changed."""

    @abstractmethod
    def _forget_rows(self) -> None:
        """Totals of many rows may have changed."""

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
        elif further is not None or aspects & OF_NODE or _has_changed(self._filters, self.version):
            stale |= self._refresh_feasible(meant)
        if (stale or _has_changed(self._scaling, self.version)) and self._rescale():
            self._add_up()
        elif not one_by_one:
            self._add_up(meant)

    def _readers_of(self, aspects: int) -> tuple[CachedResults, ...]:
        """The cached results that depend on any of ``aspects``; the others are not affected by these changes."""
        readers = self._readers[aspects] = tuple([each for each in self._cached if each.reads & aspects])
        return readers

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

    def _refresh_feasible(self, rows: Rows) -> bool:
        """Recompute feasibility from the cached filter results; returns whether it has changed anywhere. Totals are
        left as they are."""
        where = self._where(rows)
        first = self._first_of(where, rows.shape[0])
        feasible = first == self._passed
        changed = bool(np.count_nonzero(self.feasible[where] != feasible))
        if np.count_nonzero(self._first[where] != first):
            self._count_first(where, first)
        if changed:
            self.feasible[where] = feasible
            self.feasible_count = int(np.count_nonzero(self.feasible))
        for row in self.overlaid:
            self._conclude(row)
        return changed

    def _first_of(self, where: Any, count: int, *, only_static: bool = False) -> NDArray[np.int16]:
        """The index of the first filter that rejects each of ``count`` rows, as in ``_first``; with ``only_static``, of
        the filters that depend on the node alone."""
        first = np.full(count, self._passed, dtype=np.int16)
        for index in range(self._passed - 1, -1, -1):
            entry = self._filters[index]
            if not entry.has_rejected or (only_static and entry.is_pod_dependent):
                continue
            codes = entry.values[where]
            # Mostly nothing of these is rejected, and counting is several times as fast as any().
            if np.count_nonzero(codes):
                # Several times as fast as assigning by a mask.
                first -= (first - np.int16(index)) * (codes != FEASIBLE)
        return first

    def _add_up(self, rows: Rows | None = None) -> None:
        """Compute totals from scores and feasibility: of ``rows``, or of all rows."""
        where = slice(self._columns.size) if rows is None else self._where(rows)
        totals, feasible = self._sums(where), self.feasible[where]
        if np.count_nonzero(feasible) < feasible.shape[0]:
            # Several times as fast as assigning by a mask.
            totals += (INFEASIBLE - totals) * ~feasible
        self.totals[where] = totals
        self._forget_rows()
        for row in self.overlaid:
            self._conclude(row)

    def _sums(self, where: Any) -> Scores:
        """The sum of all weighted scores."""
        parts = [each.values[where] for each in self._weighted]
        if not parts:
            return np.zeros_like(self.totals[where])
        total: Scores = parts[0] + parts[1] if len(parts) > 1 else parts[0].copy()
        for part in parts[2:]:
            total += part
        return total

    def _count_first(self, where: Any, first: NDArray[np.int16]) -> None:
        """Store ``first`` for the rows ``where``, and update the counts."""
        self.has_news = True
        length = self._first_counts.shape[0]
        counts = np.bincount(first, minlength=length)
        if first.shape[0] < self._columns.size:
            counts += self._first_counts - np.bincount(self._first[where], minlength=length)
        if not np.array_equal(counts, self._first_counts):
            self._first_counts = counts
            self._first_names = None
        self._first[where] = first

    def _drop_rows(self, rows: Rows) -> None:
        """Make rows infeasible that no plugin evaluates any more."""
        for row in rows.tolist() if self.overlaid else ():
            self.overlaid.pop(row, None)
        self._count_first(rows, np.full(rows.shape[0], self._passed, dtype=np.int16))
        self.feasible[rows] = False
        self.feasible_count = int(np.count_nonzero(self.feasible))
        self.totals[rows] = INFEASIBLE
        self._forget_rows()

    def _grow(self, capacity: int) -> None:
        self.feasible = grown(self.feasible, (capacity,))
        self.totals = grown(self.totals, (capacity,), fill=INFEASIBLE)
        self._first = grown(self._first, (capacity,), fill=self._passed)
        for each in self._weighted:
            if isinstance(each, ScaledScores):
                each.keep(grown(each.values, (capacity,)))

    def _present(self, rows: Rows) -> Rows:
        """Those of ``rows`` that are considered for this class."""
        if self.plan.restricted_to is None:
            return rows
        names = self._columns.names
        return np.array([row for row in rows.tolist() if names[row] in self.plan.restricted_to], dtype=np.intp)

    def _where(self, rows: Rows) -> Any:
        """What to index with: for all rows, views are several times as fast as copies by index."""
        return slice(rows.shape[0]) if rows.shape[0] == self._columns.size else rows


def _has_changed(cached: Iterable[CachedResults], version: int) -> bool:
    """Whether a value of ``cached`` has changed after ``version`` of the columns."""
    return any(each.changed_at > version for each in cached)
