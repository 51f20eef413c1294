"""Errors of fields, and fields that are unknown, in the real server's words (k8s.io/apimachinery, field.Error)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.schema_values import unknown_members
from koordinator.api.kubernetes_types.table import TYPE_META, ObjectType, Shape, Type
from koordinator.cluster.resource import Cause


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", field, _join("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", field, _join(f"Invalid value: {_shown(value)}", detail))


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", field, _join("Forbidden", detail))


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    listed = ", ".join(f'"{text}"' for text in allowed)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {listed}")


def not_found(field: str, value: Any) -> Cause:
    return Cause("FieldValueNotFound", field, f"Not found: {_shown(value)}")


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def go_quoted(text: str) -> str:
    """A text as Go's %q prints it."""
    escapes = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    escapes |= {"\\": "\\\\", '"': '\\"'}
    return '"' + "".join(escapes.get(part) or (part if part.isprintable() else _escaped(part)) for part in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _join(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# Fields that a built-in type does not have: what ``fieldValidation=Strict`` refuses and ``Warn`` warns of.


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
