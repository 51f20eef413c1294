"""Counters of the pods that match the terms of a class, or whose terms match it, by node row and topology domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.plugin_forms import SomeRows, look_up
from koordinator.scheduler.engine.view import LabelGroup, LabelGroups, MatchingPods
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Namespaces, Term
from koordinator.scheduler.plugins.node_labels import NO_DOMAIN, Topologies, Topology, widened

Weigh = Callable[[Term], int]

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


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OwnTerms:
    """The terms of a pod, with the namespaces that they select now. Equal ones are the same object."""

    affinity: tuple[OwnTerm, ...] = ()
    anti_affinity: tuple[OwnTerm, ...] = ()
    preferred: tuple[OwnTerm, ...] = ()
    matches_itself: bool = False
    """The pod has a required affinity that matches the pod itself."""


class Carriers:
    """Counts existing pods that carry any of ``terms``, which match the incoming pod and have one topology key."""

    def __init__(self, existing: ExistingTerms, terms: Collection[Term], weigh: Weigh) -> None:
        self._existing = existing
        self._weights = {term: weigh(term) for term in terms}

    def on_row(self, row: int) -> int:
        """The amount of ``row``."""
        carried, weights = self._existing.on_row(row), self._weights
        return sum([count * weights[term] for term, count in carried.items() if term in weights])

    def everywhere(self) -> Mapping[int, int]:
        """Row -> amount, of all rows with such pods."""
        counts = [(self._existing.rows(term), weight) for term, weight in self._weights.items()]
        return _added((row, count * weight) for rows, weight in counts for row, count in rows.items())


Source = MatchingPods | Carriers
Sources = Iterable[tuple[str, Source]]
"""What nodes contribute, with the topology key by which it is summed."""


def carriers(existing: ExistingTerms, terms: Iterable[Term], weigh: Weigh) -> Sources:
    """The existing pods that carry any of ``terms``, which match the incoming pod."""
    by_key: defaultdict[str, list[Term]] = defaultdict(list)
    for term in terms:
        by_key[term.topology_key].append(term)
    return [(key, Carriers(existing, of_key, weigh)) for key, of_key in by_key.items()]


def matching_any(labels: LabelGroups, terms: Iterable[OwnTerm], weigh: Weigh) -> Sources:
    """The existing pods that match any of the incoming pod's ``terms``, once for each term that they match."""
    by_key: defaultdict[str, list[OwnTerm]] = defaultdict(list)
    for own in terms:
        by_key[own.term.topology_key].append(own)

    def weight(of_key: Sequence[OwnTerm], group: LabelGroup) -> int:
        return sum([weigh(own.term) for own in of_key if own.matches(group.namespace, group.labels)])

    for key, of_key in by_key.items():
        yield key, MatchingPods(labels, partial(_candidates, labels, of_key), partial(weight, of_key))


def matching_all(labels: LabelGroups, terms: Sequence[OwnTerm]) -> Sources:
    """The existing pods that match all of ``terms``."""

    def matches(group: LabelGroup) -> bool:
        return all(own.matches(group.namespace, group.labels) for own in terms)

    pods = MatchingPods(labels, partial(_candidates, labels, terms[:1]), matches)
    return [(key, pods) for key in {own.term.topology_key for own in terms}]


def _candidates(labels: LabelGroups, terms: Iterable[OwnTerm]) -> Collection[LabelGroup]:
    """The groups that may match any of the terms."""
    found = [labels.candidates(own.namespaces, own.term.selector.required) for own in terms]
    return {group.number: group for groups in found for group in groups}.values()


class DomainSums:
    """The amounts that the ``sources`` have on node rows, summed by domain. If a row changes its domain, so does its
    amount."""

    def __init__(self, topology: Topology, sources: Sequence[Source]) -> None:
        self.topology = topology
        self._sources = sources
        contributions = self._everywhere()
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

    def apply_delta(self, rows: Sequence[int]) -> bool:
        """Update the sums after changes on ``rows``. Return whether any of them has changed."""
        if len(rows) >= _MANY_ROWS and np.count_nonzero(self._amount) <= len(rows) * _WORTH_A_ROW:
            return self._put_all(rows, self._everywhere())
        changed = False
        for row in rows:
            amount = 0
            for source in self._sources:
                amount += source.on_row(row)
            changed |= self._put(row, amount)
        return changed

    def _everywhere(self) -> Mapping[int, int]:
        found = [source.everywhere() for source in self._sources]
        return found[0] if len(found) == 1 else _added(item for each in found for item in each.items())

    def _put(self, row: int, amount: int) -> bool:
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

    def _put_all(self, rows: Sequence[int], amounts: Mapping[int, int]) -> bool:
        """As ``_put`` for each of ``rows``, with 0 for those missing in ``amounts``. Efficient if most have not
        changed."""
        self._reach(max(max(rows), max(amounts, default=0)))
        places = np.array(rows, dtype=np.intp)
        given = np.zeros(self._amount.shape[0], dtype=np.int64)
        given[_array(amounts.keys())] = _array(amounts.values())
        others = (self._amount[places] != given[places]) | (self._domain[places] != self.topology.domain[places])
        changed = False
        for row in places[others].tolist():
            changed |= self._put(row, amounts.get(row, 0))
        return changed

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

    def __init__(self, topologies: Topologies, *sources: Sources) -> None:
        self._topologies = topologies
        self.sources: defaultdict[str, list[Source]] = defaultdict(list)
        """Topology key -> what is counted; none if there is nothing to count, ever."""
        for key, source in chain.from_iterable(sources):
            self.sources[key].append(source)

    @cached_property
    def sums(self) -> Sequence[DomainSums]:
        """The sums, sorted by topology key, computed at the first read and updated by ``apply_delta`` from then on."""
        return [DomainSums(self._topologies[key], sources) for key, sources in sorted(self.sources.items())]

    def apply_delta(self, rows: Sequence[int]) -> bool:
        """Update the sums after changes on ``rows``. Return whether any sum has changed."""
        changed = False
        for sums in self.sums:
            changed |= sums.apply_delta(rows)
        return changed


def _added(amounts: Iterable[tuple[int, int]]) -> Mapping[int, int]:
    total: dict[int, int] = {}
    for row, amount in amounts:
        total[row] = total.get(row, 0) + amount
    return total
