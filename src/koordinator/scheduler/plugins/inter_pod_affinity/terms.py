"""Affinity terms of pods, compiled once and shared, since thousands of replicas carry the same term.

Pods with equal terms share the same objects, so that terms are compared and hashed by identity. A term is kept as long
as any pod that carries it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from koordinator.api.kinds import NAMESPACES
from koordinator.api.meta import Object
from koordinator.api.pod import PodAffinity, PodAffinityTerm
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView


class Role(Enum):
    """What a term means to the pod."""

    AFFINITY = auto()
    ANTI_AFFINITY = auto()
    PREFERENCE = auto()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Term:
    """A compiled PodAffinityTerm: the namespaces and labels of the pods it matches, and the topology key."""

    role: Role
    weight: int
    """The weight in scores of a pod in the same domain that carries the term; negative for a preferred
    anti-affinity."""
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: CompiledSelector
    selector: CompiledSelector


@dataclass(slots=True, eq=False, weakref_slot=True)
class PodTerms:
    """All terms of a pod."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    for_others: tuple[Term, ...] = ()
    """The terms that affect incoming pods when a pod with these terms is on a node."""
    selective: tuple[Term, ...] = ()
    """The terms that select namespaces by labels."""
    errors: str = ""
    """The errors in invalid lists of terms, which are left out above."""

    @property
    def required(self) -> bool:
        """Whether there are terms that can reject nodes."""
        return bool(self.affinity or self.anti_affinity)


NO_TERMS: Final = PodTerms()
_TermKey = tuple[Role, int, str, frozenset[str], CompiledSelector, CompiledSelector]


class TermReader:
    """Compiles and caches the terms of pods. ``hard_weight``: the weight of required affinity terms of existing pods in
    the scores of incoming pods (``hardPodAffinityWeight``)."""

    def __init__(self, memo_key: str, hard_weight: int) -> None:
        self._memo_key = memo_key
        self._hard_weight = hard_weight
        self._terms: WeakValueDictionary[_TermKey, Term] = WeakValueDictionary()
        self._of_pods: WeakValueDictionary[Hashable, PodTerms] = WeakValueDictionary()

    def of(self, pod: PodInfo) -> PodTerms:
        """The terms of a pod; NO_TERMS for most."""
        affinity = pod.pod.spec.affinity
        if affinity is None:
            return NO_TERMS
        near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
        if near is None and apart is None:
            return NO_TERMS
        known: PodTerms | None = pod.memo.get(self._memo_key)
        if known is None:
            namespace = pod.pod.metadata.namespace
            key = namespace, msgspec.json.encode((near, apart))
            known = self._of_pods.get(key)
            if known is None:
                known = self._of_pods[key] = self._read(namespace, near or PodAffinity(), apart or PodAffinity())
            pod.memo[self._memo_key] = known
        return known

    def _read(self, namespace: str, near: PodAffinity, apart: PodAffinity) -> PodTerms:
        errors: list[str] = []

        def read(what: str, role: Role, given: Iterable[tuple[int, PodAffinityTerm]]) -> tuple[Term, ...]:
            # If one has an invalid selector, none of its list counts, as upstream.
            try:
                return tuple([self._term(role, weight, namespace, each) for weight, each in given])
            except SelectorError as error:
                errors.append(f"{what}: {error}")
                return ()

        required = near.required_during_scheduling_ignored_during_execution
        affinity = read("requiredAffinityTerms", Role.AFFINITY, [(self._hard_weight, each) for each in required])
        required = apart.required_during_scheduling_ignored_during_execution
        anti_affinity = read("requiredAntiAffinityTerms", Role.ANTI_AFFINITY, [(0, each) for each in required])
        liked = near.preferred_during_scheduling_ignored_during_execution
        disliked = apart.preferred_during_scheduling_ignored_during_execution
        soft = (
            *read("preferredAffinityTerms", Role.PREFERENCE, [(each.weight, each.pod_affinity_term) for each in liked]),
            *read(
                "preferredAntiAffinityTerms",
                Role.PREFERENCE,
                [(-each.weight, each.pod_affinity_term) for each in disliked],
            ),
        )
        for_others = (*anti_affinity, *(affinity if self._hard_weight else ()), *soft)
        selective = tuple(
            term
            for term in (*affinity, *anti_affinity, *soft)
            if not (term.namespace_selector.nothing or term.namespace_selector.empty)
        )
        return PodTerms(affinity, anti_affinity, soft, for_others, selective, "; ".join(errors))

    def _term(self, role: Role, weight: int, namespace: str, term: PodAffinityTerm) -> Term:
        """Compile a term. Raises SelectorError. matchLabelKeys and mismatchLabelKeys are not read: the API server has
        merged them into the selector."""
        own = not term.namespaces and term.namespace_selector is None
        key = (
            role,
            weight,
            term.topology_key,
            frozenset((namespace,) if own else term.namespaces),
            compile_selector(term.namespace_selector),
            compile_selector(term.label_selector),
        )
        known = self._terms.get(key)
        if known is None:
            known = self._terms[key] = Term(*key)
        return known


Namespaces = frozenset[str] | None
"""Names; None for all namespaces."""


class NamespaceSelection:
    """Resolves the namespaces of terms by the Namespace objects. ``version`` increases whenever a result may change."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.version = 0
        self._selected: WeakKeyDictionary[Term, tuple[int, frozenset[str]]] = WeakKeyDictionary()

    def on_namespace(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.version += 1

    def of(self, term: Term) -> Namespaces:
        """The namespaces of an incoming pod's term: those that it names and those that it selects."""
        selector = term.namespace_selector
        if selector.nothing:
            return term.namespaces
        if selector.empty:
            return None
        known = self._selected.get(term)
        if known is None or known[0] != self.version:
            objects = self._view.objects_of(NAMESPACES)
            found = (name for name, each in objects.items() if selector.matches(each.metadata.labels))
            known = self._selected[term] = self.version, term.namespaces.union(found)
        return known[1]

    def covers(self, term: Term, namespace: str) -> bool:
        """Whether an existing pod's term covers pods in ``namespace``. An unknown namespace has no labels, as
        upstream."""
        if namespace in term.namespaces:
            return True
        selector = term.namespace_selector
        found: Object | None = self._view.objects_of(NAMESPACES).get(namespace)
        return not selector.nothing and selector.matches(found.metadata.labels if found is not None else {})
