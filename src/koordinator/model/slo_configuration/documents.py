"""Configuration as plain documents, because merging depends on which fields were written, not on the decoded values.

A missing number, ``null`` and ``0`` are different in a strategy, and the first two of them leave the value of a wider
strategy. The rules are those of Go's JSON package, for which the documents were written: names match in any case,
unknown names and nulls are ignored, and so are an empty text and an empty list where the field has no other way of
being unset (pkg/util/utils.go, MergeCfg).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec

from koordinator.api.codec import DecodeError, convert, decode_any
from koordinator.api.struct_fields import StructField, struct_fields

S = TypeVar("S", bound=msgspec.Struct)
Document = dict[str, Any]

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_ZEROS: Final[Mapping[Any, Any]] = MappingProxyType({str: "", bool: False, int: 0, float: 0.0})
"""The values that Go decodes for a null among the values of a map or list."""


def read_object(text: str) -> Document:
    """The JSON object in ``text``; ``null`` is an empty one. Raises DecodeError."""
    document = decode_any(text)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise DecodeError(f"expected an object, got {msgspec.json.encode(document).decode()[:64]}")
    return document


def given_fields(document: Document, struct: type[msgspec.Struct]) -> Document:
    """The fields of the struct that ``document`` sets, under their wire names.

    Values are only checked for numbers of more bits than can be stored: raises DecodeError.
    """
    exact, folded = _fields_by_name(struct)
    members: Document = {}
    for name, value in document.items():
        field = exact.get(name) or folded.get(name.casefold())
        if field is None or value is None:
            continue
        kept = _given(value, field.type)
        if isinstance(kept, int) and kept not in (_INT32 if field.schema.format == "int32" else _INT64):
            raise DecodeError(f"{field.wire_name}: {kept} is out of range")
        if not _is_unset(kept, field):
            members[field.wire_name] = kept
    return members


@dataclass(frozen=True, slots=True)
class Given(Generic[S]):
    """The written fields of a strategy, and the struct in which they have their types."""

    fields: Document
    values: S


def read_given(document: Document, struct: type[S], path: str = "") -> Given[S]:
    """Decode the fields that ``document`` sets of a struct. Raises DecodeError, whose text starts with ``path``."""
    fields = given_fields(document, struct)
    try:
        return Given(fields, convert(fields, struct))
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}" if path else str(error)) from error


def overridden(base: S, given: Given[S]) -> S:
    """``base`` with all given fields: structs merge field by field, maps by key, all else is replaced as a whole."""
    return _overridden(base, given.fields, given.values)


def _overridden(base: S, given: Document, values: S) -> S:
    if not given:
        return base
    changes = {}
    for field in struct_fields(type(base)):
        if field.wire_name in given:
            old, new = getattr(base, field.name), getattr(values, field.name)
            changes[field.name] = _overridden_value(old, given[field.wire_name], new)
    return msgspec.structs.replace(base, **changes)


def _overridden_value(old: Any, given: Any, new: Any) -> Any:
    if isinstance(old, msgspec.Struct):
        return _overridden(old, given, new)
    if isinstance(old, dict):
        return {**old, **new}
    return new


def _given(value: Any, expected: Any) -> Any:
    if isinstance(value, dict):
        if _is_struct(expected):
            return given_fields(value, expected)
        if get_origin(expected) is dict:
            return _given_items(value, get_args(expected)[1])
    if isinstance(value, list) and get_origin(expected) is list:
        return list(_given_items(dict(enumerate(value)), get_args(expected)[0]).values())
    return value


def _given_items(items: dict[Any, Any], expected: Any) -> dict[Any, Any]:
    """The items of a map or list; a null stands for the zero of its type, where there is one."""
    given = {}
    for key, item in items.items():
        value = _zero(expected) if item is None else item
        if value is not None:
            given[key] = _given(value, expected)
    return given


def _zero(expected: Any) -> Any:
    return {} if _is_struct(expected) or get_origin(expected) is dict else _ZEROS.get(expected)


def _is_unset(value: Any, field: StructField) -> bool:
    if field.optional or value not in ("", [], {}):
        return False
    return field.type is str if isinstance(value, str) else get_origin(field.type) is type(value)


def _is_struct(expected: Any) -> bool:
    return isinstance(expected, type) and issubclass(expected, msgspec.Struct)


@cache
def _fields_by_name(struct: type[msgspec.Struct]) -> tuple[dict[str, StructField], dict[str, StructField]]:
    fields = struct_fields(struct)
    return {field.wire_name: field for field in fields}, {field.wire_name.casefold(): field for field in fields}
