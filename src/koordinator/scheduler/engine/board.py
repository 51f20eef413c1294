"""What is known of all rows for one class of pods: findings, verdicts, totals, and how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.class_plan import ClassPlan
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.findings import FilterFindings, ScoreFindings
from koordinator.scheduler.engine.framework import FEASIBLE, ScoreType
from koordinator.scheduler.engine.leaders import INFEASIBLE, Leaders
from koordinator.scheduler.engine.row_overlays import SeenRow
from koordinator.scheduler.engine.verdicts import Failure, failures

Scores = NDArray[np.signedinteger[Any]]
Item = TypeVar("Item", bound=np.generic)


class Board:
    """Arrays of shape (rows,); Evaluation keeps them current."""

    def __init__(self, plan: ClassPlan, columns: NodeColumns, score_type: ScoreType) -> None:
        """``score_type`` holds the sum of all weighted scores."""
        self._columns = columns
        self.plan = plan
        self._filters = plan.filters
        self._scores = plan.scores
        self.score_names = tuple(score.plugin.name for score in self._scores)
        self.is_local = not any(entry.follows for entry in plan.filters)
        """Whether the verdict on each node depends on that node alone."""
        self._scores_and_scaled: list[tuple[ScoreFindings, Scores | None]] = [
            (score, np.zeros(0, dtype=score_type) if score.scales else None) for score in self._scores
        ]
        """With the weighted scores of plugins that scale them: in each class by other rows."""
        self.feasible: Mask = np.zeros(0, dtype=np.bool_)
        self.totals: Scores = np.zeros(0, dtype=score_type)
        """Weighted sum of the scores, INFEASIBLE where the pod cannot go."""
        self._leaders = Leaders()
        """Current between two changes of ``totals``, which tell it."""
        self.feasible_count = 0
        """How many nodes pods of the class may go to."""
        self._first: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        """The index of the first filter that rules out a row; one more than the last where none does."""
        self._first_counts: Ints = np.zeros(len(self._filters) + 1, dtype=np.int64)
        """How many rows each filter is the first to rule out."""
        self._first_names: tuple[str, ...] | None = ()
        """The names of those; None when they have to be made anew."""
        self.version = -1
        """The version of the columns that everything here is current for."""
        self.number: int | None = None
        """In the panel, for those who have joined one."""
        self.moving = tuple(findings for findings in (*self._filters, *self._scores) if findings.moves)
        """Those that change as pods come and go."""
        self._seen: dict[int, SeenRow] = {}
        """What is to be taken in place of the values of shared findings, of rows that this class sees otherwise."""
        self._has_news = False
        """Something of ``fixed_totals`` has changed since the panel was told last."""

    @property
    def sees_as_is(self) -> bool:
        """Whether no row looks to this class otherwise than it is."""
        return not self._seen

    @property
    def width(self) -> int:
        """Numbers that are kept for each row, without findings that are shared."""
        own = sum(1 for findings in (*self._filters, *self._scores) if not findings.is_shared)
        return own + sum(1 for score in self._scores if score.scales) + 3

    def keep_totals_in(self, totals: Scores) -> None:
        """In an array that the panel writes to as well."""
        size = self._columns.size
        totals[:size], totals[size:] = self.totals[:size], INFEASIBLE
        self.totals = totals

    def dismiss(self, version: int | None) -> None:
        """The panel gives its members up; it has brought this one to ``version``, if that is given."""
        self.number = None
        self.totals = self.totals.copy()
        if version is not None:
            self.adopt(version)

    def adopt(self, version: int) -> None:
        """The panel has written totals that hold for ``version``."""
        if version > self.version:
            self.version = version
            self._leaders.forget()

    def fixed_totals(self, unsettled: int) -> Scores:
        """By row, what of the total stays the same while pods come and go; INFEASIBLE where the node itself rules the
        row out, and ``unsettled`` where the verdict depends on the pods there are."""
        size = self._columns.size
        first = self._first_of(slice(size), size, only_fixed=True)
        totals = np.zeros(size, dtype=self.totals.dtype)
        for score, scaled in self._scores_and_scaled:
            if scaled is not None or not score.moves:
                totals += (score.values if scaled is None else scaled)[:size]
        np.copyto(totals, INFEASIBLE, where=first != len(self._filters))
        np.copyto(totals, unsettled, where=first != self._first[:size])
        return totals

    def best(self) -> Sequence[int]:
        """The feasible rows that share the highest total, ascending; empty when there is none. To be read at once."""
        leaders = self._leaders
        if not leaders:
            leaders.find(self.totals[: self._columns.size])
        return leaders

    def next_best(self, excluded: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` feasible rows with the highest totals after those of ``excluded``."""
        leaders = self._leaders
        if len(leaders) >= len(excluded) + count:
            return [row for row in leaders[: len(excluded) + count] if row not in excluded][:count]
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
        if row in self._seen:
            own = zip(self._seen[row].scores, self._scores_and_scaled, strict=True)
            return [value if scaled is None else scaled.item(row) for value, (_, scaled) in own]
        return [
            score.values.item(row) if scaled is None else scaled.item(row) for score, scaled in self._scores_and_scaled
        ]

    def hide(self, row: int) -> int:
        """Take ``row`` out of the choice until ``show``; returns its total."""
        total = int(self.totals[row])
        self.totals[row] = INFEASIBLE
        self._leaders.forget()
        return total

    def show(self, hidden: Iterable[tuple[int, int]]) -> None:
        """Put hidden rows (row, total) back."""
        self._leaders.forget()
        for row, total in hidden:
            self.totals[row] = total

    def failure_of(self, row: int) -> Failure | None:
        """The first plugin that rules out ``row``; None when it is feasible."""
        found = self._failures(np.array((row,), dtype=np.intp)) if not self.feasible[row] else []
        return found[0] if found else None

    def first_to_rule_out(self) -> tuple[str, ...]:
        """The plugins that are the first to rule out some node that was looked at, in the order of the profile."""
        if self._first_names is None:
            counts = zip(self._filters, self._first_counts.tolist(), strict=False)
            self._first_names = tuple(entry.plugin.name for entry, count in counts if count)
        return self._first_names

    def failures(self) -> list[Failure]:
        """The infeasible rows that were looked at, grouped by the first plugin that rules them out and its code."""
        return self._failures(self._ruled_out())

    def _failures(self, rows: Rows) -> list[Failure]:
        if not self._seen:
            return failures(self._filters, rows)
        own = np.isin(rows, list(self._seen))
        return failures(self._filters, rows[~own]) + [
            Failure(entry.plugin, entry.state, code, np.array((row,), dtype=np.intp))
            for row in rows[own].tolist()
            for entry, code in list(zip(self._filters, self._seen[row].codes, strict=True))[self._first[row] :][:1]
        ]

    def _ruled_out(self) -> Rows:
        rows = self._present(self._columns.alive_rows)
        return rows[~self.feasible[rows]]

    def open_questions(self, row: int, *, added: bool) -> list[FilterFindings] | None:
        """The filters that have to be asked again about ``row`` if pods were taken off it (and, with ``added``, others
        put there); None when another one rules the row out whoever is on it. Current only after ``refresh``."""
        if self.plan.rejection is not None or not self._present(np.array((row,), dtype=np.intp)).shape[0]:
            return None
        questions = []
        seen = self._seen.get(row)
        for index, entry in enumerate(self._filters):
            passes = not (entry.values[row] if seen is None else seen.codes[index])
            if entry.moves and not (passes and entry.plugin.monotone and not added):
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

    def _where(self, rows: Rows) -> Any:
        """What to index with: where all rows are meant, views are several times as fast as copies by index."""
        return slice(rows.shape[0]) if rows.shape[0] == self._columns.size else rows

    def _judge_anew(self, rows: Rows) -> bool:
        """Verdicts from what the filters said of each row; returns whether one has changed. Totals are as they were."""
        where = self._where(rows)
        first = self._first_of(where, rows.shape[0])
        feasible = first == len(self._filters)
        changed = bool(np.count_nonzero(self.feasible[where] != feasible))
        if np.count_nonzero(self._first[where] != first):
            self._count_first(where, first)
        if changed:
            self.feasible[where] = feasible
            self.feasible_count = int(np.count_nonzero(self.feasible))
        self._conclude_seen()
        return changed

    def _conclude_seen(self) -> None:
        """Verdicts and totals of the rows that this class sees otherwise."""
        for row in self._seen:
            self._conclude(row)

    def _first_of(self, where: Any, count: int, *, only_fixed: bool = False) -> NDArray[np.int16]:
        """The index of the first filter that rules out each of ``count`` rows, as ``_first`` has it; with
        ``only_fixed``, of those that go by the node alone."""
        passed = len(self._filters)
        first = np.full(count, passed, dtype=np.int16)
        for index in range(passed - 1, -1, -1):
            entry = self._filters[index]
            if only_fixed and entry.moves:
                continue
            codes = entry.values[where]
            # Mostly nothing is ruled out, and counting is several times as fast as any().
            if np.count_nonzero(codes):
                # Several times as fast as assigning by a mask.
                first -= (first - np.int16(index)) * (codes != FEASIBLE)
        return first

    def _add_up(self, rows: Rows | None = None) -> None:
        """Totals from scores and verdicts: of ``rows``, or of all that there are."""
        where = slice(self._columns.size) if rows is None else self._where(rows)
        totals, feasible = self._sums(where), self.feasible[where]
        if np.count_nonzero(feasible) < feasible.shape[0]:
            # Several times as fast as assigning by a mask.
            totals += (INFEASIBLE - totals) * ~feasible
        self.totals[where] = totals
        self._leaders.forget()
        self._conclude_seen()

    def _sums(self, where: Any) -> Scores:
        """The sum of all weighted scores."""
        parts = [(score.values if scaled is None else scaled)[where] for score, scaled in self._scores_and_scaled]
        if not parts:
            return np.zeros_like(self.totals[where])
        total: Scores = parts[0] + parts[1] if len(parts) > 1 else parts[0].copy()
        for part in parts[2:]:
            total += part
        return total

    def _conclude(self, row: int) -> bool:
        """The verdict and the total of one row; returns whether the verdict has changed."""
        first = 0
        if row in self._seen:
            first = next((index for index, code in enumerate(self._seen[row].codes) if code), len(self._filters))
        else:
            for entry in self._filters:
                if entry.values.item(row):
                    break
                first += 1
        feasible, before = first == len(self._filters), self.feasible.item(row)
        if not (feasible and before):
            known = self._first.item(row)
            if first != known:
                self._has_news = True
                self._first_counts[known] -= 1
                self._first_counts[first] += 1
                self._first_names = None
                self._first[row] = first
            self.feasible[row] = feasible
            self.feasible_count += feasible - before
        self.totals[row] = total = sum(self.scores_of(row)) if feasible else INFEASIBLE
        self._leaders.follow(row, total)
        return bool(feasible != before)

    def _count_first(self, where: Any, first: NDArray[np.int16]) -> None:
        """``first`` holds for the rows ``where`` from now on."""
        self._has_news = True
        length = self._first_counts.shape[0]
        counts = np.bincount(first, minlength=length)
        if first.shape[0] < self._columns.size:
            counts += self._first_counts - np.bincount(self._first[where], minlength=length)
        if not np.array_equal(counts, self._first_counts):
            self._first_counts = counts
            self._first_names = None
        self._first[where] = first

    def _rule_out(self, rows: Rows) -> None:
        """Nobody is asked about these rows any more."""
        for row in rows.tolist() if self._seen else ():
            self._seen.pop(row, None)
        self._count_first(rows, np.full(rows.shape[0], len(self._filters), dtype=np.int16))
        self.feasible[rows] = False
        self.feasible_count = int(np.count_nonzero(self.feasible))
        self.totals[rows] = INFEASIBLE
        self._leaders.forget()

    def _grow(self, capacity: int) -> None:
        self.feasible = _longer(self.feasible, capacity, fill=False)
        self.totals = _longer(self.totals, capacity, fill=INFEASIBLE)
        self._first = _longer(self._first, capacity, fill=len(self._filters))
        self._scores_and_scaled = [
            (score, None if scaled is None else _longer(scaled, capacity, fill=0))
            for score, scaled in self._scores_and_scaled
        ]


def _longer(array: NDArray[Item], capacity: int, *, fill: int) -> NDArray[Item]:
    larger = np.full(capacity, fill, dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger
