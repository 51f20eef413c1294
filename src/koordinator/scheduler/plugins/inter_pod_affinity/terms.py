"""Affinity terms of pods, compiled once and shared: replicas by the thousand carry one and the same term.

Whatever has equal terms has the *same* terms here, so that terms are compared and hashed by identity. A term lives as
long as a pod that carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from koordinator.api.kinds import NAMESPACES
from koordinator.api.meta import Object
from koordinator.api.pod import PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView


class Role(Enum):
    """What a term is for."""

    AFFINITY = "requiredAffinityTerms"
    ANTI_AFFINITY = "requiredAntiAffinityTerms"
    PREFERENCE = "preferredAffinityTerms"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Term:
    """Pods in some namespaces that have some labels, and the label of nodes that tells what is near."""

    role: Role
    weight: int
    """In scores, if a pod near by carries the term; negative for a preferred anti-affinity."""
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
    """What counts for other pods when a pod with these terms is on a node."""
    selective: tuple[Term, ...] = ()
    """Those that are about namespaces with certain labels."""
    errors: str = ""
    """Why some of them cannot be used; they are left out above."""

    @property
    def required(self) -> bool:
        """Whether they can reject nodes."""
        return bool(self.affinity or self.anti_affinity)


NO_TERMS: Final = PodTerms()
_TermKey = tuple[Role, int, str, frozenset[str], CompiledSelector, CompiledSelector]


class TermReader:
    """``of`` gives the terms of a pod. ``hard_weight`` is what a required affinity is worth in scores of others."""

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

        def required(role: Role, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
            weight = self._hard_weight if role is Role.AFFINITY else 0
            return _all_or_none(
                role.value, errors, lambda: [self._term(role, weight, namespace, each) for each in terms]
            )

        def preferred(what: str, sign: int, terms: Sequence[WeightedPodAffinityTerm]) -> tuple[Term, ...]:
            def read() -> list[Term]:
                return [
                    self._term(Role.PREFERENCE, sign * each.weight, namespace, each.pod_affinity_term) for each in terms
                ]

            return _all_or_none(what, errors, read)

        affinity = required(Role.AFFINITY, near.required_during_scheduling_ignored_during_execution)
        anti_affinity = required(Role.ANTI_AFFINITY, apart.required_during_scheduling_ignored_during_execution)
        soft = (
            *preferred("preferredAffinityTerms", 1, near.preferred_during_scheduling_ignored_during_execution),
            *preferred("preferredAntiAffinityTerms", -1, apart.preferred_during_scheduling_ignored_during_execution),
        )
        for_others = (*anti_affinity, *(affinity if self._hard_weight else ()), *soft)
        selective = tuple(
            term
            for term in (*affinity, *anti_affinity, *soft)
            if not (term.namespace_selector.nothing or term.namespace_selector.empty)
        )
        return PodTerms(affinity, anti_affinity, soft, for_others, selective, "; ".join(errors))

    def _term(self, role: Role, weight: int, namespace: str, term: PodAffinityTerm) -> Term:
        """Raises SelectorError. The API server has merged matchLabelKeys and mismatchLabelKeys into the selector."""
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


def _all_or_none(what: str, errors: list[str], read: Callable[[], list[Term]]) -> tuple[Term, ...]:
    """One selector that cannot be used takes the others of its list with it, as upstream."""
    try:
        return tuple(read())
    except SelectorError as error:
        errors.append(f"{what}: {error}")
        return ()


Namespaces = frozenset[str] | None
"""Names; None for all namespaces."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class NamespaceSelection:
    """Reads the Namespace objects of the view; ``version`` grows whenever an answer may have changed."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.version = 0
        self._selected: WeakKeyDictionary[Term, tuple[int, frozenset[str]]] = WeakKeyDictionary()

    def on_namespace(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.version += 1

    def of(self, term: Term) -> Namespaces:
        """The namespaces that a term of an incoming pod is about: those that it names and those that it selects."""
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
        """Whether a term of an existing pod is about pods in ``namespace``. A namespace that is not known has no
        labels, as upstream."""
        if namespace in term.namespaces:
            return True
        selector = term.namespace_selector
        return not selector.nothing and selector.matches(self._labels(namespace))

    def _labels(self, name: str) -> Mapping[str, str]:
        found: Object | None = self._view.objects_of(NAMESPACES).get(name)
        return found.metadata.labels if found is not None else _NO_LABELS
