"""The values of expressions. Most are Python's own: bool, int, float, str, bytes, None, list and dict.

A dict is a map or an object; an object's fields have the names that expressions use for them. What Python has no exact
type for is here: unsigned numbers, nanoseconds, types, optional values, lists without an order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from koordinator.model.cel.errors import EvaluationError

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1
NANOSECONDS: Final = 1_000_000_000


class UInt(int):
    """An unsigned number of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    nanoseconds: int
    """Since 1970 in UTC."""
    cel_type: ClassVar[str] = "google.protobuf.Timestamp"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanoseconds: int
    cel_type: ClassVar[str] = "google.protobuf.Duration"


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What ``type(x)`` returns."""

    name: str
    cel_type: ClassVar[str] = "type"


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Any = None
    cel_type: ClassVar[str] = "optional_type"


NONE: Final = Optional(False)


class SetList(list[Any]):
    """A list with ``x-kubernetes-list-type: set``."""

    __slots__ = ()


class MapList(list[Any]):
    """A list with ``x-kubernetes-list-type: map``."""

    __slots__ = ("keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def key(self, item: Any) -> tuple[str, ...]:
        """What identifies an item."""
        return tuple(repr(item.get(name)) if isinstance(item, dict) else repr(item) for name in self.keys)


class LazyFields:
    """An object whose fields are evaluated when they are first used, such as the variables of a policy."""

    __slots__ = ("_known", "cel_fields")
    cel_type: ClassVar[str] = "map"

    def __init__(self, fields: Mapping[str, Callable[[], Any]]) -> None:
        self.cel_fields = fields
        self._known: dict[str, Any] = {}

    def field(self, name: str) -> Any:
        """Raises EvaluationError: what evaluating it raises, each time."""
        if name not in self.cel_fields:
            raise EvaluationError(f"no such key: {name}")
        if name not in self._known:
            try:
                self._known[name] = self.cel_fields[name]()
            except EvaluationError as error:
                self._known[name] = Failure(error)
        value = self._known[name]
        if type(value) is Failure:
            raise value.error
        return value


class Failure:
    """An error in place of a value, in the accumulator of a fold: ``all`` and ``exists`` may still absorb it."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    SetList: "list",
    MapList: "list",
    dict: "map",
}
NUMBERS: Final = frozenset((int, UInt, float))
_SIZED: Final = frozenset((str, bytes, list, SetList, MapList, dict))


def type_name(value: Any) -> str:
    """``int``, ``map``, ``kubernetes.Quantity`` …"""
    name = _NAMES.get(type(value))
    return name if name is not None else str(value.cel_type)


def size(value: Any) -> int:
    """What a traversal of the value costs; one for what has no size."""
    if type(value) in _SIZED:
        return len(value)
    if type(value) is Optional and value.present:
        return size(value.value)
    own = getattr(value, "cel_size", None)
    return 1 if own is None else int(own)


def equal(left: Any, right: Any, labour: Callable[[int], None]) -> bool:
    """CEL's equality: of any two values, numbers by their amount. ``labour`` is told of the work."""
    kind = type(left)
    if kind is not type(right):
        if kind in NUMBERS and type(right) in NUMBERS:
            return bool(left == right)
        if not (isinstance(left, list) and isinstance(right, list)):
            return False
    if kind is Optional:
        return left.present == right.present and (not left.present or equal(left.value, right.value, labour))
    if isinstance(left, list):
        return _equal_lists(left, right, labour)
    if kind is dict:
        labour(len(left) + 1)
        return left.keys() == right.keys() and all(equal(value, right[key], labour) for key, value in left.items())
    if kind in (str, bytes):
        labour(len(left) >> 10)
    return bool(left == right)


def _equal_lists(left: list[Any], right: list[Any], labour: Callable[[int], None]) -> bool:
    labour(len(left) + 1)
    if len(left) != len(right):
        return False
    if isinstance(left, SetList):
        # Sets and maps of the real server are compared without regard to their order.
        return all(contains(right, item, labour) for item in left)
    if isinstance(left, MapList):
        others = {left.key(item): item for item in right}
        keys = [left.key(item) for item in left]
        return all(key in others and equal(item, others[key], labour) for key, item in zip(keys, left, strict=True))
    return all(equal(item, other, labour) for item, other in zip(left, right, strict=True))


def contains(items: list[Any], wanted: Any, labour: Callable[[int], None]) -> bool:
    """Whether something in the list equals a value."""
    if type(wanted) is str:
        labour(len(items) >> 4)
        return wanted in items
    labour(len(items))
    return any(equal(item, wanted, labour) for item in items)


def checked_int(value: int) -> int:
    """Raises EvaluationError when it does not fit into 64 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def checked_uint(value: int) -> UInt:
    """Raises EvaluationError when it does not fit into 64 bits."""
    if not 0 <= value <= UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)
