"""The InterPodAffinity plugin. It updates the terms of existing pods by events, and makes for each class of pods a
state from those that match it and from its own terms."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from koordinator.api.kinds import NAMESPACES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.scheduler.configuration.upstream_arguments import InterPodAffinityArgs
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    SKIP_FILTER,
    SKIP_SCORE,
    EventHandler,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.plugin_forms import CrossNodeFilterState, CrossNodeScoreState, SomeRows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.inter_pod_affinity.class_states import REASONS, FilterState, ScoreState
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms, Matcher, blocking
from koordinator.scheduler.plugins.inter_pod_affinity.rejected_pods import Explanation, Waiting
from koordinator.scheduler.plugins.inter_pod_affinity.term_counters import OwnTerm, OwnTerms
from koordinator.scheduler.plugins.inter_pod_affinity.terms import (
    NO_TERMS,
    NamespaceSelection,
    PodTerms,
    Term,
    TermReader,
)
from koordinator.scheduler.plugins.node_labels import Topologies

_NUMBERS: Final = itertools.count()
_NAMESPACE_EVENTS: Final = object_events(NAMESPACES)
_NODE_EVENTS: Final = frozenset({EventKind.NODE_ADD, EventKind.NODE_LABEL, EventKind.NODE_DELETE})
_POD_EVENTS: Final = frozenset({EventKind.POD_ADD, EventKind.POD_LABEL, EventKind.POD_DELETE})


_NO_TERMS: Final = OwnTerms()


class InterPodAffinity(PreFilterPlugin, CrossNodeFilterState, CrossNodeScoreState, EventHandler, Explainer):
    name = "InterPodAffinity"
    watches = (NAMESPACES,)
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS, Aspect.LABELS)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS, Aspect.LABELS)
    handles_status_updates: ClassVar[bool] = False

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        settings = args if isinstance(args, InterPodAffinityArgs) else InterPodAffinityArgs()
        self._ignores_preferences = settings.ignore_preferred_terms_of_existing_pods
        # Pods are shared with other profiles, whose plugins have terms of their own, and with this one before a reset.
        memo_key = f"{self.name}/{next(_NUMBERS)}"
        self._reader = TermReader(f"{memo_key}/terms", settings.hard_pod_affinity_weight)
        self._namespaces = NamespaceSelection(view)
        self._existing = ExistingTerms(view)
        self._matcher = Matcher(f"{memo_key}/labels", view, self._reader, self._existing, self._namespaces)
        self._context_key = f"{memo_key}/context"
        self._topologies = Topologies(view.columns)
        self._explanations: WeakKeyDictionary[FilterState, Explanation] = WeakKeyDictionary()
        self._contexts: WeakValueDictionary[Hashable, OwnTerms] = WeakValueDictionary()

    # Events.

    def on_node(self, row: int, node: Node) -> None:
        self._topologies.set(row, node)

    def on_node_removed(self, row: int, name: str) -> None:
        self._existing.clear(row)
        self._topologies.set(row, None)

    def reads_pod(self, pod: PodInfo) -> bool:
        return bool(self._reader.of(pod).for_others)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if self._existing.set(row, pod.uid, self._reader.of(pod).for_others):
            self.view.columns.touch(row, Aspect.PODS)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self._existing.remove(row, pod.uid)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind.name == NAMESPACES.name:
            self._namespaces.on_namespace(old, new)

    # Extension points.

    def class_key(self, pod: PodInfo) -> Hashable:
        terms = self._reader.of(pod)
        return None if terms is NO_TERMS else terms

    def concerns(self, pod: PodInfo) -> bool:
        """Whether it has terms, or there may be any that match it."""
        return self._reader.of(pod) is not NO_TERMS or self._matcher.has_terms

    def context_key(self, pod: PodInfo) -> Hashable:
        terms = self._reader.of(pod)
        if terms is NO_TERMS:
            matches = self._matches(pod, terms)
            return matches or None
        return self._matches(pod, terms), self._context(pod, terms)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        terms = self._reader.of(pod)
        if terms.errors:
            return PreFilterResult(rejection=Reason(f"parsing pod: {terms.errors}", unresolvable=True))
        against = blocking(self._matches(pod, terms))
        if not against and not terms.required:
            return SKIP_FILTER
        own = self._context(pod, terms)
        return PreFilterResult(FilterState(self.view, self._topologies, own, self._existing, against))

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (REASONS[code],)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        explanation = self._explanations.get(state)
        if explanation is None:
            explanation = self._explanations[state] = self._explanation(pod)
        return explanation.lacks(state, row)

    def pre_score(self, pod: PodInfo) -> Any:
        terms = self._reader.of(pod)
        matches = self._matches(pod, terms)
        preferring = matches - blocking(matches)
        if not preferring and not terms.preferred:
            return SKIP_SCORE
        own = self._context(pod, terms)
        return ScoreState(self.view, self._topologies, own, self._existing, preferring)

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return state.raw(rows)

    def events_to_register(self) -> frozenset[str]:
        return _POD_EVENTS | _NODE_EVENTS | _NAMESPACE_EVENTS

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        terms = self._reader.of(pod)
        waiting = Waiting(self._context(pod, terms), blocking(self._matches(pod, terms)))
        old, new = event.old, event.new
        if event.kind in _NAMESPACE_EVENTS:
            return waiting.namespace_changed(old, new)
        match event.kind:
            case EventKind.POD_ADD if new is not None:
                return waiting.pod_added(new)
            case EventKind.POD_LABEL if old is not None and new is not None:
                return waiting.pod_relabeled(old, new)
            case EventKind.POD_DELETE if old is not None:
                repelled = any(self._matcher.repels(term, pod) for term in self._reader.of(old).anti_affinity)
                return waiting.pod_removed(old, repelled=repelled)
            case EventKind.NODE_ADD if new is not None:
                return waiting.node_added(new)
            case EventKind.NODE_LABEL if old is not None and new is not None:
                return waiting.node_relabeled(old, new)
        return True

    def _explanation(self, pod: PodInfo) -> Explanation:
        terms = self._reader.of(pod)
        return Explanation(
            self.view,
            self._topologies,
            pod.pod.metadata.namespace,
            self._context(pod, terms),
            blocking(self._matches(pod, terms)),
            lambda term, other: term in self._reader.of(other).anti_affinity,
        )

    def _matches(self, pod: PodInfo, terms: PodTerms) -> frozenset[Term]:
        return self._matcher.of(pod, preferences=bool(terms.preferred) or not self._ignores_preferences)

    def _context(self, pod: PodInfo, terms: PodTerms) -> OwnTerms:
        """The pod's own terms; rebuilt after namespaces have changed."""
        if terms is NO_TERMS:
            return _NO_TERMS
        known: tuple[int, OwnTerms] | None = pod.memo.get(self._context_key)
        if known is None or known[0] != self._namespaces.version:
            known = pod.memo[self._context_key] = self._namespaces.version, self._new_context(pod, terms)
        return known[1]

    def _new_context(self, pod: PodInfo, terms: PodTerms) -> OwnTerms:
        """The context of the pod, shared with all pods of equal terms, such as its replicas."""
        namespaces = self._namespaces
        affinity, anti_affinity, preferred = (
            tuple([OwnTerm(term, namespaces.of(term)) for term in each])
            for each in (terms.affinity, terms.anti_affinity, terms.preferred)
        )
        metadata = pod.pod.metadata
        itself = bool(affinity) and all(own.matches(metadata.namespace, metadata.labels) for own in affinity)
        key = terms, itself, tuple([namespaces.of(term) for term in terms.selective])
        return self._contexts.setdefault(key, OwnTerms(affinity, anti_affinity, preferred, itself))
