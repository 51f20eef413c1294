"""Which namespaces a term is about, by the labels that namespaces have at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary

from koordinator.api.kinds import NAMESPACES
from koordinator.api.meta import Object
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term

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
