"""From a wire type to the OpenAPI schema that an API server checks its objects with."""

from __future__ import annotations

import typing
from datetime import datetime
from typing import Any, Final, get_args, get_origin

import msgspec

from koordinator.api.constraints import NO_SCHEMA, UNSET, Schema
from koordinator.api.duration import GoDuration
from koordinator.api.manifests.descriptions import describe
from koordinator.api.meta import Object
from koordinator.api.quantity import Quantity
from koordinator.api.struct_fields import StructField, bare_type, merged_schema, struct_fields

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_SIMPLE: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    GoDuration: {"type": "string"},
    Quantity: {**_INT_OR_STRING, "pattern": QUANTITY_PATTERN},
    typing.Union[int, str]: _INT_OR_STRING,  # noqa: UP007 - as struct_fields spells it
}
_OF_EVERY_KIND: Final = {
    "apiVersion": "The group and version of the API in which the object is written.",
    "kind": "What the object is.",
}
_KEYWORDS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "min_items": "minItems",
    "min_properties": "minProperties",
    "format": "format",
}


def object_schema(kind: type[Object]) -> dict[str, Any]:
    """The schema of a whole object; the API server knows its metadata itself."""
    schema = _struct_schema(kind)
    for name, text in _OF_EVERY_KIND.items():
        schema["properties"][name] = {**schema["properties"][name], "description": text}
    # An API server takes no description of metadata.
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _struct_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    fields = struct_fields(struct)
    if description := describe(struct):
        schema["description"] = description
    if fields:
        schema["properties"] = {field.wire_name: _field_schema(struct, field) for field in fields}
    if required := sorted(field.wire_name for field in fields if field.schema.required):
        schema["required"] = required
    return schema


def _field_schema(struct: type[msgspec.Struct], field: StructField) -> dict[str, Any]:
    schema = _type_schema(field.type, field.schema)
    if description := describe(struct, field.name):
        schema["description"] = description
    return schema


def _type_schema(bare: Any, rules: Schema) -> dict[str, Any]:
    if rules.schemaless:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if rules.preserve_unknown_fields:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = _unconstrained(bare)
    _constrain(schema, rules)
    return schema


def _unconstrained(bare: Any) -> dict[str, Any]:
    if bare in _SIMPLE:
        return dict(_SIMPLE[bare])
    if get_origin(bare) is list:
        return {"type": "array", "items": _member_schema(get_args(bare)[0])}
    if get_origin(bare) is dict:
        return {"type": "object", "additionalProperties": _member_schema(get_args(bare)[1])}
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        schema = _struct_schema(bare)
        _constrain(schema, getattr(bare, "struct_schema", NO_SCHEMA))
        return schema
    raise TypeError(f"no schema for {bare!r}: add the type to koordinator.api.manifests.schema")


def _member_schema(hint: Any) -> dict[str, Any]:
    bare, _, extras = bare_type(hint)
    return _type_schema(bare, merged_schema(extras))


def _constrain(schema: dict[str, Any], rules: Schema) -> None:
    for name, keyword in _KEYWORDS.items():
        value = getattr(rules, name)
        if value is not None:
            schema[keyword] = value
    if rules.enum:
        schema["enum"] = list(rules.enum)
    if rules.default is not UNSET:
        schema["default"] = rules.default
    if rules.nullable:
        schema["nullable"] = True
    if rules.atomic:
        schema["x-kubernetes-list-type" if schema["type"] == "array" else "x-kubernetes-map-type"] = "atomic"
