"""InterPodAffinity once more: node by node and pod by pod, slow, and plain enough to be read against upstream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm

AFFINITY = ("node(s) didn't match pod affinity rules", True)
ANTI_AFFINITY = ("node(s) didn't match pod anti-affinity rules", False)
EXISTING = ("node(s) didn't satisfy existing pods anti-affinity rules", False)


@dataclass
class Picture:
    """A cluster as it is."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    """Name -> pod and the name of its node, which may be unknown."""
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name -> labels."""

    def placed(self) -> list[tuple[Pod, Node]]:
        return [(pod, self.nodes[name]) for pod, name in self.pods.values() if name in self.nodes]


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for expression in selector.match_expressions:
        value_there = labels.get(expression.key)
        holds = {
            "In": value_there in expression.values,
            "NotIn": value_there not in expression.values,
            "Exists": value_there is not None,
            "DoesNotExist": value_there is None,
        }[expression.operator]
        if not holds:
            return False
    return True


def matches(term: PodAffinityTerm, owner: Pod, other: Pod, picture: Picture, *, existing: bool) -> bool:
    """Whether a term of ``owner`` is about ``other``. ``existing``: the owner is on a node."""
    namespace = other.metadata.namespace
    named = term.namespaces
    if not named and term.namespace_selector is None:
        named = [owner.metadata.namespace]
    selector = term.namespace_selector
    everything = selector is not None and not selector.match_labels and not selector.match_expressions
    if existing:
        selected = selects(selector, picture.namespaces.get(namespace, {}))
    else:
        selected = everything or (namespace in picture.namespaces and selects(selector, picture.namespaces[namespace]))
    return (namespace in named or selected) and selects(term.label_selector, other.metadata.labels)


def near(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity.pod_affinity if pod.spec.affinity else None) or PodAffinity()


def apart(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None) or PodAffinity()


def required(side: PodAffinity) -> Sequence[PodAffinityTerm]:
    return side.required_during_scheduling_ignored_during_execution


def preferred(side: PodAffinity) -> Sequence[WeightedPodAffinityTerm]:
    return side.preferred_during_scheduling_ignored_during_execution


def same_domain(key: str, one: Node, other: Node) -> bool:
    return key in one.metadata.labels and one.metadata.labels[key] == other.metadata.labels.get(key)


def filter_result(pod: Pod, node: Node, picture: Picture) -> list[tuple[str, bool]]:
    """(reason, unresolvable); empty when the node passes."""
    if not near_enough(pod, node, picture):
        return [AFFINITY]
    for term in required(apart(pod)):
        for other, where in picture.placed():
            if matches(term, pod, other, picture, existing=False) and same_domain(term.topology_key, node, where):
                return [ANTI_AFFINITY]
    for other, where in picture.placed():
        for term in required(apart(other)):
            if matches(term, other, pod, picture, existing=True) and same_domain(term.topology_key, node, where):
                return [EXISTING]
    return []


def near_enough(pod: Pod, node: Node, picture: Picture) -> bool:
    terms = required(near(pod))
    if not terms:
        return True
    if any(term.topology_key not in node.metadata.labels for term in terms):
        return False
    meant = [
        where
        for other, where in picture.placed()
        if all(matches(term, pod, other, picture, existing=False) for term in terms)
    ]
    if all(any(same_domain(term.topology_key, node, where) for where in meant) for term in terms):
        return True
    counts = any(term.topology_key in where.metadata.labels for term in terms for where in meant)
    itself = all(matches(term, pod, pod, picture, existing=False) for term in terms)
    return itself and not counts


def raw_score(pod: Pod, node: Node, picture: Picture, hard_weight: int) -> int:
    score = 0
    for other, where in picture.placed():
        for sign, own, theirs in ((1, near(pod), near(other)), (-1, apart(pod), apart(other))):
            for weighted in preferred(own):
                term = weighted.pod_affinity_term
                if matches(term, pod, other, picture, existing=False) and same_domain(term.topology_key, node, where):
                    score += sign * weighted.weight
            for weighted in preferred(theirs):
                term = weighted.pod_affinity_term
                if matches(term, other, pod, picture, existing=True) and same_domain(term.topology_key, node, where):
                    score += sign * weighted.weight
        for term in required(near(other)):
            if matches(term, other, pod, picture, existing=True) and same_domain(term.topology_key, node, where):
                score += hard_weight
    return score


def scores(pod: Pod, picture: Picture, hard_weight: int = 1, *, ignore: bool = False) -> dict[str, int]:
    """Normalized scores of the nodes that pass."""
    if ignore and not preferred(near(pod)) and not preferred(apart(pod)):
        return {name: 0 for name, node in picture.nodes.items() if not filter_result(pod, node, picture)}
    raw = {
        name: raw_score(pod, node, picture, hard_weight)
        for name, node in picture.nodes.items()
        if not filter_result(pod, node, picture)
    }
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if lowest == highest:
        return dict.fromkeys(raw, 0)
    return {name: int(100.0 * (float(score - lowest) / float(highest - lowest))) for name, score in raw.items()}
