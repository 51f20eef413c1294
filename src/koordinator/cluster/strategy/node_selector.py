"""What a NodeSelector must say, and an expression over the labels of nodes."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain, label_key, label_value
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, required

_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def check_node_selector(selector: Document, field: str) -> list[Cause]:
    """What is wrong with a NodeSelector, which needs at least one term."""
    terms = selector.get("nodeSelectorTerms") or []
    at = f"{field}.nodeSelectorTerms"
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [cause for index, term in enumerate(terms) for cause in check_node_term(term, f"{at}[{index}]")]


def check_node_term(term: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, requirement in enumerate(term.get("matchExpressions") or []):
        at = f"{field}.matchExpressions[{index}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        causes += _check_node_operator(operator, values, at)
        causes += [invalid(f"{at}.key", requirement.get("key"), c) for c in label_key(requirement.get("key") or "")]
        causes += [
            invalid(f"{at}.values[{position}]", value, detail)
            for position, value in enumerate(values)
            for detail in label_value(value)
        ]
    for index, requirement in enumerate(term.get("matchFields") or []):
        causes += _check_node_field(requirement, f"{field}.matchFields[{index}]")
    return causes


def _check_node_operator(operator: str, values: list[str], at: str) -> list[Cause]:
    if operator not in _NODE_OPERATORS:
        return [invalid(f"{at}.operator", operator, "not a valid selector operator")]
    if operator in ("In", "NotIn") and not values:
        return [required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in ("Gt", "Lt") and len(values) != 1:
        return [required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")]
    return []


def _check_node_field(requirement: Document, at: str) -> list[Cause]:
    """Of fields there is the name of the node alone."""
    key, operator, values = (requirement.get(name) or "" for name in ("key", "operator", "values"))
    causes = []
    if operator not in ("In", "NotIn"):
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{at}.values", detail))
    if key != "metadata.name":
        return [*causes, invalid(f"{at}.key", key, "not a valid field selector key")]
    return causes + [
        invalid(f"{at}.values[{position}]", value, detail)
        for position, value in enumerate(values)
        for detail in dns_subdomain(value)
    ]
