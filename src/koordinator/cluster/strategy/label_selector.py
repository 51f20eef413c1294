"""The rules for a ``metav1.LabelSelector`` field, in the real server's words."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.api.names import label_key, label_value
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, required
from koordinator.cluster.strategy.metadata import validate_labels


def validate_label_selector(selector: Document, field: str, *, any_value: bool = False) -> list[Cause]:
    """``any_value`` lets through label values that can never match, for objects that were stored with them."""
    causes = validate_labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or []):
        causes += _requirement(requirement, f"{field}.matchExpressions[{index}]", any_value=any_value)
    return causes


def _requirement(requirement: Document, field: str, *, any_value: bool) -> list[Cause]:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    causes = _operator(operator, values, field)
    key: str = requirement.get("key") or ""
    causes += [invalid(f"{field}.key", key, complaint) for complaint in label_key(key)]
    if not any_value:
        causes += [
            invalid(f"{field}.values[{index}]", value, complaint)
            for index, value in enumerate(values)
            for complaint in label_value(value)
        ]
    return causes


def _operator(operator: Any, values: list[str], field: str) -> list[Cause]:
    if operator in ("In", "NotIn"):
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [required(f"{field}.values", detail)]
    if operator in ("Exists", "DoesNotExist"):
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{field}.values", detail)] if values else []
    return [invalid(f"{field}.operator", operator, "not a valid selector operator")]
