"""``metav1.LabelSelector`` as a function of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordinator.api.document import Document

LabelMatcher = Callable[[Mapping[str, str]], bool]


def compile_selector(selector: Document | None) -> LabelMatcher | None:
    """None for a selector that matches everything."""
    selector = selector or {}
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    requirements = [_requirement(entry) for entry in selector.get("matchExpressions") or []]
    if not wanted and not requirements:
        return None
    return lambda labels: (
        all(labels.get(key) == value for key, value in wanted.items())
        and all(requirement(labels) for requirement in requirements)
    )


def _requirement(entry: Document) -> LabelMatcher:
    key, values = entry["key"], frozenset(entry.get("values") or ())
    match entry["operator"]:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
    return lambda labels: key not in labels
