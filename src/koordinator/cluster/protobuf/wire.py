"""The protobuf wire format: numbered fields of varints, fixed-size numbers and byte strings."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from koordinator.base.errors import KoordinatorError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class WireError(KoordinatorError):
    """Bytes that end too early or hold a wire type that Kubernetes never writes."""


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of one message in the order in which they stand; fixed-size numbers come as their bytes."""
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, position = read_varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = read_varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise WireError(f"field {number} has the unknown wire type {wire_type}")
        end = position + length
        if end > len(data):
            raise WireError(f"field {number} is {end - len(data)} bytes longer than its message")
        yield number, data[position:end]
        position = end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(data):
            raise WireError("a number is cut off")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value & (2**64 - 1), position + index + 1
    raise WireError("a number has more than ten bytes")


def signed(value: int) -> int:
    """Kubernetes writes negative numbers in two's complement of 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def write_varint(value: int) -> bytes:
    """An unsigned varint."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def write_number(number: int, value: int) -> bytes:
    """A field that holds a number or a boolean; negative ones in two's complement of 64 bits."""
    return write_varint(number << 3 | _VARINT) + write_varint(value % 2**64)


def write_double(number: int, value: float) -> bytes:
    """A field that holds a floating point number."""
    return write_varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def write_bytes(number: int, value: bytes) -> bytes:
    """A field that holds a text or a message."""
    return write_varint(number << 3 | _BYTES) + write_varint(len(value)) + value
