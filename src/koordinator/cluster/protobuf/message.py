"""Messages of Kubernetes' types as the JSON that Go would print for the decoded struct.

Go writes fields that are no pointers even when they are zero; JSON then leaves out those marked ``omitempty``. Without
that step a decoded Pod would be full of empty strings that its sender never set.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, named
from koordinator.api.timestamps import format_micro_time, format_time
from koordinator.base.durations import format_duration
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.protobuf.wire import WireError, read_fields, signed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY: Final[tuple[Any, ...]] = ("", 0, False, None, b"")
_TYPE_STRING: Final = 1
_DOUBLE: Final = struct.Struct("<d")


class NoTable(KoordinatorError):
    """A type whose messages have no description here: JSON schemas, which nothing but kubectl sends, as JSON."""


def decode_message(data: bytes, of: ObjectType) -> Document:
    """One message. Unknown field numbers are skipped, as protobuf demands. Raises WireError."""
    document: Document = {}
    fields = of.by_number
    for number, value in read_fields(data):
        if number in of.embedded:
            document.update(decode_message(_bytes(value), named(of.embedded[number])))
            continue
        field = fields.get(number)
        if field is not None:
            _add(document, field, value)
    return document


def _add(document: Document, field: Field, value: int | bytes) -> None:
    type_ = field.type
    if type_.shape is Shape.LIST and not type_.wrapped:
        document.setdefault(field.name, []).append(_decode(value, type_.of))
        return
    if type_.shape is Shape.MAP:
        key, item = _map_entry(_bytes(value), type_.of)
        document.setdefault(field.name, {})[key] = item
        return
    decoded = _decode(value, type_)
    empty = type_.shape is Shape.SCALAR and decoded in _EMPTY
    if empty and not field.pointer and (field.omit_empty or decoded is None):
        return
    document[field.name] = decoded


def _map_entry(data: bytes, of: Type) -> tuple[str, Any]:
    entry = dict(read_fields(data))
    default: int | bytes = b"" if of.shape is not Shape.SCALAR or of.name in _FROM_BYTES else 0
    return _bytes(entry.get(1, b"")).decode(), _decode(entry.get(2, default), of)


def _decode(value: int | bytes, of: Type) -> Any:
    if of.shape is Shape.OBJECT:
        return decode_message(_bytes(value), of.members)
    if of.shape is Shape.LIST:
        return [_decode(item, of.of) for number, item in read_fields(_bytes(value)) if number == 1]
    if of.name == "bool":
        return bool(value)
    if of.name in ("int32", "int64"):
        if isinstance(value, bytes):
            raise WireError("bytes where a number was expected")
        return signed(value)
    if of.name not in _FROM_BYTES:
        raise NoTable(of.name)
    return _FROM_BYTES[of.name](_bytes(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise WireError("a number where bytes were expected")
    return value


def _numbers(data: bytes) -> dict[int, int]:
    return {number: signed(value) for number, value in read_fields(data) if isinstance(value, int)}


def _first(data: bytes) -> bytes:
    return next((value for number, value in read_fields(data) if number == 1 and isinstance(value, bytes)), b"")


def _moment(data: bytes) -> datetime | None:
    """Seconds and nanoseconds; an empty message is Go's zero time, which JSON shows as null."""
    parts = _numbers(data)
    if not parts or parts.get(1, 0) <= -62_135_596_800:
        return None
    try:
        return _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError as error:
        raise WireError("a time lies outside the years 1 to 9999") from error


def _time(data: bytes) -> str | None:
    moment = _moment(data)
    return format_time(moment) if moment else None


def _micro_time(data: bytes) -> str | None:
    moment = _moment(data)
    return format_micro_time(moment) if moment else None


def _duration(data: bytes) -> str:
    return format_duration(timedelta(microseconds=_numbers(data).get(1, 0) / 1000))


def _int_or_string(data: bytes) -> int | str:
    parts = dict(read_fields(data))
    if parts.get(1) == _TYPE_STRING:
        return _bytes(parts.get(3, b"")).decode()
    number = parts.get(2, 0)
    return signed(number) if isinstance(number, int) else 0


def _double(data: bytes) -> float:
    if len(data) != _DOUBLE.size:
        raise WireError(f"{len(data)} bytes where a double was expected")
    number: float = _DOUBLE.unpack(data)[0]
    return number


def _json(data: bytes) -> Any:
    raw = _first(data)
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise WireError(f"embedded JSON is malformed: {error}") from error


_FROM_BYTES: Final[dict[str, Callable[[bytes], Any]]] = {
    "string": lambda data: data.decode(),
    "bytes": lambda data: base64.b64encode(data).decode(),
    "float64": _double,
    "Quantity": lambda data: _first(data).decode(),
    "Time": _time,
    "MicroTime": _micro_time,
    "Duration": _duration,
    "IntOrString": _int_or_string,
    "Fields": _json,
    "Raw": _json,
}
