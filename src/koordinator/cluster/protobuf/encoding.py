"""Objects, lists and watch events in protobuf, from the JSON that this server writes.

Only for clients that accept no JSON: to splice stored JSON is cheaper than to encode it field by field. What is absent
in JSON is left out, as every reader of protobuf takes it for Go's zero value.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, kind_type, named
from koordinator.base.durations import parse_duration
from koordinator.base.protobuf_wire import encode_double, encode_message, encode_number
from koordinator.cluster.protobuf.envelope import (
    API_VERSION,
    CONTENT_ENCODING,
    KIND,
    MAGIC,
    RAW,
    RAW_TYPE,
    TYPE_META,
    TYPE_STRING,
    NoTable,
)
from koordinator.cluster.protobuf.json_schema import (
    ALLOWED,
    ALLOWS,
    MANY,
    NUMBER,
    ONE,
    OR_BOOL,
    OR_LIST,
    OR_NAMES,
    SCHEMA,
    SCHEMA_TYPE,
)

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_LIST: Final = "List"
_METADATA, _ITEMS = 1, 2
_PARTIAL: Final = "PartialObjectMetadata"
_EVENT_TYPE, _EVENT_OBJECT = 1, 2
_RAW_EXTENSION: Final = 1
_LENGTH: Final = struct.Struct(">I")


def encode(body: bytes) -> bytes:
    """An object or a list, from its JSON. Raises NoTable for a kind without a description."""
    document: Document = msgspec.json.decode(body)
    api_version, kind = document.get("apiVersion", ""), document.get("kind", "")
    return _enveloped(api_version, kind, _object(document, api_version, kind))


def encode_event(line: bytes) -> bytes:
    """One event of a watch, from its line of JSON: its length, and a message with the object in an envelope."""
    event: dict[str, msgspec.Raw] = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    kind: str = msgspec.json.decode(event["type"])
    obj = encode_message(_RAW_EXTENSION, encode(bytes(event["object"])))
    message = _text(_EVENT_TYPE, kind) + encode_message(_EVENT_OBJECT, obj)
    return _LENGTH.pack(len(message)) + message


def can_encode(api_version: str, kind: str) -> bool:
    """Whether objects of the kind have a description: all but custom resources do."""
    return kind_type(api_version, kind) is not None


def _enveloped(api_version: str, kind: str, raw: bytes) -> bytes:
    names = _text(API_VERSION, api_version) + _text(KIND, kind)
    return (
        MAGIC
        + encode_message(TYPE_META, names)
        + encode_message(RAW, raw)
        + _text(CONTENT_ENCODING, "")
        + _text(RAW_TYPE, "")
    )


def _object(document: Document, api_version: str, kind: str) -> bytes:
    if kind == _PARTIAL:
        return encode_message(_METADATA, _message(document["metadata"], named(f"{_META}ObjectMeta")))
    # What lists the versions of the core group names no version itself.
    of = kind_type(api_version or "v1", kind)
    if of is not None:
        return _message(document, of)
    if not kind.endswith(_LIST):
        raise NoTable(f"{api_version} {kind}")
    item = kind.removesuffix(_LIST)
    metadata = encode_message(_METADATA, _message(document["metadata"], named(f"{_META}ListMeta")))
    items = (_object(each, api_version, item) for each in document["items"] or ())
    return metadata + b"".join(encode_message(_ITEMS, each) for each in items)


def _message(document: Document, of: ObjectType) -> bytes:
    parts = [encoded for field in of.fields.values() if field.number for encoded in _field(document, field)]
    for number, name in of.embedded.items():
        parts.append(encode_message(number, _message(document, named(name))))
    return b"".join(parts)


def _field(document: Document, field: Field) -> Iterator[bytes]:
    value = document.get(field.name)
    if value is None:
        return
    of, number = field.type, field.number
    if of.shape is Shape.LIST and not of.wrapped:
        for item in value:
            yield _encoded(number, item, of.of)
    elif of.shape is Shape.MAP:
        for key in sorted(value):
            entry = _text(1, key) + (_encoded(2, value[key], of.of) if value[key] is not None else b"")
            yield encode_message(number, entry)
    else:
        yield _encoded(number, value, of)


def _encoded(number: int, value: Any, of: Type) -> bytes:
    if of.shape is Shape.OBJECT:
        return encode_message(number, _message(value or {}, of.members))
    if of.shape is Shape.LIST:
        return encode_message(number, b"".join(_encoded(1, item, of.of) for item in value or ()))
    return _SCALARS[of.name](number, value)


def _text(number: int, value: str) -> bytes:
    """Go writes empty texts, too."""
    return encode_message(number, value.encode())


def _in_message(number: int, value: Any) -> bytes:
    """A quantity is a message of one text."""
    return encode_message(number, _text(1, str(value)))


def _json(number: int, value: Any) -> bytes:
    return encode_message(number, encode_message(_RAW_EXTENSION, msgspec.json.encode(value)))


def _time(number: int, value: str) -> bytes:
    moment = datetime.fromisoformat(value).astimezone(UTC)
    whole = moment.replace(microsecond=0)
    seconds = encode_number(1, int(whole.timestamp()))
    return encode_message(number, seconds + encode_number(2, moment.microsecond * 1000))


def _duration(number: int, value: str) -> bytes:
    nanoseconds = round(parse_duration(value).total_seconds() * 1e9)
    return encode_message(number, encode_number(1, nanoseconds))


def _int_or_string(number: int, value: int | str) -> bytes:
    if isinstance(value, str):
        return encode_message(number, encode_number(1, TYPE_STRING) + encode_number(2, 0) + _text(3, value))
    return encode_message(number, encode_number(1, 0) + encode_number(2, value) + _text(3, ""))


def _schema(number: int, value: Document) -> bytes:
    return encode_message(number, _message(value, SCHEMA_TYPE))


def _schema_or_list(number: int, value: Document | list[Document]) -> bytes:
    one = [_schema(ONE, value)] if isinstance(value, dict) else [_schema(MANY, each) for each in value]
    return encode_message(number, b"".join(one))


def _schema_or_bool(number: int, value: Document | bool) -> bytes:
    if isinstance(value, bool):
        return encode_message(number, encode_number(ALLOWS, value))
    return encode_message(number, encode_number(ALLOWS, 1) + _schema(ALLOWED, value))


def _schema_or_names(number: int, value: Document | list[str]) -> bytes:
    one = [_schema(ONE, value)] if isinstance(value, dict) else [_text(MANY, name) for name in value]
    return encode_message(number, b"".join(one))


_SCALARS: Final[dict[str, Callable[[int, Any], bytes]]] = {
    "string": _text,
    "bool": encode_number,
    "int32": encode_number,
    "int64": encode_number,
    "float64": encode_double,
    "bytes": lambda number, value: encode_message(number, base64.b64decode(value)),
    "Quantity": _in_message,
    "Time": _time,
    "MicroTime": _time,
    "Duration": _duration,
    "IntOrString": _int_or_string,
    "Fields": _json,
    "Raw": _json,
    NUMBER: encode_double,
    SCHEMA: _schema,
    OR_LIST: _schema_or_list,
    OR_BOOL: _schema_or_bool,
    OR_NAMES: _schema_or_names,
}
