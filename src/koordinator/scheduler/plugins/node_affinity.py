"""NodeAffinity: nodeSelector, required and preferred node affinity, and the affinity that the profile adds to all
pods; and which requirements of a node selector, a pod's or a volume's, a node does not meet."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import NodeAffinity as NodeAffinityTerms
from koordinator.api.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from koordinator.model.node_selector import (
    NodePredicate,
    node_names,
    preferred_score,
    required_affinity,
    required_predicate,
    selector_predicate,
    term_predicate,
)
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    SKIP_FILTER,
    SKIP_SCORE,
    EventHandler,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    default_normalize,
)
from koordinator.scheduler.engine.plugin_forms import ElementwiseFilterPlugin, ElementwiseScorePlugin, SomeRows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.node_labels import KnownResults, NodeResults

_ENFORCED: Final = 1
_OF_POD: Final = 2
_REASONS: Final = {
    _ENFORCED: Reason("node(s) didn't match scheduler-enforced node affinity", unresolvable=True),
    _OF_POD: Reason("node(s) didn't match Pod's node affinity/selector", unresolvable=True),
}
_CONFLICT: Final = Reason("pod affinity terms conflict", unresolvable=True)


def _code(added: NodePredicate | None, of_pod: NodePredicate | None, node: Node) -> int:
    if added is not None and not added(node):
        return _ENFORCED
    return FEASIBLE if of_pod is None or of_pod(node) else _OF_POD


class NodeAffinity(PreFilterPlugin, ElementwiseFilterPlugin, ElementwiseScorePlugin, EventHandler, Explainer):
    name = "NodeAffinity"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._results = KnownResults(view)
        added: NodeAffinityTerms | None = getattr(args, "added_affinity", None)
        required = added.required_during_scheduling_ignored_during_execution if added else None
        self._added = selector_predicate(required) if required else None
        self._added_preference = (
            preferred_score(added.preferred_during_scheduling_ignored_during_execution) if added else None
        )

    @property
    def event_handler(self) -> EventHandler:
        return self._results.rows

    def class_key(self, pod: PodInfo) -> Hashable:
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is None and not spec.node_selector:
            return None
        return tuple(sorted(spec.node_selector.items())), msgspec.json.encode(affinity)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        of_pod = required_predicate(pod.pod)
        if of_pod is None and self._added is None:
            return SKIP_FILTER
        state = self._results.get(("required", self.class_key(pod)), lambda: partial(_code, self._added, of_pod))
        required = required_affinity(pod.pod)
        if required is None or not required.node_selector_terms:
            return PreFilterResult(state)
        names = node_names(required)
        if names is not None and not names:
            return PreFilterResult(state, rejection=_CONFLICT)
        return PreFilterResult(state, node_names=names)

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        results: NodeResults = state
        return results.of(rows)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_REASONS[code],)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        node = self.view.columns.nodes[row]
        return [Lack(text) for text in unmet(pod.pod, node)] if code == _OF_POD and node is not None else []

    def pre_score(self, pod: PodInfo) -> Any:
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        preferred = preferred_score(affinity.preferred_during_scheduling_ignored_during_execution) if affinity else None
        preferences = tuple(score for score in (self._added_preference, preferred) if score is not None)
        if not preferences:
            return SKIP_SCORE
        # The sum of the weights of all preferences that a node meets.
        key = "preferred", self.class_key(pod)
        return self._results.get(key, lambda: lambda node: sum([score(node) for score in preferences]))

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        results: NodeResults = state
        return results.of(rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=False)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_LABEL})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        if event.new is None:
            return True
        of_pod = required_predicate(pod.pod)
        enforced = self._added is None or self._added(event.new)
        return enforced and (of_pod is None or of_pod(event.new))


_WITH_VALUES: Final = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}


def unmet(pod: Pod, node: Node) -> list[str]:
    """The unmet requirements of the pod's node selector and required node affinity; of several terms, any of which
    would suffice, those of the term with the fewest unmet ones."""
    labels = node.metadata.labels
    found = [
        f"label {key}={value} is needed, the node has {_present(key, labels.get(key))}"
        for key, value in sorted(pod.spec.node_selector.items())
        if labels.get(key) != value
    ]
    required = required_affinity(pod)
    return found + (nearest_unmet(required, node) if required is not None else [])


def nearest_unmet(selector: NodeSelector, node: Node) -> list[str]:
    """The unmet requirements of the term that is nearest to being met."""
    failures = [_failures(term, node) for term in selector.node_selector_terms]
    return min(failures, key=len, default=["the node affinity has no terms and matches nothing"])


def _failures(term: NodeSelectorTerm, node: Node) -> list[str]:
    labels, name = node.metadata.labels, node.metadata.name
    found = [
        f"label {_required_text(each)} is needed, the node has {_present(each.key, labels.get(each.key))}"
        for each in _failing(term.match_expressions, node, fields=False)
    ]
    found += [
        f"{_required_text(each)} is needed, the node is {name}"
        for each in _failing(term.match_fields, node, fields=True)
    ]
    if not found and not (term.match_expressions or term.match_fields):
        return ["an empty term of the node affinity matches nothing"]
    return found


def _failing(
    requirements: Iterable[NodeSelectorRequirement], node: Node, *, fields: bool
) -> Iterable[NodeSelectorRequirement]:
    for each in requirements:
        alone = NodeSelectorTerm(match_fields=[each]) if fields else NodeSelectorTerm(match_expressions=[each])
        matches = term_predicate(alone)
        if matches is None or not matches(node):
            yield each


def _required_text(requirement: NodeSelectorRequirement) -> str:
    key, values = requirement.key, ", ".join(requirement.values)
    match requirement.operator:
        case "Exists":
            return key
        case "DoesNotExist":
            return f"{key} absent"
        case "In" if len(requirement.values) == 1:
            return f"{key}={values}"
        case "In" | "NotIn":
            return f"{key} {_WITH_VALUES[requirement.operator]} ({values})"
        case operator:
            return f"{key} {_WITH_VALUES.get(operator, operator)} {values}"


def _present(key: str, value: str | None) -> str:
    return "none" if value is None else f"{key}={value}"
