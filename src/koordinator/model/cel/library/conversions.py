"""From values of one type to another, and to text as Go prints them (cel-go, ``common/types``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads
from koordinator.model.cel.values import (
    INT_MAX,
    INT_MIN,
    NANOSECONDS,
    UINT_MAX,
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    checked_int,
    checked_uint,
    type_name,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_DURATION_TERM: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}  # fmt: skip
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,25}", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|nan", re.ASCII | re.I
)
_LONGEST: Final = 400
_EARLIEST: Final = -62_135_596_800 * NANOSECONDS
_LATEST: Final = 253_402_300_800 * NANOSECONDS - 1


def duration_of(text: str) -> Duration:
    """Go's durations, to the nanosecond. Raises EvaluationError."""
    body = text[1:] if text[:1] in ("+", "-") else text
    total, end = 0, 0
    for term in _DURATION_TERM.finditer(body[:_LONGEST]):
        whole, fraction, unit = term.groups()
        if term.start() != end or not (whole or fraction):
            break
        end = term.end()
        total += int(whole or 0) * _UNITS[unit] + int(fraction or 0) * _UNITS[unit] // 10 ** len(fraction or "")
    if (body != "0" and (not body or end != len(body))) or total > INT_MAX:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return Duration(-total if text.startswith("-") else total)


def timestamp_of(text: str) -> Timestamp:
    """RFC 3339. Raises EvaluationError."""
    found = _RFC3339.fullmatch(text)
    moment = None if found is None else _calendar_time(found.groups()[:6])
    if found is None or moment is None:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    zone = found[8]
    offset = 0 if zone in "Zz" else int(zone[:3]) * 60 + int(zone[0] + zone[4:])
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset * 60
    return Timestamp(seconds * NANOSECONDS + int(f"{found[7] or '':0<9}"[:9]))


def _calendar_time(fields: Sequence[str]) -> datetime | None:
    year, month, day, hour, minute, second = map(int, fields)
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def moment(of: Timestamp, offset: timedelta = timedelta()) -> datetime:
    """To the second."""
    return _EPOCH + timedelta(seconds=of.nanoseconds // NANOSECONDS) + offset


def double_text(value: float) -> str:
    """As Go's ``%g`` with the shortest digits."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    digits, exponent = _scientific(value)
    if -4 <= exponent < 6 or value == 0:
        return _plain(value)
    sign = "-" if exponent < 0 else "+"
    return f"{digits}e{sign}{abs(exponent):02d}"


def _scientific(value: float) -> tuple[str, int]:
    mantissa, _, exponent = f"{value!r}".partition("e")
    if exponent:
        return mantissa.removesuffix(".0"), int(exponent)
    text = f"{value:.17e}"
    power = int(text.partition("e")[2])
    digits = mantissa.lstrip("-").replace(".", "").strip("0") or "0"
    shown = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return ("-" if value < 0 else "") + shown, power


def _plain(value: float) -> str:
    text = repr(value)
    if "e" in text:
        text = f"{value:.20f}".rstrip("0").rstrip(".")
    return text.removesuffix(".0")


def timestamp_text(value: Timestamp) -> str:
    fraction = f"{value.nanoseconds % NANOSECONDS:09d}".rstrip("0")
    return moment(value).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{fraction}" if fraction else "") + "Z"


def duration_text(value: Duration) -> str:
    whole, fraction = divmod(abs(value.nanoseconds), NANOSECONDS)
    digits = f"{fraction:09d}".rstrip("0")
    return ("-" if value.nanoseconds < 0 else "") + str(whole) + (f".{digits}" if digits else "") + "s"


def text(value: Any) -> str:
    """What ``string()`` makes of a value. Raises EvaluationError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(int(value)) if isinstance(value, int) else value
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'string'")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _bool(value: str) -> bool:
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def _int(value: str) -> int:
    if not _INTEGER.fullmatch(value) or not INT_MIN <= int(value) <= INT_MAX:
        raise EvaluationError("type conversion error from 'string' to 'int'")
    return int(value)


def _uint(value: str) -> UInt:
    if not _INTEGER.fullmatch(value) or value[0] in "+-" or int(value) > UINT_MAX:
        raise EvaluationError("type conversion error from 'string' to 'uint'")
    return UInt(value)


def _double(value: str) -> float:
    if len(value) > _LONGEST or not _DOUBLE.fullmatch(value):
        raise EvaluationError("type conversion error from 'string' to 'double'")
    return float(value)


def _truncated(value: float) -> int:
    if value != value or not -9223372036854775808.0 < value < 9223372036854775808.0:
        raise EvaluationError("integer overflow")
    return int(value)


def _unsigned(value: float) -> UInt:
    if value != value or not 0 <= value < 18446744073709551616.0:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


def _from_seconds(value: int) -> Timestamp:
    if not _EARLIEST <= value * NANOSECONDS <= _LATEST:
        raise EvaluationError("timestamp overflow")
    return Timestamp(value * NANOSECONDS)


def same(value: Any) -> Any:
    return value


CONVERSIONS: Final[list[Overload]] = overloads((
    ("type", "type(A): type(A)", lambda value: TypeValue(type_name(value))),
    ("bool_to_bool", "bool(bool): bool", same),
    ("string_to_bool", "bool(string): bool", _bool),
    ("bytes_to_bytes", "bytes(bytes): bytes", same),
    ("string_to_bytes", "bytes(string): bytes", str.encode),
    ("double_to_double", "double(double): double", same),
    ("int64_to_double", "double(int): double", float),
    ("string_to_double", "double(string): double", _double),
    ("uint64_to_double", "double(uint): double", float),
    ("duration_to_duration", "duration(duration): duration", same),
    ("int64_to_duration", "duration(int): duration", lambda value: Duration(checked_int(value * NANOSECONDS))),
    ("string_to_duration", "duration(string): duration", duration_of),
    ("to_dyn", "dyn(A): dyn", same),
    ("int64_to_int64", "int(int): int", same),
    ("double_to_int64", "int(double): int", _truncated),
    ("duration_to_int64", "int(duration): int", lambda value: value.nanoseconds),
    ("string_to_int64", "int(string): int", _int),
    ("timestamp_to_int64", "int(timestamp): int", lambda value: value.nanoseconds // NANOSECONDS),
    ("uint64_to_int64", "int(uint): int", lambda value: checked_int(int(value))),
    ("string_to_string", "string(string): string", same),
    ("bool_to_string", "string(bool): string", text),
    ("bytes_to_string", "string(bytes): string", text),
    ("double_to_string", "string(double): string", text),
    ("duration_to_string", "string(duration): string", text),
    ("int64_to_string", "string(int): string", text),
    ("timestamp_to_string", "string(timestamp): string", text),
    ("uint64_to_string", "string(uint): string", text),
    ("timestamp_to_timestamp", "timestamp(timestamp): timestamp", same),
    ("int64_to_timestamp", "timestamp(int): timestamp", _from_seconds),
    ("string_to_timestamp", "timestamp(string): timestamp", timestamp_of),
    ("uint64_to_uint64", "uint(uint): uint", same),
    ("double_to_uint64", "uint(double): uint", _unsigned),
    ("int64_to_uint64", "uint(int): uint", checked_uint),
    ("string_to_uint64", "uint(string): uint", _uint),
))  # fmt: skip
