"""The OpenAPI documents of the served kinds.

kubectl reads them to learn that the server validates fields itself, how lists merge, and what ``kubectl explain``
prints. Only fields that people look up have descriptions: those of all would be nine tenths of the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.openapi.operations import path_items
from koordinator.cluster.openapi.schemas import SchemaWriter
from koordinator.cluster.resource import Resource

_INFO: Final = {"title": "Kubernetes", "version": "v1.35.0"}

__all__ = ["v2", "v3", "v3_index"]


def v2(resources: Iterable[Resource]) -> Document:
    """``/openapi/v2``: one document with every kind."""
    served = list(resources)
    writer = SchemaWriter("#/definitions/", version=2)
    for resource in served:
        writer.add(resource)
    paths: Document = {}
    for resource in served:
        paths.update(path_items(resource, version=2))
    return {"swagger": "2.0", "info": dict(_INFO), "paths": paths, "definitions": writer.schemas}


def v3(resources: Iterable[Resource], group: str, version: str) -> Document:
    """``/openapi/v3/apis/GROUP/VERSION``: the kinds of one group version."""
    writer = SchemaWriter("#/components/schemas/", version=3)
    paths: Document = {}
    for resource in resources:
        if (resource.group, resource.version) == (group, version):
            writer.add(resource)
            paths.update(path_items(resource, version=3))
    return {"openapi": "3.0.0", "info": dict(_INFO), "paths": paths, "components": {"schemas": writer.schemas}}


def v3_index(resources: Iterable[Resource]) -> Document:
    """``/openapi/v3``: where each group version is described; the hash changes with what it serves."""
    served = list(resources)
    paths: Document = {}
    for group, version in sorted({(resource.group, resource.version) for resource in served}):
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        members = [resource for resource in served if (resource.group, resource.version) == (group, version)]
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_fingerprint(members)}"}
    return {"paths": paths}


def _fingerprint(members: list[Resource]) -> str:
    parts = [(resource.plural, resource.kind, resource.subresources, resource.schema) for resource in members]
    return hashlib.sha256(msgspec.json.encode(sorted(parts, key=lambda part: part[0]))).hexdigest().upper()
