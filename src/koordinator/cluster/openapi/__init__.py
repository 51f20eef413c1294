"""The OpenAPI documents of the served kinds.

kubectl reads them to learn that the server validates fields itself, how lists merge, and what ``kubectl explain``
prints. Only fields that people look up have descriptions: those of all would be nine tenths of the bytes.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from koordinator import __version__
from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, kind_type, named
from koordinator.cluster.patch import accepted_patch_types
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.scale import SCALE
from koordinator.cluster.verbs.eviction import EVICTION

# Paths and operations: which verbs a kind has, and which query parameters these take.


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


# Schemas of built-in types from the table of types, and of custom resources from their definitions.


_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_OBJECT_META: Final = f"{_META}ObjectMeta"
_SCALARS: Final[dict[str, Document]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
_NAMED_SCALARS: Final[dict[str, tuple[str, Document]]] = {
    "Time": (f"{_META}Time", {"type": "string", "format": "date-time"}),
    "MicroTime": (f"{_META}MicroTime", {"type": "string", "format": "date-time"}),
    "Duration": (f"{_META}Duration", {"type": "string"}),
    "Quantity": ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"type": "string"}),
    "IntOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
    ),
    "Fields": (f"{_META}FieldsV1", {"type": "object"}),
    "Raw": ("io.k8s.apimachinery.pkg.runtime.RawExtension", {"type": "object"}),
    "Schema": (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ),
}
_EITHER: Final[dict[str, Document]] = {
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
}
"""OpenAPI 3 can say what version 2 only hints at."""
_ONLY_IN_3: Final = frozenset({"nullable", "oneOf", "anyOf", "allOf", "not", "default", "x-kubernetes-validations"})
_TYPE_META: Final[Document] = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the version of the schema by which the object is written.",
    },
    "kind": {"type": "string", "description": "What the object is."},
}
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_METADATA: Final = "Standard object's metadata: the name, labels, annotations and owners."


class SchemaWriter:
    """Collects the schemas of kinds and of everything that these hold."""

    def __init__(self, prefix: str, version: int) -> None:
        self.schemas: Document = {}
        self._prefix = prefix
        self._version = version

    def add(self, resource: Resource) -> None:
        object_type = kind_type(resource.api_version, resource.kind)
        name = object_type.name if object_type else custom_name(resource)
        if object_type is not None:
            self._object(object_type)
            schema = self.schemas[name]
            schema["properties"] |= _TYPE_META
            if "metadata" in schema["properties"]:
                schema["properties"]["metadata"]["description"] = _METADATA
        else:
            schema = self.schemas[name] = self._custom(resource.schema or {})
        identity = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        schema["x-kubernetes-group-version-kind"] = [identity]
        self._list(resource, name)
        for form in subresource_forms(resource).values():
            self._form(form)

    def _form(self, form: Resource) -> None:
        """What a subresource takes: nothing lists it."""
        object_type = kind_type(form.api_version, form.kind)
        assert object_type is not None
        self._object(object_type)
        schema = self.schemas[object_type.name]
        schema["properties"] |= _TYPE_META
        identity = {"group": form.group, "kind": form.kind, "version": form.version}
        schema["x-kubernetes-group-version-kind"] = [identity]

    def _list(self, resource: Resource, name: str) -> None:
        items: Document = {"type": "array", "items": self._reference(name)}
        properties = {**_TYPE_META, "items": items}
        identity = {"group": resource.group, "kind": resource.list_kind, "version": resource.version}
        self.schemas[f"{name}List"] = {
            "type": "object",
            "required": ["items"],
            "properties": {**properties, "metadata": {"type": "object"}},
            "x-kubernetes-group-version-kind": [identity],
        }

    def _custom(self, schema: Document) -> Document:
        self._object(named(_OBJECT_META))
        if self._version == 2 and schema.get(_PRESERVES):
            # kubectl takes the members that version 2 lists for all that there may be.
            return {"type": "object"}
        written: Document = dict(_for_version_2(schema) if self._version == 2 else schema)
        written.setdefault("type", "object")
        written["properties"] = {
            **(written.get("properties") or {}),
            **_TYPE_META,
            "metadata": {**self._reference(_OBJECT_META), "description": _METADATA},
        }
        return written

    def _object(self, of: ObjectType) -> None:
        if of.name in self.schemas:
            return
        schema: Document = {"type": "object", "properties": {}}
        self.schemas[of.name] = schema
        texts = descriptions().get(of.name) or {}
        if "" in texts:
            schema["description"] = texts[""]
        schema["properties"] = {
            field.name: {**self._field(field), **_described(texts.get(field.name))} for field in of.fields.values()
        }
        if required := [field.name for field in of.fields.values() if field.required]:
            schema["required"] = required
        if of.atomic:
            schema["x-kubernetes-map-type"] = "atomic"

    def _field(self, field: Field) -> Document:
        schema = self._type(field.type)
        if field.list_type:
            schema["x-kubernetes-map-type" if field.type.shape is Shape.MAP else "x-kubernetes-list-type"] = (
                field.list_type
            )
        if field.list_keys:
            schema["x-kubernetes-list-map-keys"] = list(field.list_keys)
        strategies = [name for name, on in (("merge", field.merge), ("retainKeys", field.retain_keys)) if on]
        if strategies:
            schema["x-kubernetes-patch-strategy"] = ",".join(strategies)
        if field.merge_key:
            schema["x-kubernetes-patch-merge-key"] = field.merge_key
        return schema

    def _type(self, of: Type) -> Document:
        if of.shape is Shape.LIST:
            return {"type": "array", "items": self._type(of.of)}
        if of.shape is Shape.MAP:
            return {"type": "object", "additionalProperties": self._type(of.of)}
        if of.shape is Shape.OBJECT:
            self._object(of.members)
            return self._reference(of.name)
        if of.name in _SCALARS:
            return dict(_SCALARS[of.name])
        name, schema = _NAMED_SCALARS[of.name]
        self.schemas.setdefault(name, dict(_EITHER.get(of.name, schema) if self._version == 3 else schema))
        return self._reference(name)

    def _reference(self, name: str) -> Document:
        reference = {"$ref": f"{self._prefix}{name}"}
        # OpenAPI 3 allows nothing beside a reference, so real servers wrap it.
        return {"allOf": [reference]} if self._version == 3 else reference


def _described(text: str | None) -> Document:
    return {"description": text} if text else {}


def custom_name(resource: Resource) -> str:
    """``com.example.v1.Foo`` for foos.example.com."""
    reversed_group = ".".join(reversed(resource.group.split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def _for_version_2(schema: Any) -> Any:
    """Without the keywords that OpenAPI 2 does not have."""
    if not isinstance(schema, dict):
        return schema
    kept: Document = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _for_version_2(inner) for name, inner in value.items()}
        elif key not in _ONLY_IN_3:
            kept[key] = _for_version_2(value)
    return kept


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Type -> field -> text; the field of the type itself is empty."""
    return tomllib.loads(resources.files(__package__).joinpath("descriptions.toml").read_text(encoding="utf-8"))


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
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={fingerprint(members)}"}
    return {"paths": paths}


def fingerprint(members: Iterable[Resource]) -> str:
    """The same as long as the documents of these kinds are: kubectl keeps them under this name, for other versions of
    this program, too."""
    parts = [(resource.plural, resource.kind, resource.subresources, resource.schema) for resource in members]
    known = [__version__, *sorted(parts, key=lambda part: part[0])]
    return hashlib.sha512(msgspec.json.encode(known)).hexdigest().upper()
