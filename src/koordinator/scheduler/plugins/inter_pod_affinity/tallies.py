"""How much each row contributes to what a class of pods asks about, and the sums of that by topology domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from koordinator.scheduler.engine.label_groups import LabelGroup, LabelGroups
from koordinator.scheduler.plugins.inter_pod_affinity.domains import DomainSums, Topologies
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.namespaces import Namespaces
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term

K = TypeVar("K")
Weigh = Callable[[Term], int]
OnRow = Mapping[str, int]
"""Topology key -> amount."""
OnRows = Mapping[str, dict[int, int]]
"""Topology key -> row -> amount."""

_NOTHING: Final[OnRow] = MappingProxyType({})


def each_once(term: Term) -> int:
    return 1


def weight_of(term: Term) -> int:
    return term.weight


@dataclass(frozen=True, slots=True)
class OwnTerm:
    """A term of an incoming pod, with the namespaces that it is about."""

    term: Term
    namespaces: Namespaces

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod in ``namespace`` with ``labels`` is meant."""
        return (self.namespaces is None or namespace in self.namespaces) and self.term.selector.matches(labels)

    def groups(self, labels: LabelGroups) -> Iterable[LabelGroup]:
        """The pods on nodes that are meant."""
        found = labels.candidates(self.namespaces, self.term.selector.required)
        return [group for group in found if self.term.selector.matches(group.labels)]


class Source(Protocol):
    """Where contributions come from."""

    @property
    def keys(self) -> Iterable[str]:
        """All topology keys that it may ever have amounts for."""

    def on_row(self, row: int) -> OnRow:
        """What ``row`` contributes."""

    def everywhere(self) -> OnRows:
        """What all rows contribute."""


class Carriers:
    """Pods that carry one of ``terms``, which match the incoming pod."""

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
            for row, count in self._existing.rows(term).items():
                amounts[row] = amounts.get(row, 0) + count * weight
        return found


class Matching:
    """Pods that match any of ``terms``, of the incoming pod; once for each that they match."""

    def __init__(self, labels: LabelGroups, terms: Sequence[OwnTerm], weigh: Weigh) -> None:
        self._labels = labels
        self._terms = terms
        self._weigh = weigh
        self.keys = {own.term.topology_key for own in terms}

    def on_row(self, row: int) -> OnRow:
        amounts: dict[str, int] = {}
        for number, count in self._labels.on_row(row).items():
            group = self._labels.group(number)
            for own in self._terms:
                if own.matches(group.namespace, group.labels):
                    key = own.term.topology_key
                    amounts[key] = amounts.get(key, 0) + count * self._weigh(own.term)
        return amounts

    def everywhere(self) -> OnRows:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for own in self._terms:
            amounts, weight = found[own.term.topology_key], self._weigh(own.term)
            for group in own.groups(self._labels):
                for row, count in group.rows.items():
                    amounts[row] = amounts.get(row, 0) + count * weight
        return found


class MatchingAll:
    """Pods that match every one of ``terms``, of which there is at least one."""

    def __init__(self, labels: LabelGroups, terms: Sequence[OwnTerm]) -> None:
        self._labels = labels
        self._terms = terms
        self.keys = {own.term.topology_key for own in terms}

    def on_row(self, row: int) -> OnRow:
        amount = 0
        for number, count in self._labels.on_row(row).items():
            group = self._labels.group(number)
            if all(own.matches(group.namespace, group.labels) for own in self._terms):
                amount += count
        return dict.fromkeys(self.keys, amount)

    def everywhere(self) -> OnRows:
        amounts: dict[int, int] = {}
        for group in self._terms[0].groups(self._labels):
            if all(own.matches(group.namespace, group.labels) for own in self._terms[1:]):
                for row, count in group.rows.items():
                    amounts[row] = amounts.get(row, 0) + count
        return dict.fromkeys(self.keys, amounts)


class Tally:
    """Sums over ``sources`` for each topology key."""

    def __init__(self, topologies: Topologies, *sources: Source) -> None:
        self._topologies = topologies
        self._sources = [source for source in sources if source.keys]

    @cached_property
    def sums(self) -> Sequence[tuple[str, DomainSums]]:
        """As things are when this is first asked for, kept current by ``follow`` from then on."""
        everywhere = [source.everywhere() for source in self._sources]
        return [
            (key, DomainSums(self._topologies[key], _added(found.get(key, {}) for found in everywhere)))
            for key in sorted({key for source in self._sources for key in source.keys})
        ]

    def follow(self, rows: Iterable[int]) -> bool:
        """Something has changed on ``rows``; returns whether any sum has changed."""
        changed = False
        for row in rows:
            amounts = _NOTHING
            for source in self._sources:
                found = source.on_row(row)
                amounts = _added((amounts, found)) if amounts and found else amounts or found
            for key, sums in self.sums:
                changed |= sums.put(row, amounts.get(key, 0))
        return changed


def _added(parts: Iterable[Mapping[K, int]]) -> Mapping[K, int]:
    total: dict[K, int] = {}
    for part in parts:
        for key, amount in part.items():
            total[key] = total.get(key, 0) + amount
    return total
