"""The rules of a webhook: which operations on which resources it is asked about."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, not_supported, required

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")


def validate_rules(rules: list[Document], field: str) -> list[Cause]:
    """What is wrong with the ``rules`` of one webhook."""
    return [cause for index, rule in enumerate(rules) for cause in _validate_rule(rule, f"{field}[{index}]")]


def _validate_rule(rule: Document, field: str) -> list[Cause]:
    operations = rule.get("operations") or []
    causes = _wildcard_alone(operations, f"{field}.operations", "operations")
    causes += [
        not_supported(f"{field}.operations[{index}]", operation, _OPERATIONS)
        for index, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    causes += _wildcard_alone(rule.get("apiGroups") or [], f"{field}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    causes += _wildcard_alone(versions, f"{field}.apiVersions", "API versions")
    causes += [required(f"{field}.apiVersions[{index}]") for index, version in enumerate(versions) if not version]
    causes += _validate_resources(rule.get("resources") or [], f"{field}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        causes.append(not_supported(f"{field}.scope", scope, _SCOPES))
    return causes


def _wildcard_alone(items: list[str], field: str, what: str) -> list[Cause]:
    if not items:
        return [required(field)]
    if len(items) > 1 and "*" in items:
        return [invalid(field, items, f"if '*' is present, must not specify other {what}")]
    return []


def _validate_resources(resources: list[str], field: str) -> list[Cause]:
    """A resource may be ``x``, ``x/y``, ``x/*``, ``*/y``, ``*`` or ``*/*``; what another one covers is an error."""
    causes = [] if resources else [required(field)]
    all_subresources_of: set[str] = set()
    with_any_resource: set[str] = set()
    for index, text in enumerate(resources):
        resource, slash, subresource = text.partition("/")
        if not text:
            causes.append(required(f"{field}[{index}]"))
        if not slash:
            continue
        if resource in all_subresources_of:
            detail = f"if '{resource}/*' is present, must not specify {text}"
            causes.append(invalid(f"{field}[{index}]", text, detail))
        if subresource in with_any_resource:
            detail = f"if '*/{subresource}' is present, must not specify {text}"
            causes.append(invalid(f"{field}[{index}]", text, detail))
        if subresource == "*":
            all_subresources_of.add(resource)
        if resource == "*":
            with_any_resource.add(subresource)
    return causes + _covered_by_wildcards(resources, field)


def _covered_by_wildcards(resources: list[str], field: str) -> list[Cause]:
    causes = []
    if len(resources) > 1 and "*/*" in resources:
        causes.append(invalid(field, resources, "if '*/*' is present, must not specify other resources"))
    # The real server looks at the last plain name alone.
    plain = [text for text in resources if text and "/" not in text]
    if "*" in resources and plain[-1] != "*":
        detail = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid(field, resources, detail))
    return causes
