"""Terms of pod affinity as the original shows them, resolved against the namespace of the pod.

It prints an empty object for each requirement of a selector; here one sees what they require.
"""

from __future__ import annotations

from typing import Any

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import PodAffinity, PodAffinityTerm


def required_terms(terms: PodAffinity | None, namespace: str) -> list[dict[str, Any]]:
    """``terms`` are those of pods in ``namespace``."""
    if terms is None:
        return []
    return [_term(term, namespace) for term in terms.required_during_scheduling_ignored_during_execution]


def preferred_terms(terms: PodAffinity | None, namespace: str) -> list[dict[str, Any]]:
    """As ``required_terms``, with weights."""
    if terms is None:
        return []
    return [
        {**_term(weighted.pod_affinity_term, namespace), "Weight": weighted.weight}
        for weighted in terms.preferred_during_scheduling_ignored_during_execution
    ]


def _term(term: PodAffinityTerm, namespace: str) -> dict[str, Any]:
    own = [namespace] if not term.namespaces and term.namespace_selector is None else []
    return {
        "Namespaces": {name: {} for name in (*term.namespaces, *own)},
        "Selector": _selector(term.label_selector),
        "TopologyKey": term.topology_key,
        "NamespaceSelector": _selector(term.namespace_selector),
    }


def _selector(selector: LabelSelector | None) -> Any:
    """A list of requirements, all of which must hold; an object for a selector that matches nothing."""
    if selector is None:
        return {}
    found = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()]
    found += [
        {"key": each.key, "operator": each.operator, "values": each.values} for each in selector.match_expressions
    ]
    return sorted(found, key=lambda each: str(each["key"]))
