"""The operators and functions of the language itself (cel-spec, Standard Definitions)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, Row, overloads
from koordinator.model.cel.library.conversions import moment
from koordinator.model.cel.library.patterns import matches
from koordinator.model.cel.values import (
    INT_MAX,
    INT_MIN,
    NANOSECONDS,
    Duration,
    MapList,
    SetList,
    Timestamp,
    UInt,
    checked_int,
    checked_uint,
    contains,
    equal,
)

_ORDERED: Final = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_MIXED: Final = (
    ("int", "double"),
    ("int", "uint"),
    ("uint", "double"),
    ("uint", "int"),
    ("double", "int"),
    ("double", "uint"),
)
_IDS: Final = {"int": "int64", "uint": "uint64"}


def _divided(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    return -(abs(left) % abs(right)) if left < 0 else abs(left) % abs(right)


def _quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if left != left or not left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _unsigned(compute: Callable[[int, int], int]) -> Callable[[int, int], UInt]:
    return lambda left, right: checked_uint(compute(int(left), int(right)))


def _moved(of: Timestamp, by: int) -> Timestamp:
    nanoseconds = of.nanoseconds + by
    if not -62_135_596_800 * NANOSECONDS <= nanoseconds < 253_402_300_800 * NANOSECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanoseconds)


def _span(nanoseconds: int) -> Duration:
    if not INT_MIN <= nanoseconds <= INT_MAX:
        raise EvaluationError("duration overflow")
    return Duration(nanoseconds)


def _difference(left: Timestamp | Duration, right: Timestamp | Duration) -> Duration:
    return _span(left.nanoseconds - right.nanoseconds)


def _milliseconds(of: Timestamp, zone: str = "") -> int:
    return of.nanoseconds % NANOSECONDS // 1_000_000


def _joined(meter: Meter, left: list[Any], right: list[Any]) -> list[Any]:
    """Sets take what they lack, and maps replace what they have under the same keys, as apply does."""
    meter.labour(len(left) + len(right))
    if isinstance(left, SetList):
        return SetList([*left, *(item for item in right if not contains(left, item, meter.labour))])
    if isinstance(left, MapList):
        merged = {left.key(item): item for item in left}
        merged.update({left.key(item): item for item in right})
        return MapList(list(merged.values()), left.keys)
    return [*left, *right]


def _item(items: list[Any], index: Any) -> Any:
    if not 0 <= index < len(items):
        raise EvaluationError(f"index out of bounds: {index}")
    return items[index]


def _value(of: dict[Any, Any], key: Any) -> Any:
    if key not in of:
        raise EvaluationError(f"no such key: {shown_key(key)}")
    return of[key]


def shown_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _in(meter: Meter, wanted: Any, items: list[Any]) -> bool:
    return contains(items, wanted, meter.labour)


def _calendar(pick: Callable[[datetime], int]) -> tuple[Callable[[Timestamp], int], Callable[[Timestamp, str], int]]:
    return lambda of: pick(moment(of)), lambda of, zone: pick(_in_zone(of, zone))


def _in_zone(of: Timestamp, zone: str) -> datetime:
    """``zone`` is an offset such as ``-08:00`` or a name of the tz database."""
    if ":" in zone:
        sign, body = (-1, zone[1:]) if zone.startswith("-") else (1, zone.removeprefix("+"))
        hours, _, minutes = body.partition(":")
        if hours.isdecimal() and minutes.isdecimal() and len(body) <= 5:
            return moment(of, sign * timedelta(hours=int(hours), minutes=int(minutes)))
        raise EvaluationError(f'strconv.Atoi: parsing "{body}": invalid syntax')
    try:
        return moment(of).astimezone(ZoneInfo(zone or "UTC"))
    except (KeyError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {zone}") from None


def _comparisons() -> list[Row]:
    """``<``, ``<=``, ``>`` and ``>=`` of all that has an order, and of numbers of different types."""
    orders: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
        ("_<_", "less", lambda left, right: left < right),
        ("_<=_", "less_equals", lambda left, right: left <= right),
        ("_>_", "greater", lambda left, right: left > right),
        ("_>=_", "greater_equals", lambda left, right: left >= right),
    )
    pairs = [(kind, kind) for kind in _ORDERED] + list(_MIXED)
    return [
        (f"{name}_{_IDS.get(left, left)}" + ("" if left == right else f"_{_IDS.get(right, right)}"),
         f"{operator}({left}, {right}): bool", _ordered(compare) if "double" in (left, right) else compare)
        for operator, name, compare in orders
        for left, right in pairs
    ]  # fmt: skip


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def ordered(left: Any, right: Any) -> Any:
        if left != left or right != right:
            raise EvaluationError("NaN values cannot be ordered")
        return compare(left, right)

    return ordered


_ARITHMETIC: Final[tuple[Row, ...]] = (
    ("logical_not", "!_(bool): bool", lambda value: not value),
    ("add_bytes", "_+_(bytes, bytes): bytes", lambda left, right: left + right),
    ("add_double", "_+_(double, double): double", lambda left, right: left + right),
    ("add_duration_duration", "_+_(duration, duration): duration", lambda a, b: _span(a.nanoseconds + b.nanoseconds)),
    ("add_duration_timestamp", "_+_(duration, timestamp): timestamp", lambda a, b: _moved(b, a.nanoseconds)),
    ("add_timestamp_duration", "_+_(timestamp, duration): timestamp", lambda a, b: _moved(a, b.nanoseconds)),
    ("add_int64", "_+_(int, int): int", lambda left, right: checked_int(left + right)),
    ("add_string", "_+_(string, string): string", lambda left, right: left + right),
    ("add_uint64", "_+_(uint, uint): uint", _unsigned(lambda left, right: left + right)),
    ("divide_double", "_/_(double, double): double", _quotient),
    ("divide_int64", "_/_(int, int): int", _divided),
    ("divide_uint64", "_/_(uint, uint): uint", _unsigned(_divided)),
    ("modulo_int64", "_%_(int, int): int", _remainder),
    ("modulo_uint64", "_%_(uint, uint): uint", _unsigned(_remainder)),
    ("multiply_double", "_*_(double, double): double", lambda left, right: left * right),
    ("multiply_int64", "_*_(int, int): int", lambda left, right: checked_int(left * right)),
    ("multiply_uint64", "_*_(uint, uint): uint", _unsigned(lambda left, right: left * right)),
    ("negate_double", "-_(double): double", lambda value: -value),
    ("negate_int64", "-_(int): int", lambda value: checked_int(-value)),
    ("subtract_double", "_-_(double, double): double", lambda left, right: left - right),
    ("subtract_duration_duration", "_-_(duration, duration): duration", _difference),
    ("subtract_int64", "_-_(int, int): int", lambda left, right: checked_int(left - right)),
    ("subtract_timestamp_duration", "_-_(timestamp, duration): timestamp", lambda a, b: _moved(a, -b.nanoseconds)),
    ("subtract_timestamp_timestamp", "_-_(timestamp, timestamp): duration", _difference),
    ("subtract_uint64", "_-_(uint, uint): uint", _unsigned(lambda left, right: left - right)),
)  # fmt: skip
_SIZED: Final = {"bytes": "bytes", "list": "list(A)", "map": "map(A, B)", "string": "string"}
_TEXTS: Final[tuple[Row, ...]] = (
    ("index_list", "_[_](list(A), int): A", _item),
    ("index_map", "_[_](map(A, B), A): B", _value),
    ("in_map", "@in(A, map(A, B)): bool", lambda key, of: key in of),
    *((f"size_{kind}", f"size({of}): int", len) for kind, of in _SIZED.items()),
    *((f"{kind}_size", f"{of}->size(): int", len) for kind, of in _SIZED.items()),
    ("contains_string", "string->contains(string): bool", lambda text, part: part in text),
    ("ends_with_string", "string->endsWith(string): bool", str.endswith),
    ("starts_with_string", "string->startsWith(string): bool", str.startswith),
    ("matches", "matches(string, string): bool", matches),
    ("matches_string", "string->matches(string): bool", matches),
    ("duration_to_hours", "duration->getHours(): int", lambda of: _toward_zero(of, 3600 * NANOSECONDS)),
    ("duration_to_minutes", "duration->getMinutes(): int", lambda of: _toward_zero(of, 60 * NANOSECONDS)),
    ("duration_to_seconds", "duration->getSeconds(): int", lambda of: _toward_zero(of, NANOSECONDS)),
    ("duration_to_milliseconds", "duration->getMilliseconds(): int", lambda of: _toward_zero(of, 1_000_000)),
    ("timestamp_to_milliseconds", "timestamp->getMilliseconds(): int", _milliseconds),
    ("timestamp_to_milliseconds_with_tz", "timestamp->getMilliseconds(string): int", _milliseconds),
)  # fmt: skip


def _toward_zero(of: Duration, unit: int) -> int:
    whole = abs(of.nanoseconds) // unit
    return -whole if of.nanoseconds < 0 else whole


def _calendars() -> list[Row]:
    parts: tuple[tuple[str, str, Callable[[datetime], int]], ...] = (
        ("getFullYear", "year", lambda at: at.year),
        ("getMonth", "month", lambda at: at.month - 1),
        ("getDayOfYear", "day_of_year", lambda at: at.timetuple().tm_yday - 1),
        ("getDayOfMonth", "day_of_month", lambda at: at.day - 1),
        ("getDate", "day_of_month_1_based", lambda at: at.day),
        ("getDayOfWeek", "day_of_week", lambda at: at.isoweekday() % 7),
        ("getHours", "hours", lambda at: at.hour),
        ("getMinutes", "minutes", lambda at: at.minute),
        ("getSeconds", "seconds", lambda at: at.second),
    )
    rows: list[Row] = []
    for name, identity, pick in parts:
        plain, zoned = _calendar(pick)
        rows.append((f"timestamp_to_{identity}", f"timestamp->{name}(): int", plain))
        rows.append((f"timestamp_to_{identity}_with_tz", f"timestamp->{name}(string): int", zoned))
    return rows


def _inserted(meter: Meter, into: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Into the accumulator of a fold, which nothing else sees: in place."""
    meter.labour(1)
    if key in into:
        raise EvaluationError(f"insert failed: key {shown_key(key)} already exists")
    into[key] = value
    return into


def _inserted_all(meter: Meter, into: dict[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in entries.items():
        _inserted(meter, into, key, value)
    return into


STANDARD: Final[list[Overload]] = [
    *overloads((*_ARITHMETIC, *_comparisons(), *_TEXTS, *_calendars())),
    *overloads(
        (
            ("equals", "_==_(A, A): bool", lambda meter, left, right: equal(left, right, meter.labour)),
            ("not_equals", "_!=_(A, A): bool", lambda meter, left, right: not equal(left, right, meter.labour)),
            ("add_list", "_+_(list(A), list(A)): list(A)", _joined),
            ("in_list", "@in(A, list(A)): bool", _in),
            ("@cel_mapInsert_map_key_value", "cel.@mapInsert(map(A, B), A, B): map(A, B)", _inserted),
            ("@cel_mapInsert_map_map", "cel.@mapInsert(map(A, B), map(A, B)): map(A, B)", _inserted_all),
        ),
        metered=True,
    ),
]
LAZY: Final[list[Overload]] = overloads((
    # Evaluated by the evaluator itself, since not all their arguments always are.
    ("conditional", "_?_:_(bool, A, A): A", lambda *args: None),
    ("logical_and", "_&&_(bool, bool): bool", lambda *args: None),
    ("logical_or", "_||_(bool, bool): bool", lambda *args: None),
    ("optional_or_optional", "optional(V)->or(optional(V)): optional(V)", lambda *args: None),
    ("optional_orValue_value", "optional(V)->orValue(V): V", lambda *args: None),
    ("not_strictly_false", "@not_strictly_false(bool): bool", lambda *args: None),
))  # fmt: skip
