"""A schema as the types of CEL: what its rules may name, how large that may be, and the values of objects in it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.cluster.structural_schema.node import Node
from koordinator.model.cel.budget import take
from koordinator.model.cel.cost_estimate import Path
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.library.conversions import duration_of, timestamp_of
from koordinator.model.cel.syntax import RESERVED
from koordinator.model.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    object_type,
)
from koordinator.model.cel.values import MapList, SetList

_REQUEST: Final = 3 * 1024 * 1024
"""Bytes of the largest request that the estimates reckon with."""
_DATE_TIME: Final = 32
_DATE: Final = 12
_NUMBER: Final = 1
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED: Final = re.compile(r"__|[-./]")
_NAME: Final = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*", re.ASCII)
Convert = Callable[[Any], Any]
"""From JSON to the values of CEL. Raises EvaluationError."""


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """The type of what a schema describes."""

    type: Type
    most: int
    """The greatest size: characters, items, members."""
    least_bytes: int
    """How short it can be in JSON."""
    convert: Convert | None = None
    """None where JSON's values are the values."""
    items: Declared | None = None
    keys: Declared | None = None
    fields: Mapping[str, Declared] = field(default_factory=dict)
    """By the names that expressions use."""

    def field_types(self) -> Mapping[str, Mapping[str, Type]]:
        """Of all object types below and this one, by their names."""
        found: dict[str, Mapping[str, Type]] = {}
        pending = [self]
        while pending:
            of = pending.pop()
            if of.type.kind == "struct":
                found[of.type.name] = {name: part.type for name, part in of.fields.items()}
            pending += [part for part in (of.items, *of.fields.values()) if part is not None]
        return found

    def size_of(self, path: Path) -> int | None:
        """The greatest size of what is at a path; what a path begins with is not looked at, as in the real server."""
        at: Declared | None = self
        for name in path[1:]:
            if at is None:
                return None
            at = at.items if name in ("@items", "@values") else at.keys if name == "@keys" else at.fields.get(name)
        return None if at is None else at.most


def escape(name: str) -> str | None:
    """The name of a field in expressions; None for one that they cannot have."""
    if name in RESERVED:
        return f"__{name}__"
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name) if _NAME.fullmatch(name) else None


def declared(node: Node, name: str, *, root: bool) -> Declared | None:
    """None for what expressions cannot see; ``root``: of a whole object, which has metadata."""
    if node.types == ("integer", "string"):
        return Declared(DYN, _text_most(node), _NUMBER)
    of = node.types[0] if node.types else ""
    if of == "array":
        return _list(node, name)
    if of == "object":
        values = node.additional_node
        return _object(node, name, root=root) if values is None or root else _map(node, values, name)
    return _scalar(node, of)


def _scalar(node: Node, of: str) -> Declared | None:
    if of == "string":
        return _string(node)
    if of == "boolean":
        return Declared(BOOL, 0, 4)
    if of == "number":
        return Declared(DOUBLE, 0, _NUMBER, _number)
    return Declared(INT, 0, _NUMBER) if of == "integer" else None


def _text_most(node: Node) -> int:
    """A character has up to four bytes."""
    return _REQUEST - 2 if node.max_length is None else max(node.max_length, 0) * 4


def _string(node: Node) -> Declared:
    match node.format:
        case "byte":
            most = _REQUEST - 2 if node.max_length is None else max(node.max_length, 0)
            return Declared(BYTES, most, 2, _bytes)
        case "duration":
            return Declared(DURATION, _DATE_TIME, 3, duration_of)
        case "date":
            return Declared(TIMESTAMP, _DATE, _DATE, lambda text: timestamp_of(f"{text}T00:00:00Z"))
        case "datetime":
            return Declared(TIMESTAMP, _DATE_TIME, 21, timestamp_of)
    if node.max_length is None and node.enum:
        return Declared(STRING, max(len(value.encode()) for value in node.enum if isinstance(value, str)), 2)
    return Declared(STRING, _text_most(node), 2)


def _number(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise EvaluationError(f"Invalid byte formatted string {text}") from None


def _list(node: Node, name: str) -> Declared | None:
    item = declared(node.items, f"{name}.@idx", root=node.items.embedded) if node.items is not None else None
    if item is None:
        return None
    most = (_REQUEST - 2) // (item.least_bytes + 1) if node.max_items is None else max(node.max_items, 0)
    return Declared(list_of(item.type), most, 2, _list_converter(node, item.convert), item)


def _list_converter(node: Node, convert: Convert | None) -> Convert | None:
    keys = tuple(escape(key) or key for key in node.list_map_keys)

    def of_items(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        take(len(items))
        converted = items if convert is None else [None if item is None else convert(item) for item in items]
        if node.list_type == "set":
            return SetList(converted)
        return MapList(converted, keys) if node.list_type == "map" else converted

    return of_items if convert is not None or node.list_type in ("set", "map") else None


def _map(node: Node, values: Node, name: str) -> Declared | None:
    value = declared(values, f"{name}.@elem", root=values.embedded)
    if value is None:
        return None
    most = (_REQUEST - 2) // (value.least_bytes + 6) if node.max_properties is None else max(node.max_properties, 0)
    converter = None if value.convert is None else _members_converter({}, value.convert)
    key = Declared(STRING, 0, 2)
    return Declared(map_of(STRING, value.type), most, 2, converter, value, key)


def _object(node: Node, name: str, *, root: bool) -> Declared:
    properties = dict(node.properties)
    if root:
        text = Node(types=("string",))
        named = Node(types=("object",), properties={"name": text, "generateName": text})
        properties |= {"kind": text, "apiVersion": text, "metadata": named}
    fields: dict[str, Declared] = {}
    convert: dict[str, tuple[str, Convert | None]] = {}
    least = 2
    for member, part in properties.items():
        of = declared(part, f"{name}.{escape(member)}", root=part.embedded)
        if of is None:
            continue
        if (known := escape(member)) is not None:
            fields[known] = of
            if known != member or of.convert is not None:
                convert[member] = (known, of.convert)
        if member in node.required and part.default is None:
            least += len(member.encode()) + of.least_bytes + 4
    converter = _members_converter(convert, None) if convert else None
    return Declared(object_type(name), 0, least, converter, fields=fields)


def _members_converter(of: Mapping[str, tuple[str, Convert | None]], others: Convert | None) -> Convert:
    def convert(members: Any) -> Any:
        if not isinstance(members, dict):
            return members
        take(len(members))
        return dict(_converted(members.items(), of, others))

    return convert


def _converted(
    members: Iterable[tuple[str, Any]], of: Mapping[str, tuple[str, Convert | None]], others: Convert | None
) -> Iterable[tuple[str, Any]]:
    for name, value in members:
        known, convert = of.get(name, (name, others))
        yield known, value if convert is None or value is None else convert(value)
