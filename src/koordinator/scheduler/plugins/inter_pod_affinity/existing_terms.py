"""The affinity terms of existing pods: how many pods on each node row carry a term, and which terms match a pod."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from koordinator.base.groups import Counts, Groups
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.terms import NamespaceSelection, Role, Term, TermReader

_CHANGES_KEPT: Final = 1024
_NEEDED: Final = ("In", "Exists")
_ANY: Final = ""
"""The bucket of terms that require no particular label; no label has an empty key."""


class ExistingTerms:
    """Counts terms of pods on nodes. A term is *live* while some pod on a node carries it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._carried = Groups[int, str, tuple[Term, ...]]()
        """Row -> uid of a pod there -> its terms."""
        self._on_row = Counts[int, Term]()
        self.live = Counts[Term, int]()
        """Live term -> row -> pods there that carry the term."""
        self._buckets = Groups[Hashable, Term, None]()
        self._bucket_of: dict[Term, Hashable] = {}
        self._changes: list[Term] = []
        self._changes_after = 0

    @property
    def version(self) -> int:
        """Increases whenever a term becomes live or stops being so."""
        return self._changes_after + len(self._changes)

    def is_live(self, term: Term) -> bool:
        return term in self.live

    def rows(self, term: Term) -> Mapping[int, int]:
        """Row -> pods there that carry the term."""
        return self.live.of(term)

    def on_row(self, row: int) -> Mapping[Term, int]:
        """Term -> pods on ``row`` that carry it."""
        return self._on_row.of(row)

    def changes_since(self, version: int) -> Sequence[Term] | None:
        """The terms that became live or stopped being so after ``version``; None if that is no longer recorded."""
        first = version - self._changes_after
        return self._changes[first:] if first >= 0 else None

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Term]:
        """Live terms that may match ``labels``: all that match, and some that do not."""
        keys: list[Hashable] = [_ANY, *labels, *labels.items()]
        for key in keys:
            yield from self._buckets.of(key)

    def set(self, row: int, uid: str, terms: tuple[Term, ...]) -> bool:
        """Set the terms of the pod on ``row``. Return whether it was counted before, with other terms."""
        before = self._carried.of(row).get(uid)
        if before == terms:
            return False
        self.remove(row, uid)
        if terms:
            self._carried.put(row, uid, terms)
            for term in terms:
                self._count(row, term, 1)
        return before is not None

    def remove(self, row: int, uid: str) -> None:
        """The pod is no longer on ``row``."""
        for term in self._carried.take(row, uid) or ():
            self._count(row, term, -1)

    def clear(self, row: int) -> None:
        """Remove all pods on ``row``."""
        for uid in tuple(self._carried.of(row)):
            self.remove(row, uid)

    def _count(self, row: int, term: Term, more: int) -> None:
        was_live = term in self.live
        self.live.add(term, row, more)
        self._on_row.add(row, term, more)
        if not was_live:
            # The smallest bucket, since some of the labels that a term requires are on every pod.
            keys = list(needed_labels(term)) or [_ANY]
            key = self._bucket_of[term] = min(keys, key=lambda each: len(self._buckets.of(each)))
            self._buckets.put(key, term, None)
            self._note(term)
        elif term not in self.live:
            self._buckets.take(self._bucket_of.pop(term), term)
            self._note(term)

    def _note(self, term: Term) -> None:
        # While there are none, most pods are not concerned.
        self._view.concerns_version += len(self.live) <= 1
        self._changes.append(term)
        if len(self._changes) > _CHANGES_KEPT:
            half = len(self._changes) // 2
            del self._changes[:half]
            self._changes_after += half


def needed_labels(term: Term) -> Iterable[Hashable]:
    """What every pod that matches the term has: labels as (key, value), or if it requires no exact label, keys."""
    exact = tuple(term.selector.required.items())
    return exact or tuple(each.key for each in term.selector.others if each.operator in _NEEDED)


_FEW: Final = 32
_LabelsKey = tuple[str, frozenset[tuple[str, str]], bool]


NO_MATCHES: Final = frozenset[Term]()


def blocking(matches: Iterable[Term]) -> frozenset[Term]:
    """Those of the matches that reject nodes, the required anti-affinity terms; the others count in scores."""
    return frozenset(term for term in matches if term.role is Role.ANTI_AFFINITY)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Labels:
    """Incoming pods of one namespace with equal labels; ``terms`` are those that matched them at the versions below."""

    namespace: str
    labels: Mapping[str, str]
    preferences: bool
    """Whether terms that only count in scores are included."""
    terms: frozenset[Term] = NO_MATCHES
    terms_version: int = -1
    namespaces_version: int = -1


class Matcher:
    """Finds the terms of existing and nominated pods that match an incoming pod, and caches them by its labels."""

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

    @property
    def has_terms(self) -> bool:
        """Whether there are any; ``view.concerns_version`` grows whenever that changes."""
        return bool(self._existing.live) or self._nominations.has_affinity

    def of(self, pod: PodInfo, *, preferences: bool) -> frozenset[Term]:
        """The terms that match the pod now; without ``preferences`` only those that can reject nodes."""
        nominated = not self._nominations.is_empty
        if not nominated and not self._existing.live:
            return NO_MATCHES
        labels = self._labels_of(pod, preferences)
        self._refresh(labels)
        coming = self._nominated(pod, labels) if nominated else ()
        # The set as it is where it can be: another one would have to be hashed anew.
        return labels.terms.union(coming) if coming else labels.terms

    def repels(self, term: Term, pod: PodInfo) -> bool:
        """Whether the term of an existing or deleted pod is a required anti-affinity that matches ``pod``."""
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
            labels.terms = frozenset(found)

    def _nominated(self, pod: PodInfo, labels: _Labels) -> set[Term]:
        """The blocking terms of nominated pods, which count as if they were on their nominated nodes."""
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
