"""Counters of the pods that match the terms of a class, or whose terms match it, by node row and topology domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.plugin_forms import SomeRows, look_up
from koordinator.scheduler.engine.view import LabelGroup, LabelGroups
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Namespaces, Term
from koordinator.scheduler.plugins.node_labels import NO_DOMAIN, Topologies, Topology, widened

K = TypeVar("K")
Weigh = Callable[[Term], int]
OnRow = Mapping[str, int]
"""Topology key -> amount."""
OnRows = Mapping[str, dict[int, int]]
"""Topology key -> row -> amount."""

_NOTHING: Final[OnRow] = MappingProxyType({})
_REMEMBERED: Final = 4096
_MANY_ROWS: Final = 16
_WORTH_A_ROW: Final = 8
"""Going through this many contributing rows takes as long as computing the amount of one row."""


def each_once(term: Term) -> int:
    return 1


def weight_of(term: Term) -> int:
    return term.weight


@dataclass(frozen=True, slots=True)
class OwnTerm:
    """A term of an incoming pod, with the namespaces that it selects."""

    term: Term
    namespaces: Namespaces

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term matches a pod in ``namespace`` with ``labels``."""
        return (self.namespaces is None or namespace in self.namespaces) and self.term.selector.matches(labels)

    def groups(self, labels: LabelGroups) -> Iterable[LabelGroup]:
        """The groups of existing pods that match the term."""
        found = labels.candidates(self.namespaces, self.term.selector.required)
        return [group for group in found if self.term.selector.matches(group.labels)]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OwnTerms:
    """The terms of a pod, with the namespaces that they select now. Equal ones are the same object."""

    affinity: tuple[OwnTerm, ...] = ()
    anti_affinity: tuple[OwnTerm, ...] = ()
    preferred: tuple[OwnTerm, ...] = ()
    matches_itself: bool = False
    """The pod has a required affinity that matches the pod itself."""


class Source(Protocol):
    """Computes the amounts that node rows contribute."""

    @property
    def keys(self) -> Iterable[str]:
        """All topology keys for which the source can have amounts."""

    def on_row(self, row: int) -> OnRow:
        """The amounts of ``row``."""

    def everywhere(self) -> OnRows:
        """The amounts of all rows."""


class Carriers:
    """Counts existing pods that carry any of ``terms``, which match the incoming pod."""

    def __init__(self, existing: ExistingTerms, terms: frozenset[Term], weigh: Weigh) -> None:
        self._existing = existing
        self._terms = terms
        self._weigh = weigh
        self.keys = {term.topology_key for term in terms}

    def on_row(self, row: int) -> OnRow:
        amounts: dict[str, int] = {}
        for term, count in self._existing.on_row(row).items():
            if term in self._terms:
                key = term.topology_key
                amounts[key] = amounts.get(key, 0) + count * self._weigh(term)
        return amounts

    def everywhere(self) -> OnRows:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for term in self._terms:
            amounts, weight = found[term.topology_key], self._weigh(term)
            _add_to(amounts, self._existing.rows(term), weight)
        return found


class Matching:
    """Counts existing pods that match any of the incoming pod's ``terms``, once for each term that they match."""

    def __init__(self, labels: LabelGroups, terms: Sequence[OwnTerm], weigh: Weigh) -> None:
        self._labels = labels
        self._terms = terms
        self._weigh = weigh
        self.keys = {own.term.topology_key for own in terms}
        self._known: dict[int, OnRow] = {}
        """Number of a label group -> the amounts that each pod of the group adds."""

    def on_row(self, row: int) -> OnRow:
        amounts: dict[str, int] = {}
        known = self._known
        for number, count in self._labels.on_row(row).items():
            each = known.get(number)
            for key, weight in (self._of_group(number) if each is None else each).items():
                amounts[key] = amounts.get(key, 0) + count * weight
        return amounts

    def everywhere(self) -> OnRows:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for own in self._terms:
            amounts, weight = found[own.term.topology_key], self._weigh(own.term)
            for group in own.groups(self._labels):
                _add_to(amounts, group.rows, weight)
        return found

    def _of_group(self, number: int) -> OnRow:
        group, amounts = self._labels.group(number), dict[str, int]()
        for own in self._terms:
            if own.matches(group.namespace, group.labels):
                key = own.term.topology_key
                amounts[key] = amounts.get(key, 0) + self._weigh(own.term)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        found = self._known[number] = amounts or _NOTHING
        return found


class MatchingAll:
    """Counts existing pods that match all of ``terms``, of which there is at least one."""

    def __init__(self, labels: LabelGroups, terms: Sequence[OwnTerm]) -> None:
        self._labels = labels
        self._terms = terms
        self.keys = {own.term.topology_key for own in terms}
        self._known: dict[int, bool] = {}
        """Number of a label group -> whether its pods match."""

    def on_row(self, row: int) -> OnRow:
        amount, known = 0, self._known
        for number, count in self._labels.on_row(row).items():
            match = known.get(number)
            if self._is_match(number) if match is None else match:
                amount += count
        return dict.fromkeys(self.keys, amount) if amount else _NOTHING

    def everywhere(self) -> OnRows:
        amounts: dict[int, int] = {}
        for group in self._terms[0].groups(self._labels):
            if all(own.matches(group.namespace, group.labels) for own in self._terms[1:]):
                _add_to(amounts, group.rows, 1)
        return dict.fromkeys(self.keys, amounts)

    def _is_match(self, number: int) -> bool:
        group = self._labels.group(number)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        match = self._known[number] = all(own.matches(group.namespace, group.labels) for own in self._terms)
        return match


class DomainSums:
    """The amounts that node rows contribute, summed by domain. If a row changes its domain, so does its amount."""

    def __init__(self, topology: Topology, contributions: Mapping[int, int]) -> None:
        self.topology = topology
        rows, amounts = _array(contributions.keys()), _array(contributions.values())
        self._domain: Rows = topology.domain.copy()
        """Row -> the domain to which it contributes."""
        self._amount: Ints = np.zeros(self._domain.shape[0], dtype=np.int64)
        self._amount[rows] = np.where(self._domain[rows] == NO_DOMAIN, 0, amounts)
        self._sums: Ints = np.zeros(topology.size + 1, dtype=np.int64)
        np.add.at(self._sums, self._domain[rows], self._amount[rows])
        self._occupied = int(np.count_nonzero(self._sums))
        self._turned: set[int] = set()

    @property
    def empty(self) -> bool:
        """Whether the sum is zero in every domain."""
        return not self._occupied

    def occupied_values(self) -> list[str]:
        """The label's values in the domains whose sum is not zero."""
        return sorted(self.topology.name(domain) for domain in np.flatnonzero(self._sums).tolist())

    def put(self, row: int, amount: int) -> bool:
        """Set the amount of ``row``, in the domain in which it is now. Return whether any sum has changed."""
        self._reach(row)
        domain, before = self.topology.domain.item(row), self._domain.item(row)
        if domain == NO_DOMAIN:
            amount = 0
        known = self._amount.item(row)
        if domain == before:
            if amount == known:
                return False
            self._amount[row] = amount
            self._add(domain, amount - known)
            return True
        self._amount[row], self._domain[row] = amount, domain
        self._add(before, -known)
        self._add(domain, amount)
        return bool(known or amount)

    def put_all(self, rows: Sequence[int], amounts: Mapping[int, int]) -> bool:
        """As ``put`` for each of ``rows``, with 0 for those missing in ``amounts``. Efficient if most have not
        changed."""
        self._reach(max(max(rows), max(amounts, default=0)))
        places = np.array(rows, dtype=np.intp)
        given = np.zeros(self._amount.shape[0], dtype=np.int64)
        given[_array(amounts.keys())] = _array(amounts.values())
        others = (self._amount[places] != given[places]) | (self._domain[places] != self.topology.domain[places])
        changed = False
        for row in places[others].tolist():
            changed |= self.put(row, amounts.get(row, 0))
        return changed

    @property
    def contributors(self) -> int:
        """The number of rows with an amount other than 0."""
        return int(np.count_nonzero(self._amount))

    def turned_rows(self) -> set[int]:
        """The rows of domains whose sum has changed to or from zero since the last call."""
        if not self._turned:
            return set()
        rows = set[int]().union(*map(self.topology.rows, self._turned))
        self._turned.clear()
        return rows

    def at(self, rows: SomeRows) -> Any:
        """The sum of each row's domain; 0 without a domain."""
        if self._sums.shape[0] <= self.topology.size:
            self._sums = widened(self._sums, self.topology.size + 1)
        return look_up(self._sums, self.topology.domain, rows)

    def _reach(self, row: int) -> None:
        if row >= self._amount.shape[0]:
            self._domain = widened(self._domain, row + 1, NO_DOMAIN)
            self._amount = widened(self._amount, row + 1)

    def _add(self, domain: int, amount: int) -> None:
        if not amount:
            return
        if domain >= self._sums.shape[0] - 1:
            self._sums = widened(self._sums, self.topology.size + 1)
        before = self._sums.item(domain)
        self._sums[domain] = before + amount
        if not before or not before + amount:
            self._occupied += 1 if not before else -1
            self._turned ^= {domain}


def _array(numbers: Collection[int]) -> Ints:
    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))


class TermCounter:
    """The summed amounts of ``sources`` by topology key and domain."""

    def __init__(self, topologies: Topologies, *sources: Source) -> None:
        self._topologies = topologies
        self._sources = [source for source in sources if source.keys]

    @cached_property
    def sums(self) -> Sequence[tuple[str, DomainSums]]:
        """The sums by topology key, computed at the first read and updated by ``apply_delta`` from then on."""
        everywhere = self._everywhere()
        return [(key, DomainSums(self._topologies[key], amounts)) for key, amounts in everywhere]

    def apply_delta(self, rows: Sequence[int]) -> bool:
        """Update the sums after changes on ``rows``. Return whether any sum has changed."""
        if len(rows) >= _MANY_ROWS:
            known = sum([sums.contributors for _, sums in self.sums])
            if known <= len(rows) * _WORTH_A_ROW:
                return self._apply_all(rows)
        changed, sums = False, self.sums
        first, *others = self._sources
        for row in rows:
            amounts = first.on_row(row)
            for other in others:
                amounts = _added((amounts, other.on_row(row)))
            for key, each in sums:
                changed |= each.put(row, amounts.get(key, 0))
        return changed

    def _apply_all(self, rows: Sequence[int]) -> bool:
        """As ``apply_delta``, but computes the amounts of all contributing rows at once instead of row by row."""
        changed = False
        for (_, sums), (_, amounts) in zip(self.sums, self._everywhere(), strict=True):
            changed |= sums.put_all(rows, amounts)
        return changed

    def _everywhere(self) -> list[tuple[str, Mapping[int, int]]]:
        """The amounts of all rows by topology key, sorted by key."""
        found = [source.everywhere() for source in self._sources]
        keys = sorted({key for source in self._sources for key in source.keys})
        if len(found) == 1:
            return [(key, found[0][key]) for key in keys]
        return [(key, _added(each.get(key, {}) for each in found)) for key in keys]


def _add_to(amounts: dict[int, int], counts: Mapping[int, int], weight: int) -> None:
    """Add ``weight`` times ``counts``, by row, to ``amounts``."""
    if weight == 1 and not amounts:
        amounts.update(counts)
        return
    for row, count in counts.items():
        amounts[row] = amounts.get(row, 0) + count * weight


def _added(parts: Iterable[Mapping[K, int]]) -> Mapping[K, int]:
    total: dict[K, int] = {}
    for part in parts:
        for key, amount in part.items():
            total[key] = total.get(key, 0) + amount
    return total
