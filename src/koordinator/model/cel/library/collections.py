"""Functions of lists, of lists as sets, and of optional values (Kubernetes; cel-go, ``ext``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.cost import LIST
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, Row, overloads
from koordinator.model.cel.values import NONE, Duration, Optional, UInt, checked_int, checked_uint, contains, equal

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
_MOST: Final = 1_000_000
"""Elements of a list that a function makes."""
_DEEPEST: Final = 64
"""Levels of lists in lists; no value has more."""


def _is_sorted(items: list[Any]) -> bool:
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _sum(items: list[Any], zero: Any) -> Any:
    if isinstance(zero, Duration):
        return Duration(checked_int(sum(item.nanoseconds for item in items)))
    total = sum(items, zero)
    if isinstance(zero, float):
        return float(total)
    return checked_uint(int(total)) if isinstance(zero, UInt) else checked_int(total)


def _summing(zero: Any) -> Callable[[list[Any]], Any]:
    return lambda items: _sum(items, zero)


def _extreme(name: str, pick: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def extreme(items: list[Any]) -> Any:
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        return pick(items)

    return extreme


def _index_of(meter: Meter, items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item, wanted, meter.labour)), -1)


def _last_index_of(meter: Meter, items: list[Any], wanted: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if equal(items[i], wanted, meter.labour)), -1)


def _slice(meter: Meter, items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return _made(meter, items[start:end])


def _made(meter: Meter, items: list[Any]) -> list[Any]:
    """Charge for a new list, in the units of cel-go."""
    meter.charge(len(items) + LIST)
    return items


def _flatten(meter: Meter, items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    meter.charge(depth * len(items) + LIST)
    return _flat(meter, items, min(depth, _DEEPEST))


def _flat(meter: Meter, items: list[Any], depth: int) -> list[Any]:
    flat: list[Any] = []
    meter.labour(len(items))
    for item in items:
        if isinstance(item, list) and depth:
            flat += _flat(meter, item, depth - 1)
        else:
            flat.append(item)
    return flat


def _pairs(meter: Meter, items: list[Any]) -> None:
    """Charge for comparing each with each, as cel-go does for what is sorted, too."""
    tenths = 21 if items and isinstance(items[0], (str, bytes)) else 20
    meter.charge(len(items) ** 2 * tenths // 10 + LIST)


def _sort(meter: Meter, items: list[Any]) -> list[Any]:
    _pairs(meter, items)
    return sorted(items)


def _sort_by(meter: Meter, items: list[Any], keys: list[Any]) -> list[Any]:
    _pairs(meter, keys)
    order = sorted(range(len(items)), key=keys.__getitem__)
    return [items[index] for index in order]


def _range(meter: Meter, count: int) -> list[int]:
    # Charged before it is there: the number is anyone's.
    meter.charge(max(count, 0) + LIST)
    return list(range(min(count, _MOST)))


def _distinct(meter: Meter, items: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    _pairs(meter, items)
    for item in items:
        if not contains(distinct, item, meter.labour):
            distinct.append(item)
    return distinct


def _contains_all(meter: Meter, items: list[Any], wanted: list[Any]) -> bool:
    meter.charge(len(items) * len(wanted))
    return all(contains(items, item, meter.labour) for item in wanted)


def _equivalent(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return _contains_all(meter, left, right) and _contains_all(meter, right, left)


def _intersects(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    meter.charge(len(left) * len(right))
    return any(contains(left, item, meter.labour) for item in right)


def _value(of: Optional) -> Any:
    if not of.present:
        raise EvaluationError("optional.none() dereference")
    return of.value


def _non_zero(value: Any) -> Optional:
    nothing = value is None or value is False or value in (0, "", b"", [], {}, Duration(0))
    return NONE if nothing else Optional(True, value)


def _element(of: Optional, key: Any) -> Optional:
    if not of.present:
        return NONE
    if isinstance(of.value, dict):
        return Optional(True, of.value[key]) if key in of.value else NONE
    return Optional(True, of.value[key]) if 0 <= key < len(of.value) else NONE


def _by_type() -> list[Row]:
    rows: list[Row] = []
    for kind in _COMPARABLE:
        rows += [
            (f"list_{kind}_is_sorted_bool", f"list({kind})->isSorted(): bool", _is_sorted),
            (f"list_{kind}_max_{kind}", f"list({kind})->max(): {kind}", _extreme("max", max)),
            (f"list_{kind}_min_{kind}", f"list({kind})->min(): {kind}", _extreme("min", min)),
        ]
    for kind, zero in _SUMMABLE.items():
        rows.append((f"list_{kind}_sum_{kind}", f"list({kind})->sum(): {kind}", _summing(zero)))
    return rows


COLLECTIONS: Final[list[Overload]] = [
    *overloads(_by_type()),
    *overloads(
        (
            ("list_a_index_of_int", "list(A)->indexOf(A): int", _index_of),
            ("list_a_last_index_of_int", "list(A)->lastIndexOf(A): int", _last_index_of),
            ("list_slice", "list(T)->slice(int, int): list(T)", _slice),
            ("list_flatten", "list(list(T))->flatten(): list(T)", _flatten),
            ("list_flatten_int", "list(dyn)->flatten(int): list(dyn)", _flatten),
            *((f"list_{kind}_sort", f"list({kind})->sort(): list({kind})", _sort) for kind in _COMPARABLE),
            *(
                (
                    f"list_{kind}_sortByAssociatedKeys",
                    f"list(T)->@sortByAssociatedKeys(list({kind})): list(T)",
                    _sort_by,
                )
                for kind in _COMPARABLE
            ),
            ("lists_range", "lists.range(int): list(int)", _range),
            ("list_reverse", "list(T)->reverse(): list(T)", lambda meter, items: _made(meter, items[::-1])),
            ("list_distinct", "list(T)->distinct(): list(T)", _distinct),
            ("list_sets_contains_list", "sets.contains(list(T), list(T)): bool", _contains_all),
            ("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)): bool", _equivalent),
            ("list_sets_intersects_list", "sets.intersects(list(T), list(T)): bool", _intersects),
        ),
        metered=True,
    ),
]
OPTIONALS: Final[list[Overload]] = overloads((
    ("optional_of", "optional.of(V): optional(V)", lambda value: Optional(True, value)),
    ("optional_ofNonZeroValue", "optional.ofNonZeroValue(V): optional(V)", _non_zero),
    ("optional_none", "optional.none(): optional(V)", lambda: NONE),
    ("optional_value", "optional(V)->value(): V", _value),
    ("optional_hasValue", "optional(V)->hasValue(): bool", lambda of: of.present),
    ("list_optindex_optional_int", "_[?_](list(V), int): optional(V)", _element),
    ("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int): optional(V)", _element),
    ("map_optindex_optional_value", "_[?_](map(K, V), K): optional(V)", _element),
    ("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K): optional(V)", _element),
    ("optional_list_index_int", "_[_](optional(list(V)), int): optional(V)", _element),
    ("optional_map_index_value", "_[_](optional(map(K, V)), K): optional(V)", _element),
))  # fmt: skip
