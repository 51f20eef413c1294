"""Whole objects inside of a custom resource: their ``metadata`` is that of any object, whatever the schema says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.strategy.metadata import MalformedMetadata, coerce_metadata, validate_metadata
from koordinator.cluster.structural_schema.failure import shown
from koordinator.cluster.structural_schema.node import Node

Visit = Callable[[Document, str], None]
"""(embedded object, path)."""
Walk = Callable[[Any, str, Visit], None]


def walker(node: Node) -> Walk | None:
    """What visits the embedded objects of a value; None where there can be none."""
    members = {name: found for name, part in node.properties.items() if (found := walker(part)) is not None}
    additional = walker(node.additional_node) if node.additional_node is not None else None
    items = walker(node.items) if node.items is not None else None
    embedded = node.embedded
    if not (embedded or members or additional or items):
        return None

    def walk(value: Any, path: str, visit: Visit) -> None:
        if isinstance(value, dict):
            if embedded:
                visit(value, path)
            for name, item in value.items():
                if name in members:
                    members[name](item, f"{path}.{name}" if path else name, visit)
                elif additional is not None and name not in node.properties:
                    additional(item, f"{path}[{name}]", visit)
        elif isinstance(value, list) and items is not None:
            for index, item in enumerate(value):
                items(item, f"{path}[{index}]", visit)

    return walk


def coerce(obj: Document, path: str) -> None:
    """Give an embedded object the form that a Go object would have. Raises MalformedMetadata."""
    for name in ("apiVersion", "kind"):
        if name in obj and not isinstance(obj[name], str):
            raise MalformedMetadata(f"{path}.{name}: Invalid value: {shown(obj[name])}: must be a string")
    if "metadata" not in obj:
        return
    try:
        coerce_metadata(obj)
    except MalformedMetadata as error:
        raise MalformedMetadata(f"{path}.metadata: Invalid value: {shown(obj['metadata'])}: {error}") from error


def check(obj: Document, path: str) -> list[Cause]:
    """What is wrong with an embedded object that has been coerced."""
    causes = [required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in obj]
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if version == "":
        causes.append(invalid(f"{path}.apiVersion", version, "must not be empty"))
    elif isinstance(version, str) and version.count("/") > 1:
        causes.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    if kind == "":
        causes.append(invalid(f"{path}.kind", kind, "must not be empty"))
    elif isinstance(kind, str) and (errors := dns_1035_label(kind.lower())):
        detail = f"may have mixed case, but should otherwise match: {','.join(errors)}"
        causes.append(invalid(f"{path}.kind", kind, detail))
    if "metadata" in obj:
        causes += _check_metadata(obj["metadata"], path)
    return causes


def _check_metadata(metadata: Document, path: str) -> list[Cause]:
    named_object = {"metadata": {**metadata, "name": metadata.get("name") or "fakename"}}
    found = validate_metadata(named_object, None, bool(metadata.get("namespace")), path_segment)
    return [Cause(cause.reason, f"{path}.{cause.field}", cause.message) for cause in found]
