"""The OpenAPI v2 document in protobuf, the only form of it that kubectl and other client-go programs read.

The messages are those of gnostic's OpenAPIv2.proto. They follow the JSON document field by field, so a table of them
says all there is: ``{key in JSON: (number, what the value is)}``. What this server never writes is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.base.protobuf_wire import encode_double, encode_message, encode_number

CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of the response."""
ACCEPTED: Final = (CONTENT_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""The media types that clients accept; the second, which client-go sends, is not a valid one."""

Encoder = Callable[[int, Any], bytes]
"""(field number, JSON value) -> the field in wire format, with its number."""
Message = Mapping[str, tuple[int, Encoder]]


def encode_document(document: Document) -> bytes:
    """A v2 document as made by ``koordinator.cluster.openapi.v2``."""
    return _message(document, _DOCUMENT, extensions=16)


def _message(value: Document, fields: Message, *, extensions: int = 0) -> bytes:
    """``extensions``: the field of the keys that begin with ``x-``; 0 where there are none."""
    parts = []
    for key, item in value.items():
        if key in fields:
            number, encode = fields[key]
            if item or encode not in _SCALARS:
                parts.append(encode(number, item))
        elif extensions and key.startswith("x-"):
            parts.append(_named(extensions, key, _any_value(item)))
    return b"".join(parts)


def _named(number: int, name: str, value: bytes) -> bytes:
    """An entry of what is a map in JSON."""
    return encode_message(number, encode_message(1, name.encode()) + encode_message(2, value))


def _text(number: int, value: str) -> bytes:
    return encode_message(number, value.encode())


def _texts(number: int, values: list[str]) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _any_value(value: Any) -> bytes:
    """Readers parse it as YAML, of which JSON is a part."""
    return encode_message(2, msgspec.json.encode(value))


def _any(number: int, value: Any) -> bytes:
    return encode_message(number, _any_value(value))


def _anys(number: int, values: list[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _schema(number: int, value: Document) -> bytes:
    return encode_message(number, _message(value, _SCHEMA, extensions=31))


def _type(number: int, value: str) -> bytes:
    return encode_message(number, _text(1, value))


def _items(number: int, value: Document) -> bytes:
    return encode_message(number, _schema(1, value))


def _schema_or_boolean(number: int, value: Document | bool) -> bytes:
    return encode_message(number, encode_number(2, value) if isinstance(value, bool) else _schema(1, value))


def _schemas(number: int, values: Document) -> bytes:
    """Properties and Definitions."""
    entries = (_named(1, name, _message(value, _SCHEMA, extensions=31)) for name, value in values.items())
    return encode_message(number, b"".join(entries))


def _info(number: int, value: Document) -> bytes:
    return encode_message(number, _message(value, {"title": (1, _text), "version": (2, _text)}))


def _paths(number: int, values: Document) -> bytes:
    entries = (_named(2, path, _message(item, _PATH_ITEM, extensions=10)) for path, item in values.items())
    return encode_message(number, b"".join(entries))


def _operation(number: int, value: Document) -> bytes:
    return encode_message(number, _message(value, _OPERATION, extensions=13))


def _query_parameters(number: int, values: list[Document]) -> bytes:
    """ParametersItem, Parameter, NonBodyParameter and its variant for queries, one within the other."""
    entries = (encode_message(2, encode_message(3, _message(value, _QUERY_PARAMETER))) for value in values)
    return b"".join(encode_message(number, encode_message(1, entry)) for entry in entries)


def _responses(number: int, values: Document) -> bytes:
    """Of each response only the description is ever written; a ResponseValue holds a Response."""
    described = {code: _message(value, {"description": (1, _text)}) for code, value in values.items()}
    entries = (_named(1, code, encode_message(1, value)) for code, value in described.items())
    return encode_message(number, b"".join(entries))


_SCALARS: Final = (_text, encode_double, encode_number)
"""Of these proto3 writes no zero, no false and no empty text; readers cannot distinguish them from absent ones."""
_SCHEMA: Final[Message] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, encode_double),
    "maximum": (7, encode_double),
    "exclusiveMaximum": (8, encode_number),
    "minimum": (9, encode_double),
    "exclusiveMinimum": (10, encode_number),
    "maxLength": (11, encode_number),
    "minLength": (12, encode_number),
    "pattern": (13, _text),
    "maxItems": (14, encode_number),
    "minItems": (15, encode_number),
    "uniqueItems": (16, encode_number),
    "maxProperties": (17, encode_number),
    "minProperties": (18, encode_number),
    "required": (19, _texts),
    "enum": (20, _anys),
    "additionalProperties": (21, _schema_or_boolean),
    "type": (22, _type),
    "items": (23, _items),
    "properties": (25, _schemas),
    "example": (30, _any),
}
_QUERY_PARAMETER: Final[Message] = {
    "in": (2, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, encode_number),
}
_OPERATION: Final[Message] = {
    "description": (3, _text),
    "consumes": (7, _texts),
    "parameters": (8, _query_parameters),
    "responses": (9, _responses),
}
_PATH_ITEM: Final[Message] = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "patch": (8, _operation),
}
_DOCUMENT: Final[Message] = {
    "swagger": (1, _text),
    "info": (2, _info),
    "paths": (8, _paths),
    "definitions": (9, _schemas),
}
