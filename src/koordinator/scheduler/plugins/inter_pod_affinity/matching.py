"""Which terms of existing pods match an incoming pod: found once for pods of equal namespace and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.namespaces import NamespaceSelection
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Role, Term, TermReader

_FEW: Final = 32
_LabelsKey = tuple[str, frozenset[tuple[str, str]], bool]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Matches:
    """Terms of existing pods that match a pod. Equal sets are the same object."""

    blocking: frozenset[Term] = frozenset()
    """Required anti-affinity."""
    preferring: frozenset[Term] = frozenset()
    """What counts in scores."""


NO_MATCHES: Final = Matches()


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Labels:
    """Pods of one namespace with equal labels; ``terms`` is what matched them at the versions below."""

    namespace: str
    labels: Mapping[str, str]
    preferences: bool
    """Whether terms that only count in scores are of interest."""
    terms: set[Term] = field(default_factory=set)
    matches: Matches = NO_MATCHES
    terms_version: int = -1
    namespaces_version: int = -1


class Matcher:
    """``of`` gives the terms of pods on nodes that match a pod, and of those that are nominated to one."""

    def __init__(
        self,
        memo_key: str,
        view: ClusterView,
        reader: TermReader,
        existing: ExistingTerms,
        namespaces: NamespaceSelection,
    ) -> None:
        self._memo_key = memo_key
        self._nominations = view.nominations
        self._reader = reader
        self._existing = existing
        self._namespaces = namespaces
        self._labels: WeakValueDictionary[_LabelsKey, _Labels] = WeakValueDictionary()
        self._matches: WeakValueDictionary[frozenset[Term], Matches] = WeakValueDictionary()

    def of(self, pod: PodInfo, *, preferences: bool) -> Matches:
        """Terms that match the pod now; without ``preferences`` only those that can reject nodes."""
        nominated = len(self._nominations)
        if not len(self._existing) and not nominated:
            return NO_MATCHES
        labels = self._labels_of(pod, preferences)
        self._refresh(labels)
        if nominated and (coming := self._nominated(pod, labels)):
            return self._interned(labels.terms | coming)
        return labels.matches

    def minds(self, term: Term, pod: PodInfo) -> bool:
        """Whether a term that a pod on a node has, or had, is a required anti-affinity against ``pod``."""
        metadata = pod.pod.metadata
        return (
            term.role is Role.ANTI_AFFINITY
            and self._namespaces.covers(term, metadata.namespace)
            and term.selector.matches(metadata.labels)
        )

    def _labels_of(self, pod: PodInfo, preferences: bool) -> _Labels:
        known: _Labels | None = pod.memo.get(self._memo_key)
        if known is None:
            metadata = pod.pod.metadata
            key = metadata.namespace, frozenset(metadata.labels.items()), preferences
            known = self._labels.get(key)
            if known is None:
                known = self._labels[key] = _Labels(metadata.namespace, metadata.labels, preferences)
            pod.memo[self._memo_key] = known
        return known

    def _refresh(self, labels: _Labels) -> None:
        existing, namespaces = self._existing, self._namespaces
        if labels.terms_version == existing.version and labels.namespaces_version == namespaces.version:
            return
        changed = existing.changes_since(labels.terms_version) if labels.terms_version >= 0 else None
        if changed is None or len(changed) > _FEW or labels.namespaces_version != namespaces.version:
            found = {term for term in existing.candidates(labels.labels) if self._concerns(term, labels)}
        else:
            found = set(labels.terms)
            for term in changed:
                if existing.is_live(term) and self._concerns(term, labels):
                    found.add(term)
                else:
                    found.discard(term)
        labels.terms_version, labels.namespaces_version = existing.version, namespaces.version
        if found != labels.terms:
            labels.terms = found
            labels.matches = self._interned(found)

    def _nominated(self, pod: PodInfo, labels: _Labels) -> set[Term]:
        """Blocking terms of pods that count as being on the node that they are nominated to."""
        return {
            term
            for other in self._nominations.with_affinity
            if other.uid != pod.uid
            for term in self._reader.of(other).anti_affinity
            if self._concerns(term, labels)
        }

    def _concerns(self, term: Term, labels: _Labels) -> bool:
        if not labels.preferences and term.role is not Role.ANTI_AFFINITY:
            return False
        return self._namespaces.covers(term, labels.namespace) and term.selector.matches(labels.labels)

    def _interned(self, terms: Iterable[Term]) -> Matches:
        key = frozenset(terms)
        if not key:
            return NO_MATCHES
        known = self._matches.get(key)
        if known is None:
            blocking = frozenset(term for term in key if term.role is Role.ANTI_AFFINITY)
            known = self._matches[key] = Matches(blocking, key - blocking)
        return known
