"""Schemas of built-in types from the table of types, and of custom resources from their definitions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, kind_type, named
from koordinator.cluster.openapi.operations import subresource_forms
from koordinator.cluster.resource import Resource

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
    "apiVersion": {"type": "string", "description": "The group and version of the API in which the object is written."},
    "kind": {"type": "string", "description": "What the object is."},
}
_METADATA: Final = "The name, labels, annotations and owners of the object."


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
