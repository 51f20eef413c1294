"""What ``fieldValidation`` refuses or warns of: fields that a built-in type does not have, or that are there twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

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


# Members of an object that have one name: the last one counts.


class _Object(dict[str, Any]):
    """An object with the names that are in it more than once."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(members)
        self.repeated: list[str] = []
        if len(self) != len(members):
            names = [name for name, _ in members]
            self.repeated = [name for name in self if names.count(name) > 1]


def repeated_fields(text: bytes, document: Any) -> list[str]:
    """The paths of the members of a valid JSON ``text`` that are in their object twice, such as ``spec.nodeName``;
    ``document`` is what it says."""
    # Most clients send what we would write, and then there is nothing to look for.
    if msgspec.json.encode(document) == text.strip():
        return []
    found: list[_Object] = []

    def hook(members: list[tuple[str, Any]]) -> Any:
        names = dict(members)
        if len(names) == len(members):
            return names
        found.append(_Object(members))
        return found[-1]

    try:
        whole = json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return []
    return list(_repeated(whole, "")) if found else []


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value, _Object):
            yield from (f"{path}.{name}".lstrip(".") for name in value.repeated)
        for name, member in value.items():
            yield from _repeated(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated(item, f"{path}[{index}]")
