"""JSON to typed objects and back.

Decoding goes straight from bytes to structs. Go writes ``null`` for an unset list, map or struct here and there; a
document that the strict decoder refuses is read once more with its nulls removed, so that such objects cost a second
pass and nothing else. What is still wrong then is the writer's mistake and becomes a ``DecodeError`` with a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from threading import Lock
from typing import Any, Final, TypeVar, cast

import msgspec

from koordinator.api.duration import GoDuration as GoDuration
from koordinator.api.quantity import Bytes, MilliCPU, Quantity, parse_quantity
from koordinator.api.struct_fields import struct_fields
from koordinator.api.timestamps import format_time
from koordinator.base.durations import format_duration
from koordinator.base.errors import KoordinatorError

T = TypeVar("T")
D = TypeVar("D")


class DecodeError(KoordinatorError, ValueError):
    """JSON that is not what the kind allows; the text ends with the path of the field."""


class NestingError(DecodeError):
    """JSON that is nested deeper than the decoder goes."""


_FROM_TEXT: Final[dict[type, Callable[[str], Any]]] = {
    Quantity: parse_quantity,
    MilliCPU: MilliCPU.parse,
    Bytes: Bytes.parse,
    GoDuration: GoDuration.parse,
}


def _decode_custom(expected: type, value: Any) -> Any:
    if type(value) is str:
        return _FROM_TEXT[expected](value)
    if expected is GoDuration:
        raise ValueError(f"expected a duration such as 5m0s, got {_kind_of(value)}")
    if value is None:
        return _FROM_TEXT[expected]("0")
    if isinstance(value, int | float):
        return _FROM_TEXT[expected](repr(value))
    raise ValueError(f"expected a quantity, got {_kind_of(value)}")


def _kind_of(value: Any) -> str:
    """For messages, which an object of any size must not make long."""
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else repr(value)


def _encode_custom(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no encoder for {type(value)!r}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_custom)


_compiling = Lock()
_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
NESTED: Final = b'"nested too deep"'
TOO_DEEP: Final = "it is nested too deep"


@cache
def _decoder(expected: Any) -> msgspec.json.Decoder[Any]:
    # msgspec keeps what it finds out about a struct in the struct, and crashes where two threads do so at once.
    with _compiling:
        return msgspec.json.Decoder(expected, dec_hook=_decode_custom, strict=True)


def decode(body: bytes | bytearray | memoryview | msgspec.Raw | str, expected: type[T]) -> T:
    """Decode JSON into ``expected``. Raises DecodeError naming what is wrong and where."""
    try:
        return cast("T", _decoder(cast("Any", expected)).decode(body))
    except msgspec.ValidationError:
        return convert(decode_any(body), expected)
    except RecursionError as error:
        raise NestingError(TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not JSON: {error}") from error


def decode_or(text: str | None, expected: type[T], otherwise: D) -> T | D:
    """Decode an annotation; ``otherwise`` if there is none, an empty one, or one that cannot be decoded."""
    try:
        return decode(text, expected) if text else otherwise
    except DecodeError:
        return otherwise


def decoder(expected: type[T]) -> Callable[[bytes], T]:
    """``decode`` for one type, for callers that decode a thousand of it a second: looking the type up each time costs
    a tenth of what it takes to decode a pod."""
    fast = cast("Callable[[bytes], T]", _decoder(cast("Any", expected)).decode)

    def decode_one(body: bytes) -> T:
        try:
            return fast(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode(body, expected)

    return decode_one


def decode_any(body: bytes | bytearray | memoryview | msgspec.Raw | str) -> Any:
    """Decode JSON into dicts, lists and plain values."""
    try:
        return msgspec.json.decode(body)
    except RecursionError as error:
        raise NestingError(TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not JSON: {error}") from error


def without_nesting(body: bytes, most: int) -> bytes:
    """JSON with ``NESTED`` in the place of what is nested in more than ``most`` others."""
    kept, depth, begin = list[bytes](), 0, 0
    for found in _NESTING.finditer(body):
        token = found.group()
        if token in b"[{":
            depth += 1
            if depth == most + 1:
                kept += (body[begin : found.start()], NESTED)
        elif token in b"]}":
            if depth == most + 1:
                begin = found.end()
            depth -= 1
    return b"".join((*kept, body[begin:])) if depth <= most else b"".join(kept)


def convert(document: Any, expected: type[T]) -> T:
    """Turn plain dicts and lists (from YAML, say) into ``expected``, as ``decode`` does. Raises DecodeError."""
    try:
        return _convert(document, expected)
    except (msgspec.ValidationError, ValueError, RecursionError):
        pass
    try:
        return _convert(without_nulls(document), expected)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise DecodeError(str(error)) from error


def _convert(document: Any, expected: type[T]) -> T:
    _decoder(cast("Any", expected))
    return msgspec.convert(document, expected, dec_hook=_decode_custom, strict=True)


def encode(value: Any) -> bytes:
    """Encode a struct or plain values as compact JSON."""
    return _encoder.encode(to_document(value) if isinstance(value, msgspec.Struct) else value)


def to_document(value: Any) -> Any:
    """A struct as plain dicts, lists and strings, in the wire's form for times, durations and quantities."""
    if isinstance(value, msgspec.Struct):
        return _struct_document(value)
    if isinstance(value, dict):
        return {key: to_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_document(item) for item in value]
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    return value


def _struct_document(value: msgspec.Struct) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in struct_fields(type(value)):
        item = getattr(value, field.name)
        if item is None or item is msgspec.UNSET or (not field.always_written and _is_same(item, field.default)):
            continue
        document[field.wire_name] = to_document(item)
    return document


def _is_same(item: Any, default: Any) -> bool:
    return item is default or (type(item) is type(default) and bool(item == default))


def without_nulls(document: Any) -> Any:
    """The same document with every null member and element left out."""
    if isinstance(document, dict):
        return {key: without_nulls(value) for key, value in document.items() if value is not None}
    if isinstance(document, list):
        return [without_nulls(value) for value in document if value is not None]
    return document
