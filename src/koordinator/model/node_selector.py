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
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_INT64: Final = range(-(2**63), 2**63)
_NAME_FIELD: Final = "metadata.name"


def required_affinity(pod: Pod) -> NodeSelector | None:
    """The pod's required node affinity."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def required_predicate(pod: Pod) -> NodePredicate | None:
    """spec.nodeSelector and the required node affinity together; None when the pod has neither."""
    required = required_affinity(pod)
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
    """All requirements of the term; None for one that matches nothing: an empty one or one that cannot be parsed."""
    if not term.match_expressions and not term.match_fields:
        return None
    labels = [(requirement.key, test) for requirement in term.match_expressions if (test := _test(requirement))]
    fields = [test for requirement in term.match_fields if (test := _field_test(requirement))]
    if len(labels) < len(term.match_expressions) or len(fields) < len(term.match_fields):
        return None

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


def _test(requirement: NodeSelectorRequirement) -> _Test | None:
    """None for a requirement that cannot be parsed."""
    values = frozenset(requirement.values)
    if requirement.operator in ("Gt", "Lt"):
        return _bound(requirement.values, above=requirement.operator == "Gt")
    if bool(values) != (requirement.operator in ("In", "NotIn")):
        return None
    tests: Mapping[str, _Test] = {
        "In": lambda value: value in values,
        "NotIn": lambda value: value not in values,
        "Exists": lambda value: value is not None,
        "DoesNotExist": lambda value: value is None,
    }
    return tests.get(requirement.operator)


def _bound(values: Sequence[str], *, above: bool) -> _Test | None:
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None:
        return None

    def test(value: str | None) -> bool:
        found = _integer(value) if value is not None else None
        return found is not None and (found > bound if above else found < bound)

    return test


def _integer(text: str) -> int | None:
    """An integer of 64 bits, which is what Go parses; None for any other text."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and number in _INT64 else None


def _field_test(requirement: NodeSelectorRequirement) -> _Test | None:
    if requirement.key != _NAME_FIELD or len(requirement.values) != 1:
        return None
    name = requirement.values[0]
    tests: Mapping[str, _Test] = {"In": lambda value: value == name, "NotIn": lambda value: value != name}
    return tests.get(requirement.operator)


def _always(node: Node) -> bool:
    return True
