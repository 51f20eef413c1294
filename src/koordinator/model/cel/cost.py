"""What one call costs when it is evaluated (cel-go, ``runtimecost.go``; k8s.io/apiserver, ``library/cost.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.model.cel.functions import Overload
from koordinator.model.cel.values import size

LIST: Final = 10
MAP: Final = 30
Cost = Callable[[tuple[Any, ...]], int]
"""(arguments) -> units."""


def tenth(length: int) -> int:
    """Of the traversal of a text, rounded up."""
    return -(-length // 10)


def quarter(length: int) -> int:
    """Of a pattern, rounded up."""
    return -(-length // 4)


def cost_of(overload: Overload) -> Cost | None:
    """None for what costs one unit."""
    return _BY_NAME.get(overload.name) or _BY_ID.get(overload.id) or (
        _compared if overload.params[0:1] and overload.params[0].kind in ("string", "bytes")
        and overload.name in ("_<_", "_<=_", "_>_", "_>=_") else None
    )  # fmt: skip


def result_cost(overload: Overload, result: Any) -> int:
    """What can only be charged when the result is there."""
    return tenth(2 * len(result)) if overload.name == "join" else 0


def traversal(value: Any) -> int:
    """Of everything in a list or a map."""
    if isinstance(value, (str, bytes)):
        return len(value) // 10
    if isinstance(value, list):
        return sum(map(traversal, value)) if value and not isinstance(value[0], (int, float)) else len(value)
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(item) for key, item in value.items())
    return 1


def _compared(args: tuple[Any, ...]) -> int:
    return tenth(min(size(args[0]), size(args[1])))


def _equal(args: tuple[Any, ...]) -> int:
    return 1 if getattr(args[0], "cel_opaque", False) else _compared(args)


def _searched(args: tuple[Any, ...]) -> int:
    return tenth(1 + size(args[0])) * quarter(size(args[1]))


def _first(args: tuple[Any, ...]) -> int:
    return tenth(size(args[0]))


def _twice(args: tuple[Any, ...]) -> int:
    return tenth(2 * size(args[0]))


def _contains_ip(args: tuple[Any, ...]) -> int:
    return tenth(2 * size(args[0])) + (tenth(size(args[1])) if isinstance(args[1], str) else 0)


def _contains_cidr(args: tuple[Any, ...]) -> int:
    return _contains_ip(args) + tenth(size(args[0])) + 1


def _validated(args: tuple[Any, ...]) -> int:
    return tenth(1 + size(args[1])) * quarter(args[0].pattern_length)


_TRAVERSING: Final = ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")
_ONCE: Final = (
    "url", "isURL", "lowerAscii", "upperAscii", "substring", "trim", "jsonpatch.escapeKey", "cidr", "isIP", "isCIDR",
    "quantity", "isQuantity", "semver", "isSemver",
)  # fmt: skip
_BY_NAME: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(_TRAVERSING, lambda args: traversal(args[0])),
    **dict.fromkeys([name for name in _ONCE if name != "isURL"], _first),
    "replace": _twice,
    "split": _twice,
    "join": lambda args: 0,
    "find": _searched,
    "findAll": _searched,
    "ip.isCanonical": _twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validated,
    "check": lambda args: 350_000,
    "_==_": _equal,
    "_!=_": _compared,
}
_BY_ID: Final[Mapping[str, Cost]] = {
    "starts_with_string": lambda args: _first(args),
    "ends_with_string": lambda args: _first(args),
    "string_to_bytes": _first,
    "bytes_to_string": _first,
    "string_to_ip": _first,
    "strings_quote": _first,
    "string_format": _first,
    "in_list": lambda args: len(args[1]),
    "add_string": lambda args: tenth(len(args[0]) + len(args[1])),
    "add_bytes": lambda args: tenth(len(args[0]) + len(args[1])),
    "matches_string": _searched,
    "contains_string": lambda args: tenth(size(args[0])) * tenth(size(args[1])),
}
