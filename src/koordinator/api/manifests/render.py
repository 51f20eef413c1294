"""From a definition to the document that an API server takes."""

from __future__ import annotations

from typing import Any

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import Kind
from koordinator.api.manifests.definitions import Column, Definition
from koordinator.api.manifests.schema import object_schema


def render_definition(definition: Definition) -> dict[str, Any]:
    """A CustomResourceDefinition of apiextensions.k8s.io/v1."""
    kind = definition.versions[-1]
    metadata: dict[str, Any] = {"name": f"{kind.plural}.{kind.group}"}
    if definition.api_approved:
        metadata["annotations"] = {annotation_keys.API_APPROVED: definition.api_approved}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": _names(kind, definition.short_name),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(definition, version) for version in definition.versions],
        },
    }


def _names(kind: Kind[Any], short_name: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if short_name:
        names["shortNames"] = [short_name]
    return names


def _version(definition: Definition, kind: Kind[Any]) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": kind is definition.versions[-1],
        "schema": {"openAPIV3Schema": object_schema(kind.type)},
    }
    if definition.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in definition.columns]
    if definition.status_subresource:
        version["subresources"] = {"status": {}}
    return version


def _column(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.description:
        document["description"] = column.description
    if column.wide:
        document["priority"] = 1
    return document
