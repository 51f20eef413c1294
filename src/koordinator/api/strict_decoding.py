"""Plain values into structs, with errors that a person can act on: the exact path, the value, and what is allowed.

The decoder of msgspec names neither the value nor, below a mapping, the key. Structs of the wire ignore fields that
they do not know, which is right for what an API server sends and wrong for what a person writes. So each level is
looked at here before it is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from koordinator.api.codec import DecodeError, convert
from koordinator.api.struct_fields import bare_type, struct_fields
from koordinator.base.errors import ConfigurationError

T = TypeVar("T")


def decode_strictly(document: Any, expected: type[T], path: str) -> T:
    """Turn plain values into ``expected``. An unknown or missing field or a wrong type is a ConfigurationError."""
    _check(document, expected, path)
    return convert(document, expected)


def child_path(path: str, name: object) -> str:
    """The path of a member; a path that ends with a space is that of a whole document."""
    return f"{path}{name}" if path.endswith(" ") else f"{path}.{name}"


def _check(value: Any, expected: Any, path: str) -> None:
    bare, _, _ = bare_type(expected)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct) and isinstance(value, dict):
        _check_struct(value, bare, path)
    elif isinstance(bare, type) and is_dataclass(bare) and isinstance(value, dict):
        _check_dataclass(value, bare, path)
    elif get_origin(bare) is list and isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, get_args(bare)[0], f"{path}[{index}]")
    elif get_origin(bare) is dict and isinstance(value, dict):
        for key, item in value.items():
            _check(key, get_args(bare)[0], f"{path}[{key}]")
            _check(item, get_args(bare)[1], f"{path}[{key}]")
    elif value is not None:
        _check_value(value, expected, path)


def _check_struct(document: dict[Any, Any], struct: type[msgspec.Struct], path: str) -> None:
    _check_members(document, *_members_of_struct(struct), path)


def _check_dataclass(document: dict[Any, Any], dataclass: type[Any], path: str) -> None:
    _check_members(document, *_members_of_dataclass(dataclass), path)  # type: ignore[arg-type]


Members = tuple[Mapping[str, Any], Sequence[str]]
"""The types by name, and the names of those that are required."""


@cache
def _members_of_struct(struct: type[msgspec.Struct]) -> Members:
    types = {field.wire_name: field.type for field in struct_fields(struct)}
    return types, [field.encode_name for field in msgspec.structs.fields(struct) if field.required]


@cache
def _members_of_dataclass(dataclass: type[Any]) -> Members:
    hints = get_type_hints(dataclass, include_extras=True)
    members = [field for field in fields(dataclass) if field.init]
    required = [field.name for field in members if field.default is MISSING and field.default_factory is MISSING]
    return {field.name: hints[field.name] for field in members}, required


def _check_members(document: dict[Any, Any], types: Mapping[str, Any], required: Sequence[str], path: str) -> None:
    for name, value in document.items():
        if name not in types:
            allowed = f"no such field; there are {', '.join(types)}"
            raise ConfigurationError(child_path(path, name), value, allowed)
        _check(value, types[name], child_path(path, name))
    for name in required:
        if document.get(name) is None:
            raise ConfigurationError(child_path(path, name), None, "it must be given")


def _check_value(value: Any, expected: Any, path: str) -> None:
    try:
        convert(value, expected)
    except DecodeError as error:
        raise ConfigurationError(path, value, str(error)) from error
