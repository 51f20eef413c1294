"""Filter: where a pod may go without like pods being spread more unevenly than its DoNotSchedule constraints allow.

A node's verdict follows from its domain alone, so there is one for each domain, and a placement changes that of its own
domain unless it changes what all are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.domain_counts import DomainCounts
from koordinator.scheduler.plugins.pod_topology_spread.spread import Spread

MISSING_KEY: Final = 1
TOO_UNEVEN: Final = 2
READS: Final = (Aspect.NODE, Aspect.PODS, Aspect.LABELS)
_READ: Final = sum(1 << aspect for aspect in READS)
_FEW_CHANGES: Final = 256


@dataclass(frozen=True, slots=True)
class Unmet:
    """A constraint that a row does not meet, with what that follows from."""

    constraint: SpreadConstraint
    missing_key: bool
    pods: int
    """In the row's domain."""
    least: int
    """What that is compared with."""
    emptiest: str
    """A domain that has no more."""
    domains: int
    """How many count."""


@dataclass(slots=True)
class _Limit:
    """How many matching pods a domain may have for another to be placed there, and what follows for each domain."""

    constraint: SpreadConstraint
    counts: DomainCounts
    most: int
    codes: Ints
    """By domain; the last place, which rows without domain find, says MISSING_KEY."""

    @classmethod
    def of(cls, constraint: SpreadConstraint, counts: DomainCounts) -> _Limit:
        most = _most(constraint, counts)
        return cls(constraint, counts, most, _codes(counts, most))

    def follow(self, touched: Iterable[int]) -> Rows | None:
        """The counts of the domains ``touched`` have changed: the rows whose verdict changes."""
        most, pods = _most(self.constraint, self.counts), self.counts.pods
        if most != self.most or self.codes.shape != pods.shape:
            before, self.most, self.codes = self.codes, most, _codes(self.counts, most)
            return self._rows_in(self.codes[: before.shape[0] - 1] != before[:-1])
        found: Rows | None = None
        for number in touched:
            code = FEASIBLE if pods.item(number) <= most else TOO_UNEVEN
            if self.codes.item(number) != code:
                self.codes[number] = code
                rows = np.flatnonzero(self.counts.domain == number)
                found = rows if found is None else np.union1d(found, rows)
        return found

    def _rows_in(self, changed: Mask) -> Rows | None:
        """``changed`` by domain; nothing was said yet about domains beyond."""
        if not changed.any():
            return None
        more = self.codes.shape[0] - changed.shape[0]
        # New domains have no rows but those that are judged anyway, and no domain is the last place.
        every = np.concatenate([changed, np.zeros(more, dtype=np.bool_)])
        return np.flatnonzero(every[self.counts.domain])


class HardSpread:
    """The verdicts on all rows, shared by all classes of pods whose constraints ask for the same. Brings itself up to
    date, and remembers when the verdict on each row last changed, so that each class can catch up by itself."""

    def __init__(self, columns: NodeColumns, spread: Spread, constraints: tuple[SpreadConstraint, ...]) -> None:
        self._columns = columns
        self._spread = spread
        self._constraints = constraints
        self._limits: list[_Limit] = []
        self._version = -1
        """The version of the columns that everything is current for."""
        self.stamp = 0
        """Counts the times that verdicts changed."""
        self._changed: Ints = np.zeros(0, dtype=np.int64)
        """By row: the stamp of the last change of its verdict that did not come from the row itself."""

    def codes(self, rows: Rows) -> Ints:
        """FEASIBLE, or what the first constraint that is not met says."""
        first, *others = self._limits
        codes: Ints = first.codes[first.counts.domain[rows]]
        for limit in others:
            codes = np.where(codes == FEASIBLE, limit.codes[limit.counts.domain[rows]], codes)
        return codes

    def code(self, row: int) -> int:
        """The same for one row."""
        for limit in self._limits:
            code = limit.codes.item(limit.counts.domain.item(row))
            if code != FEASIBLE:
                return code
        return FEASIBLE

    def unmet(self, row: int) -> list[Unmet]:
        """The constraints that the row does not meet."""
        found = []
        for index, limit in enumerate(self._limits):
            counts, domain = limit.counts, limit.counts.domain.item(row)
            code = limit.codes.item(domain)
            if code != FEASIBLE:
                emptiest = self._spread.domain_name(index, counts.emptiest)
                pods, least = counts.pods.item(domain), _least(limit.constraint, counts)
                found.append(Unmet(limit.constraint, code == MISSING_KEY, pods, least, emptiest, counts.present))
        return found

    def changed_after(self, stamp: int) -> Rows:
        """The rows whose verdict has changed since, by what happened on others."""
        return np.flatnonzero(self._changed > stamp)

    def refresh(self) -> None:
        """Catch up with the columns."""
        if self._version == self._columns.version:
            return
        if not self._limits:
            self._build()
        elif (rows := self._touched()).shape[0]:
            found = self._rebuild() if self._spread.is_much(rows) else self._follow(rows)
            if found is not None and found.shape[0]:
                self.stamp += 1
                self._changed = _fitted(self._changed, self._columns.alive.shape[0])
                self._changed[found] = self.stamp
        self._version = self._columns.version

    def _touched(self) -> Rows:
        changed = self._columns.changes_since(self._version, _FEW_CHANGES)
        if changed is not None:
            return np.array(sorted(row for row, aspects in changed.items() if aspects & _READ), dtype=np.intp)
        rows, aspects = self._columns.touched_since(self._version)
        return rows if aspects & _READ else rows[:0]

    def _follow(self, rows: Rows) -> Rows | None:
        """Look at ``rows`` again; returns the rows whose verdict may change by that."""
        touched: list[set[int]] = [set() for _ in self._limits]
        for row in rows.tolist():
            for numbers, more in zip(touched, self._spread.follow(row), strict=True):
                numbers.update(more)
        found: Rows | None = None
        for limit, numbers in zip(self._limits, touched, strict=True):
            reached = limit.follow(numbers) if numbers else None
            if reached is not None:
                found = reached if found is None else np.union1d(found, reached)
        return found

    def _build(self) -> None:
        self._spread.build()
        self._limits = [_Limit.of(*pair) for pair in zip(self._constraints, self._spread.counts, strict=True)]

    def _rebuild(self) -> Rows:
        before = self.codes(np.arange(self._limits[0].counts.domain.shape[0]))
        self._build()
        after = self.codes(np.arange(before.shape[0]))
        return np.flatnonzero(after != before)


class ClassSpread:
    """The state of Filter for one class of pods: how far it has followed the verdicts that it shares."""

    def __init__(self, shared: HardSpread) -> None:
        self._shared = shared
        self._stamp = -1

    def codes(self, rows: Rows) -> Ints:
        """See HardSpread."""
        self._begin()
        return self._shared.codes(rows)

    def code(self, row: int) -> int:
        """See HardSpread."""
        self._begin()
        return self._shared.code(row)

    def unmet(self, row: int) -> list[Unmet]:
        """See HardSpread."""
        self._begin()
        return self._shared.unmet(row)

    def follow(self, rows: Rows) -> Rows | None:
        """See FilterPlugin.follow."""
        if self._stamp < 0:
            return None
        shared, before = self._shared, self._stamp
        shared.refresh()
        if shared.stamp == before:
            return None
        self._stamp = shared.stamp
        found = shared.changed_after(before)
        return found[found != rows[0]] if rows.shape[0] == 1 else np.setdiff1d(found, rows, assume_unique=True)

    def _begin(self) -> None:
        """Classes are planned some events before they are judged; from the first question on, they are told."""
        if self._stamp < 0:
            self._shared.refresh()
            self._stamp = self._shared.stamp


def _fitted(changed: Ints, capacity: int) -> Ints:
    more = capacity - changed.shape[0]
    return np.concatenate([changed, np.zeros(more, dtype=np.int64)]) if more > 0 else changed


def _most(constraint: SpreadConstraint, counts: DomainCounts) -> int:
    return constraint.max_skew + _least(constraint, counts) - constraint.matches_itself


def _least(constraint: SpreadConstraint, counts: DomainCounts) -> int:
    return counts.least if counts.present >= constraint.min_domains else 0


def _codes(counts: DomainCounts, most: int) -> Ints:
    codes = np.where(counts.pods <= most, FEASIBLE, TOO_UNEVEN)
    codes[-1] = MISSING_KEY
    return codes
