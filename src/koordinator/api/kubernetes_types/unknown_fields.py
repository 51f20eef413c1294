"""Fields of a document that its built-in type does not have."""

from __future__ import annotations

from typing import Any, NamedTuple

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.schema_values import unknown_members
from koordinator.api.kubernetes_types.table import TYPE_META, ObjectType, Shape, Type


class Unknown(NamedTuple):
    """A field that is not of the type, and what holds it."""

    holder: Document
    name: str
    path: str


def unknown_fields(document: Document, of: ObjectType) -> list[str]:
    """Their paths, such as ``spec.containers[0].imag``."""
    known = {"apiVersion", "kind"}
    body = {name: value for name, value in document.items() if name not in known}
    return [found.path for found in find_unknown(body, of, "")]


def find_unknown(document: Document, of: ObjectType, path: str) -> list[Unknown]:
    """The unknown fields of a value whose path is given, in the order of the text."""
    unknown: list[Unknown] = []
    for name, value in document.items():
        at = f"{path}.{name}" if path else name
        field = of.fields.get(name)
        if field is None:
            if not (of.is_kind and name in TYPE_META):
                unknown.append(Unknown(document, name, at))
        else:
            unknown += _value(value, field.type, at)
    return unknown


def _value(value: Any, of: Type, path: str) -> list[Unknown]:
    if of.shape is Shape.OBJECT and isinstance(value, dict):
        return find_unknown(value, of.members, path)
    if of.name == "Schema":
        return [Unknown(*found) for found in unknown_members(value, path)]
    if of.shape is Shape.LIST and isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _value(item, of.of, f"{path}[{index}]")]
    if of.shape is Shape.MAP and isinstance(value, dict):
        return [found for key, item in value.items() for found in _value(item, of.of, f"{path}.{key}")]
    return []
