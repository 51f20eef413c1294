"""Reads schemas out of an OpenAPI v2 document in protobuf, far enough to compare two of them."""

from __future__ import annotations

from typing import Any

import yaml

from koordinator.base.protobuf_wire import fields

DEFINITIONS = 9
_ANY, _ENUM, _EXTENSION, _ADDITIONAL, _ITEMS, _PROPERTIES = (5, 30), 20, 31, 21, 23, 25


def definitions(document: bytes) -> dict[str, list[Any]]:
    """Schema name -> its fields as (number, value), sorted."""
    (body,) = (value for number, value in fields(document) if number == DEFINITIONS)
    return {name: schema(value) for name, value in named(_bytes(body), 1).items()}


def schema(data: bytes) -> list[Any]:
    return sorted(((number, _value(number, value)) for number, value in fields(data)), key=repr)


def named(data: bytes, number: int) -> dict[str, bytes]:
    """The entries of a map."""
    found = {}
    for field, value in fields(data):
        if field == number:
            entry = dict(fields(_bytes(value)))
            found[_bytes(entry[1]).decode()] = _bytes(entry.get(2, b""))
    return found


def _value(number: int, value: int | bytes) -> Any:
    if number in (*_ANY, _ENUM):
        return _yaml(_bytes(value))
    if number == _EXTENSION:
        entry = dict(fields(_bytes(value)))
        return entry[1], _yaml(_bytes(entry[2]))
    if number == _ADDITIONAL:
        return [schema(_bytes(item)) if field == 1 else item for field, item in fields(_bytes(value))]
    if number == _ITEMS:
        return [schema(_bytes(item)) for _, item in fields(_bytes(value))]
    if number == _PROPERTIES:
        return sorted((name, schema(item)) for name, item in named(_bytes(value), 1).items())
    return value


def _yaml(data: bytes) -> Any:
    return yaml.safe_load(_bytes(dict(fields(data)).get(2, b"")))


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value
