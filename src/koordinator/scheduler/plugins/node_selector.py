"""Node selectors compiled to predicates (k8s.io/component-helpers/scheduling/corev1/nodeaffinity).

A term that cannot be parsed (an unknown operator, a bound that is no integer) matches nothing; the API server refuses
most such terms before they get here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm

NodePredicate = Callable[[Node], bool]
_Test = Callable[[str | None], bool]
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NAME_FIELD: Final = "metadata.name"


def required_predicate(pod: Pod) -> NodePredicate | None:
    """spec.nodeSelector and the required node affinity together; None when the pod has neither."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    labels = pod.spec.node_selector
    if required is None and not labels:
        return None
    terms = selector_predicate(required) if required is not None else _always

    def matches(node: Node) -> bool:
        present = node.metadata.labels
        return all(present.get(key) == value for key, value in labels.items()) and terms(node)

    return matches


def selector_predicate(selector: NodeSelector) -> NodePredicate:
    """Any of the terms; an empty selector or term matches nothing."""
    terms = [compiled for term in selector.node_selector_terms if (compiled := term_predicate(term)) is not None]
    return lambda node: any(term(node) for term in terms)


def preferred_score(terms: Sequence[PreferredSchedulingTerm]) -> Callable[[Node], int] | None:
    """The sum of the weights of the matching terms; None when there is nothing to prefer."""
    weighted = [
        (term.weight, compiled)
        for term in terms
        if term.weight and (compiled := term_predicate(term.preference)) is not None
    ]
    if not weighted:
        return None
    return lambda node: sum(weight for weight, matches in weighted if matches(node))


def term_predicate(term: NodeSelectorTerm) -> NodePredicate | None:
    """All requirements of the term; None for an empty one."""
    if not term.match_expressions and not term.match_fields:
        return None
    labels = [(requirement.key, _test(requirement)) for requirement in term.match_expressions]
    fields = [_field_test(requirement) for requirement in term.match_fields]

    def matches(node: Node) -> bool:
        present = node.metadata.labels
        return all(test(present.get(key)) for key, test in labels) and all(test(node.metadata.name) for test in fields)

    return matches


def node_names(selector: NodeSelector) -> frozenset[str] | None:
    """The only nodes that can match because every term names some; None when some term names none."""
    names: set[str] = set()
    for term in selector.node_selector_terms:
        listed = [
            set(field.values) for field in term.match_fields if field.key == _NAME_FIELD and field.operator == "In"
        ]
        if not listed:
            return None
        names |= set.intersection(*listed)
    return frozenset(names)


def _test(requirement: NodeSelectorRequirement) -> _Test:
    values = frozenset(requirement.values)
    tests: Mapping[str, _Test] = {
        "In": lambda value: value in values,
        "NotIn": lambda value: value not in values,
        "Exists": lambda value: value is not None,
        "DoesNotExist": lambda value: value is None,
        "Gt": _bound(requirement.values, above=True),
        "Lt": _bound(requirement.values, above=False),
    }
    return tests.get(requirement.operator, _never)


def _bound(values: Sequence[str], *, above: bool) -> _Test:
    if len(values) != 1 or not _INTEGER.fullmatch(values[0]):
        return _never
    bound = int(values[0])

    def test(value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return int(value) > bound if above else int(value) < bound

    return test


def _field_test(requirement: NodeSelectorRequirement) -> _Test:
    if requirement.key != _NAME_FIELD or len(requirement.values) != 1:
        return _never
    name = requirement.values[0]
    tests: Mapping[str, _Test] = {"In": lambda value: value == name, "NotIn": lambda value: value != name}
    return tests.get(requirement.operator, _never)


def _never(value: str | None) -> bool:
    return False


def _always(node: Node) -> bool:
    return True
