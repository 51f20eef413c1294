"""Paths and operations: which verbs a kind has, and which query parameters these take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.patch import accepted_patch_types
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.scale import SCALE
from koordinator.cluster.verbs.eviction import EVICTION

_FORMS: Final = {"scale": SCALE, "eviction": EVICTION}
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS: Final = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)


def path_items(resource: Resource, version: int) -> Document:
    """Every path of one kind, by OpenAPI's major ``version``."""
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{base}{scope}/{resource.plural}"
    item = f"{collection}/{{name}}"
    write = _Operations(resource, version)
    paths = _of_objects(resource, write, collection, item)
    if resource.namespaced and "list" in resource.verbs:
        paths[f"{base}/{resource.plural}"] = {"get": write.operation("list", _LIST_PARAMETERS)}
    if "status" in resource.subresources:
        put = write.operation("put", _strings(_WRITE_PARAMETERS))
        paths[f"{item}/status"] = {"get": write.operation("get", ()), "put": put, "patch": write.patch()}
    for name, form in subresource_forms(resource).items():
        paths[f"{item}/{name}"] = _of_another_kind(_Operations(form, version, accepted_patch_types(resource)), name)
    return paths


def _of_objects(resource: Resource, write: _Operations, collection: str, item: str) -> Document:
    """Those of the verbs that the kind has: some are only created, some only read."""
    strings = _strings(_WRITE_PARAMETERS)
    deletion = (("gracePeriodSeconds", "integer"), ("propagationPolicy", "string"))
    operations: tuple[tuple[str, str, str, Document], ...] = (
        ("list", collection, "get", write.operation("list", _LIST_PARAMETERS)),
        ("create", collection, "post", write.operation("post", strings)),
        ("deletecollection", collection, "delete", write.operation("deletecollection", _LIST_PARAMETERS)),
        ("get", item, "get", write.operation("get", ())),
        ("update", item, "put", write.operation("put", strings)),
        ("patch", item, "patch", write.patch()),
        ("delete", item, "delete", write.operation("delete", deletion)),
    )
    paths: Document = {}
    for verb, path, method, operation in operations:
        if verb in resource.verbs:
            paths.setdefault(path, {})[method] = operation
    return paths


def subresource_forms(resource: Resource) -> dict[str, Resource]:
    """Subresources whose bodies are of another kind than their object."""
    return {name: form for name, form in _FORMS.items() if name in resource.subresources}


def _of_another_kind(write: _Operations, name: str) -> Document:
    strings = _strings(_WRITE_PARAMETERS)
    if name == "eviction":
        return {"post": write.operation("post", strings)}
    return {"get": write.operation("get", ()), "put": write.operation("put", strings), "patch": write.patch()}


def _strings(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, "string") for name in names)


class _Operations:
    """Operations of one kind; each carries the group, version and kind by which clients find it."""

    def __init__(self, resource: Resource, version: int, formats: Sequence[str] = ()) -> None:
        """``formats`` are those of patches, if not the resource's own."""
        self._resource = resource
        self._version = version
        self._formats = formats or accepted_patch_types(resource)

    def operation(self, action: str, parameters: tuple[tuple[str, str], ...]) -> Document:
        resource = self._resource
        return {
            "parameters": [self._parameter(name, kind) for name, kind in parameters],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": resource.group,
                "kind": resource.kind,
                "version": resource.version,
            },
        }

    def patch(self) -> Document:
        operation = self.operation("patch", (*_strings(_WRITE_PARAMETERS), ("force", "boolean")))
        if self._version == 3:
            operation["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in self._formats}}
        else:
            operation["consumes"] = list(self._formats)
        return operation

    def _parameter(self, name: str, kind: str) -> Document:
        parameter: dict[str, Any] = {"name": name, "in": "query"}
        if self._version == 3:
            return {**parameter, "schema": {"type": kind, "uniqueItems": True}}
        return {**parameter, "type": kind, "uniqueItems": True}
