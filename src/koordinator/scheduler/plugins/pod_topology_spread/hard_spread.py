"""Filter: rejects nodes where the pod would exceed the maxSkew of a DoNotSchedule constraint.

The result of a node depends on its domain alone, so there is one for each domain. A placement changes only the result
of its own domain, unless it changes the global minimum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.engine.plugin_forms import SomeRows, chosen, look_up
from koordinator.scheduler.explain.explainer import Lack, selector_text
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.spread import DomainCounts, Spread

MISSING_KEY: Final = 1
TOO_UNEVEN: Final = 2
READS: Final = (Aspect.NODE, Aspect.PODS, Aspect.LABELS)
_READ: Final = sum(1 << aspect for aspect in READS)
_OF_NODE: Final = 1 << Aspect.NODE
_FEW_CHANGES: Final = 256
_FEW_DOMAINS: Final = 3
"""Up to this many domains, comparing the rows with one domain after the other is faster."""
_Seen = list[Ints]
"""The codes of each constraint by domain, as of an earlier version."""


@dataclass(slots=True)
class _Limit:
    """How many matching pods a domain may have for another one to be placed there, and the codes by domain."""

    constraint: SpreadConstraint
    counts: DomainCounts
    most: int
    codes: Ints
    """Domain -> code; the last item, which rows without domain index, is MISSING_KEY. Never changed in place, so that
    classes can compare their earlier array with the current one."""

    @classmethod
    def of(cls, constraint: SpreadConstraint, counts: DomainCounts) -> _Limit:
        most = _most(constraint, counts)
        return cls(constraint, counts, most, _codes(counts, most))

    def codes_of(self, rows: SomeRows) -> Any:
        return look_up(self.codes, self.counts.domain, rows)

    def apply_delta(self, touched: Iterable[int]) -> None:
        """Update the codes after the counts of the domains ``touched`` have changed."""
        most, pods = _most(self.constraint, self.counts), self.counts.pods
        if most != self.most or self.codes.shape != pods.shape:
            self.most, self.codes = most, _codes(self.counts, most)
            return
        codes = self.codes
        for number in touched:
            code = FEASIBLE if pods.item(number) <= most else TOO_UNEVEN
            if codes.item(number) != code:
                codes = self.codes.copy() if codes is self.codes else codes
                codes[number] = code
        self.codes = codes

    def rows_of_others(self, seen: Ints) -> Mask | None:
        """The rows of the domains whose codes differ from ``seen``; None if there are none. A row that has moved to
        another domain since may be missing."""
        codes = self.codes
        if codes is seen:
            return None
        # Domains beyond are new, so all their rows have moved; the last item stands for no domain.
        known = min(codes.shape[0], seen.shape[0]) - 1
        numbers = (codes[:known] != seen[:known]).nonzero()[0]
        if not numbers.shape[0]:
            return None
        domain = self.counts.domain
        if numbers.shape[0] > _FEW_DOMAINS:
            others = np.zeros(codes.shape[0], dtype=np.bool_)
            others[numbers] = True
            return others.take(domain)
        first, *more = numbers.tolist()
        rows: Mask = domain == first
        for number in more:
            rows |= domain == number
        return rows


class HardSpread:
    """The results for all rows, shared by all classes of pods with equivalent constraints. ``refresh`` applies the
    changes of the columns; each class keeps the codes that it last saw, to find the rows that have changed since."""

    def __init__(self, columns: NodeColumns, spread: Spread, constraints: tuple[SpreadConstraint, ...]) -> None:
        self._columns = columns
        self._spread = spread
        self._constraints = constraints
        self._limits: list[_Limit] = []
        self._version = -1
        """The version of the columns that the results reflect."""

    def codes(self, rows: SomeRows) -> Any:
        """For each row FEASIBLE, or the code of the first constraint that it does not meet."""
        first, *others = self._limits
        codes = first.codes_of(rows)
        for limit in others:
            codes = chosen(codes == FEASIBLE, limit.codes_of(rows), codes)
        return codes

    def lacks(self, row: int, node: Node) -> list[Lack]:
        """One for each constraint that the row, whose node is ``node``, does not meet."""
        found = []
        for index, limit in enumerate(self._limits):
            code = limit.codes.item(limit.counts.domain.item(row))
            if code == MISSING_KEY:
                found.append(Lack(f"the node has no label {limit.constraint.topology_key}"))
            elif code != FEASIBLE:
                emptiest = self._spread.domain_name(index, limit.counts.emptiest)
                found.append(_too_uneven(limit, row, node, emptiest))
        return found

    def seen(self) -> _Seen:
        """The current codes by domain, to be passed to ``rows_of_others`` later."""
        return [limit.codes for limit in self._limits]

    def rows_of_others(self, seen: _Seen) -> Mask | None:
        """The rows whose results may have changed since ``seen`` by changes on other rows; None if there are none."""
        found: Mask | None = None
        for limit, codes in zip(self._limits, seen, strict=True):
            rows = limit.rows_of_others(codes)
            if rows is not None:
                found = rows if found is None else found | rows
        return found

    def refresh(self) -> None:
        """Apply the changes of the columns since the last call."""
        if self._version == self._columns.version:
            return
        if not self._limits:
            self._build()
        else:
            rows, of_node = self._touched()
            if self._spread.is_much(len(rows)):
                self._build()
            elif rows:
                self._apply_delta(rows, of_node)
        self._version = self._columns.version

    def _touched(self) -> tuple[list[int], list[int]]:
        """The rows of which an aspect in READS has changed, and those of them whose node has changed."""
        columns, version = self._columns, self._version
        changed = columns.changes_since(version, _FEW_CHANGES)
        if changed is not None:
            rows = [row for row, aspects in changed.items() if aspects & _READ]
            return rows, [row for row in rows if changed[row] & _OF_NODE]
        # Most of many changes are of aspects that do not matter here, such as loads.
        of_node = columns.versions(Aspect.NODE) > version
        every = np.logical_or.reduce([of_node, *(columns.versions(aspect) > version for aspect in READS)])
        return every.nonzero()[0].tolist(), of_node.nonzero()[0].tolist()

    def _apply_delta(self, rows: list[int], of_node: list[int]) -> None:
        """Update the counts and codes after changes on ``rows``."""
        domains, _ = self._spread.apply_delta(rows, of_node)
        for limit, numbers in zip(self._limits, domains, strict=True):
            if numbers:
                limit.apply_delta(numbers)

    def _build(self) -> None:
        self._spread.build()
        self._limits = [_Limit.of(*pair) for pair in zip(self._constraints, self._spread.counts, strict=True)]


class ClassSpread:
    """The Filter state of one class of pods: the shared results, and the codes that the class last saw."""

    def __init__(self, shared: HardSpread) -> None:
        self._shared = shared
        self._seen: _Seen | None = None

    def codes(self, rows: SomeRows) -> Any:
        """See HardSpread."""
        self._begin()
        return self._shared.codes(rows)

    def lacks(self, row: int, node: Node) -> list[Lack]:
        """See HardSpread."""
        self._begin()
        return self._shared.lacks(row, node)

    def apply_delta(self, rows: Rows) -> Rows | None:
        """See FilterPlugin.apply_delta."""
        if self._seen is None:
            return None
        self._shared.refresh()
        seen, self._seen = self._seen, self._shared.seen()
        others = self._shared.rows_of_others(seen)
        if others is None:
            return None
        others[rows] = False
        return others.nonzero()[0]

    def _begin(self) -> None:
        """Begin to track changes at the first evaluation: a class may be created some events before."""
        if self._seen is None:
            self._shared.refresh()
            self._seen = self._shared.seen()


def _most(constraint: SpreadConstraint, counts: DomainCounts) -> int:
    return constraint.max_skew + _least(constraint, counts) - constraint.matches_itself


def _least(constraint: SpreadConstraint, counts: DomainCounts) -> int:
    return counts.least if counts.present >= constraint.min_domains else 0


def _codes(counts: DomainCounts, most: int) -> Ints:
    codes: Ints = (counts.pods > most) * TOO_UNEVEN
    codes[-1] = MISSING_KEY
    return codes


def _too_uneven(limit: _Limit, row: int, node: Node, emptiest: str) -> Lack:
    """Why the node is rejected: the constraint, the node's domain, and ``emptiest``, a domain with the fewest pods."""
    constraint, counts, key = limit.constraint, limit.counts, limit.constraint.topology_key
    pods, least = counts.pods.item(counts.domain.item(row)), _least(constraint, counts)
    skew = pods + constraint.matches_itself - least
    number = "1 pod" if pods == 1 else f"{pods} pods"
    has = f"{key}={node.metadata.labels.get(key, '')} has {number} with {selector_text(constraint.selector)}"
    compared = f"the least is {least} in {key}={emptiest}"
    if counts.present < constraint.min_domains:
        domains = f"{counts.present} of at least {constraint.min_domains} domains (minDomains)"
        compared = f"and with {domains} 0 is the least"
    itself = "with this one the skew would be" if constraint.matches_itself else "the skew is"
    text = f"{has}, {compared}: {itself} {skew}, maxSkew is {constraint.max_skew}"
    return Lack(text, (skew - constraint.max_skew) / skew)
