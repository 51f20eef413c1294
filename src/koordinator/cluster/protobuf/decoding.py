"""Bodies of requests that client-go programs send in protobuf, decoded into JSON documents.

The field numbers come from the table of types.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, kind_type, named
from koordinator.api.timestamps import format_micro_time, format_time
from koordinator.base.durations import format_duration
from koordinator.base.protobuf_wire import MalformedMessageError, fields, signed
from koordinator.cluster.errors import bad_request, unsupported_media_type
from koordinator.cluster.protobuf.envelope import API_VERSION, KIND, MAGIC, RAW, TYPE_META, TYPE_STRING
from koordinator.cluster.protobuf.json_schema import (
    ALLOWED,
    ALLOWS,
    MANY,
    NUMBER,
    OR_BOOL,
    OR_LIST,
    OR_NAMES,
    SCHEMA,
    SCHEMA_TYPE,
)
from koordinator.cluster.resource import Resource

# Messages of Kubernetes' types as the JSON that Go would print for the decoded struct.
#
# Go writes fields that are no pointers even when they are zero; JSON then leaves out those marked ``omitempty``.
# Without that step a decoded Pod would be full of empty strings that its sender never set.


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY: Final[tuple[Any, ...]] = ("", 0, False, None, b"")
_DOUBLE: Final = struct.Struct("<d")


def decode_message(data: bytes, of: ObjectType) -> Document:
    """One message. Unknown field numbers are skipped, as protobuf demands. Raises MalformedMessageError."""
    document: Document = {}
    known = of.by_number
    for number, value in fields(data):
        if number in of.embedded:
            document.update(decode_message(_bytes(value), named(of.embedded[number])))
            continue
        field = known.get(number)
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
    entry = dict(fields(data))
    default: int | bytes = b"" if of.shape is not Shape.SCALAR or of.name in _FROM_BYTES else 0
    return _bytes(entry.get(1, b"")).decode(), _decode(entry.get(2, default), of)


def _decode(value: int | bytes, of: Type) -> Any:
    if of.shape is Shape.OBJECT:
        return decode_message(_bytes(value), of.members)
    if of.shape is Shape.LIST:
        return [_decode(item, of.of) for number, item in fields(_bytes(value)) if number == 1]
    if of.name == "bool":
        return bool(value)
    if of.name in ("int32", "int64"):
        if isinstance(value, bytes):
            raise MalformedMessageError("bytes where a number was expected")
        return signed(value)
    return _FROM_BYTES[of.name](_bytes(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedMessageError("a number where bytes were expected")
    return value


def _numbers(data: bytes) -> dict[int, int]:
    return {number: signed(value) for number, value in fields(data) if isinstance(value, int)}


def _first(data: bytes) -> bytes:
    return next((value for number, value in fields(data) if number == 1 and isinstance(value, bytes)), b"")


def _moment(data: bytes) -> datetime | None:
    """Seconds and nanoseconds; an empty message is Go's zero time, which JSON shows as null."""
    parts = _numbers(data)
    if not parts or parts.get(1, 0) <= -62_135_596_800:
        return None
    try:
        return _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError as error:
        raise MalformedMessageError("a time lies outside the years 1 to 9999") from error


def _time(data: bytes) -> str | None:
    moment = _moment(data)
    return format_time(moment) if moment else None


def _micro_time(data: bytes) -> str | None:
    moment = _moment(data)
    return format_micro_time(moment) if moment else None


def _duration(data: bytes) -> str:
    return format_duration(timedelta(microseconds=_numbers(data).get(1, 0) / 1000))


def _int_or_string(data: bytes) -> int | str:
    parts = dict(fields(data))
    if parts.get(1) == TYPE_STRING:
        return _bytes(parts.get(3, b"")).decode()
    number = parts.get(2, 0)
    return signed(number) if isinstance(number, int) else 0


def _double(data: bytes) -> float:
    if len(data) != _DOUBLE.size:
        raise MalformedMessageError(f"{len(data)} bytes where a double was expected")
    number: float = _DOUBLE.unpack(data)[0]
    return number


def _json(data: bytes) -> Any:
    raw = _first(data)
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise MalformedMessageError(f"embedded JSON is malformed: {error}") from error


def _number(data: bytes) -> float | int:
    number = _double(data)
    return int(number) if number.is_integer() else number


def _schema(data: bytes) -> Document:
    return decode_message(data, SCHEMA_TYPE)


def _schema_or_list(data: bytes) -> Document | list[Document]:
    many = [_schema(_bytes(value)) for number, value in fields(data) if number == MANY]
    return many or _schema(_first(data))


def _schema_or_bool(data: bytes) -> Document | bool:
    parts = dict(fields(data))
    return _schema(_bytes(parts[ALLOWED])) if ALLOWED in parts else bool(parts.get(ALLOWS, 0))


def _schema_or_names(data: bytes) -> Document | list[str]:
    names = [_bytes(value).decode() for number, value in fields(data) if number == MANY]
    return names or _schema(_first(data))


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
    NUMBER: _number,
    SCHEMA: _schema,
    OR_LIST: _schema_or_list,
    OR_BOOL: _schema_or_bool,
    OR_NAMES: _schema_or_names,
}


_JSON_TYPES: Final = ("application/json", "application/yaml")


def decode(body: bytes, resource: Resource | None) -> Document:
    """The object in a ``runtime.Unknown`` envelope; ``resource`` names the kind where the envelope does not.

    Raises ApiError: 400 for bytes that are no such envelope, 415 for a kind without a table.
    """
    if not body.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        api_version, kind, raw = _envelope(body[len(MAGIC) :])
        if not kind and resource is not None:
            api_version, kind = resource.api_version, resource.kind
        object_type = kind_type(_core_alias(api_version, kind), kind)
        if object_type is None:
            raise unsupported_media_type(_JSON_TYPES)
        return {"apiVersion": api_version, "kind": kind, **decode_message(raw, object_type)}
    except (MalformedMessageError, UnicodeDecodeError) as error:
        raise bad_request(f"unable to decode the protobuf body: {error}") from error


def _core_alias(api_version: str, kind: str) -> str:
    # Options are sent in the version of the resource that they are for.
    return "v1" if kind == "DeleteOptions" else api_version


def _envelope(data: bytes) -> tuple[str, str, bytes]:
    api_version = kind = ""
    raw = b""
    for number, value in fields(data):
        if number == RAW and isinstance(value, bytes):
            raw = value
        elif number == TYPE_META and isinstance(value, bytes):
            names = {inner: text for inner, text in fields(value) if isinstance(text, bytes)}
            api_version = names.get(API_VERSION, b"").decode()
            kind = names.get(KIND, b"").decode()
    return api_version, kind, raw
