"""The wire format of protocol buffers: numbered fields of varints, fixed-size numbers and byte strings.

For profiles, for request bodies in the embedded API server, and for the few small messages between agents on a node:
Google's library would add 6 MiB to an agent of 60, for messages of three fields. Reading skips unknown fields;
https://protobuf.dev/programming-guides/encoding defines the format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from koordinator.base.errors import KoordinatorError

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_LONGEST_VARINT: Final = 10
_MASK64: Final = (1 << 64) - 1

Value = int | bytes
"""A number, or the bytes of a string, a message, packed numbers or a fixed-size number."""


class MalformedMessageError(KoordinatorError):
    """The bytes are not a protocol buffers message."""


def varint(value: int) -> bytes:
    """Encode a non-negative number as a varint, as used in keys, lengths and packed fields."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_number(number: int, value: int) -> bytes:
    """Encode a field of type int32, int64 or bool, even if it is 0; negative values as two's complement of 64 bits."""
    return varint(number << 3 | _VARINT) + varint(value & _MASK64)


def encode_double(number: int, value: float) -> bytes:
    """Encode a field of type double."""
    return varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def encode_text(number: int, value: str) -> bytes:
    """Encode a field of type string; nothing for an empty string."""
    return encode_message(number, value.encode()) if value else b""


def encode_message(number: int, content: bytes) -> bytes:
    """Encode a field of a message, bytes or packed numbers; an empty one is present, too."""
    return varint(number << 3 | _LENGTH) + varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the fields with their numbers, in the order of the message. Raises MalformedMessageError."""
    return ((number, value) for number, value, _ in _fields(message))


def encoded_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each field's number and its complete encoding, number included; concatenated they are the message. A caller
    that changes one field thereby keeps unknown fields. Raises MalformedMessageError."""
    start = 0
    for number, _, end in _fields(message):
        yield number, message[start:end]
        start = end


def _fields(message: bytes) -> Iterator[tuple[int, Value, int]]:
    """Yield number, value, and the position at which the field ends."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            yield key >> 3, value, position
            continue
        if kind == _LENGTH:
            size, position = _read_varint(message, position)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise MalformedMessageError(f"a field has the wire type {kind}, which does not exist")
        if position + size > len(message):
            raise MalformedMessageError(f"a field of {size} bytes is cut off after {len(message) - position}")
        end = position + size
        yield key >> 3, message[position:end], end
        position = end


def texts(message: bytes, number: int) -> list[str]:
    """Return all values of a field of type string."""
    return [value.decode(errors="replace") for value in contents(message, number)]


def text(message: bytes, number: int) -> str:
    """Return the value of a field of type string, empty if it is absent; the last of several, as the format
    specifies."""
    found = texts(message, number)
    return found[-1] if found else ""


def contents(message: bytes, number: int) -> list[bytes]:
    """Return all values of a field of strings or messages. Raises MalformedMessageError if one is a number."""
    found = []
    for key, value in fields(message):
        if key != number:
            continue
        if not isinstance(value, bytes):
            raise MalformedMessageError(f"field {number} is a number")
        found.append(value)
    return found


def integers(message: bytes, number: int) -> list[int]:
    """Return all values of a field of type int64, packed or not."""
    found: list[int] = []
    for key, value in fields(message):
        if key != number:
            continue
        if isinstance(value, int):
            found.append(signed(value))
            continue
        position = 0
        while position < len(value):
            one, position = _read_varint(value, position)
            found.append(signed(one))
    return found


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if position >= len(message):
            raise MalformedMessageError("a number is cut off")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & _MASK64, position
    raise MalformedMessageError(f"a number has more than {_LONGEST_VARINT} bytes")


def signed(value: int) -> int:
    """Return the number whose two's complement of 64 bits is ``value``."""
    return value - (1 << 64) if value >> 63 else value
