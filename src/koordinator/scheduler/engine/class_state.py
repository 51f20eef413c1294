"""The state of one class of pods: which nodes are feasible, their total scores, and how to read them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.cached_results import (
    CachedFilterResults,
    CachedScores,
    Failure,
    ScaledScores,
    Scores,
    failures,
)
from koordinator.scheduler.engine.class_plan import ClassPlan
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import FEASIBLE, ScoreType
from koordinator.scheduler.engine.row_amounts import grown
from koordinator.scheduler.engine.row_overlays import OverlaidNode

INFEASIBLE: Final = -1
"""The total of a row that is infeasible for the class."""


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


class ClassState:
    """Arrays of shape (rows,); Evaluation keeps them current."""

    def __init__(self, plan: ClassPlan, columns: NodeColumns, score_type: ScoreType) -> None:
        """``score_type`` holds the sum of all weighted scores."""
        self._columns = columns
        self.plan = plan
        self._filters = plan.filters
        self._scores = plan.scores
        self.score_names = tuple(score.plugin.name for score in self._scores)
        self.is_local = not any(entry.is_cross_node for entry in plan.filters)
        """Whether the result for each node depends on that node alone."""
        self._weighted: list[CachedScores | ScaledScores] = [
            ScaledScores(np.zeros(0, dtype=score_type)) if score.scales else score for score in self._scores
        ]
        """What the totals are sums of, in the order of ``_scores``."""
        self.feasible: Mask = np.zeros(0, dtype=np.bool_)
        self.totals: Scores = np.zeros(0, dtype=score_type)
        """Weighted sum of the scores, INFEASIBLE where the pod cannot go."""
        self._best_nodes = BestNodes()
        """Current between two changes of ``totals``; each change is reported to it."""
        self._scores_of: dict[int, list[int]] = {}
        """What ``scores_of`` has returned for rows that have not changed since: the best nodes are mostly the same."""
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
        self.pod_dependent = tuple(cached for cached in (*self._filters, *self._scores) if cached.is_pod_dependent)
        """Those that change as pods come and go."""
        self.overlaid: dict[int, OverlaidNode] = {}
        """What replaces the values of shared cached results, on rows that this class sees adjusted."""
        self.has_news = False
        """Something of ``static_totals`` has changed since the batch evaluator was last notified."""

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

    def best(self) -> BestNodes:
        """The feasible rows that share the highest total, ascending; empty when there is none. To be read before
        anything changes."""
        best_nodes = self._best_nodes
        if not best_nodes.size:
            best_nodes.find(self.totals[: self._columns.size])
        return best_nodes

    def next_best(self, excluded: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` feasible rows with the highest totals after those of ``excluded``."""
        best_nodes = self._best_nodes
        enough = len(excluded) + count
        if best_nodes.size >= enough:
            return [row for row in best_nodes.first(enough) if row not in excluded][:count]
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

    def scores_of(self, rows: Sequence[int]) -> tuple[list[int], ...]:
        """Of each row, the weighted scores in the order of ``score_names``; to be read only."""
        known = self._scores_of
        if not known.keys() >= {*rows}:
            columns = [each.of_row for each in self._weighted]
            for row in rows:
                if row not in known:
                    known[row] = self._read_scores(row) if self.overlaid else list(map(itemgetter(row), columns))
        return tuple(map(known.__getitem__, rows))

    def _read_scores(self, row: int) -> list[int]:
        if row in self.overlaid:
            own = zip(self.overlaid[row].scores, self._weighted, strict=True)
            return [each.of_row[row] if isinstance(each, ScaledScores) else value for value, each in own]
        return [each.of_row[row] for each in self._weighted]

    def hide(self, row: int) -> int:
        """Exclude ``row`` from the choice until ``show``; returns its total."""
        total = int(self.totals[row])
        self.totals[row] = INFEASIBLE
        self._best_nodes.forget()
        return total

    def show(self, hidden: Iterable[tuple[int, int]]) -> None:
        """Restore hidden rows (row, total)."""
        self._best_nodes.forget()
        for row, total in hidden:
            self.totals[row] = total

    def failure_of(self, row: int) -> Failure | None:
        """The first plugin that rejects ``row``; None when it is feasible."""
        found = self._failures(np.array((row,), dtype=np.intp)) if not self.feasible[row] else []
        return found[0] if found else None

    def first_rejecting_plugins(self) -> tuple[str, ...]:
        """The plugins that are the first to reject some considered node, in the order of the profile."""
        if self._first_names is None:
            counts = zip(self._filters, self._first_counts.tolist(), strict=False)
            self._first_names = tuple(entry.plugin.name for entry, count in counts if count)
        return self._first_names

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

    @property
    def rows(self) -> Rows:
        """The rows that are considered for this class, ascending."""
        return self._present(self._columns.alive_rows)

    def _present(self, rows: Rows) -> Rows:
        """Those of ``rows`` that are considered for this class."""
        if self.plan.restricted_to is None:
            return rows
        names = self._columns.names
        return np.array([row for row in rows.tolist() if names[row] in self.plan.restricted_to], dtype=np.intp)

    def _where(self, rows: Rows) -> Any:
        """What to index with: for all rows, views are several times as fast as copies by index."""
        return slice(rows.shape[0]) if rows.shape[0] == self._columns.size else rows

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

    def _conclude(self, row: int) -> bool:
        """Recompute feasibility and the total of one row; returns whether feasibility has changed."""
        first = 0
        if self.overlaid:
            first, scores = self._first_rejecting(row), self._read_scores(row)
        else:
            for entry in self._filters:
                if entry.has_rejected and entry.of_row[row]:
                    break
                first += 1
            scores = [each.of_row[row] for each in self._weighted]
        self._scores_of[row] = scores
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

    def _forget_rows(self) -> None:
        """Totals of many rows may have changed."""
        self._best_nodes.forget()
        self._scores_of.clear()

    def _grow(self, capacity: int) -> None:
        self.feasible = grown(self.feasible, (capacity,))
        self.totals = grown(self.totals, (capacity,), fill=INFEASIBLE)
        self._first = grown(self._first, (capacity,), fill=self._passed)
        for each in self._weighted:
            if isinstance(each, ScaledScores):
                each.keep(grown(each.values, (capacity,)))
