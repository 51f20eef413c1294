"""Describes the requirements of a node selector, a pod's or a volume's, that a node does not meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from koordinator.model.node_selector import required_affinity, term_predicate

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
