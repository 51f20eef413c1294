"""What can be called: functions by name, each with overloads by the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.model.cel.types import Type, named, split_parameters
from koordinator.model.cel.values import type_name

Row = tuple[str, str, Callable[..., Any]]
"""(id, signature, function): ``("string_trim", "string.trim(): string", str.strip)``.

A signature with a type before the dot is that of a member function. A capital letter is any type.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    id: str
    name: str
    member: bool
    params: tuple[Type, ...]
    """With that of the target first."""
    result: Type
    run: Callable[..., Any]
    metered: bool
    """Whether ``run`` is given the meter of the evaluation first, since it may do much work."""


Functions = Mapping[str, tuple[Overload, ...]]


def overloads(rows: Iterable[Row], *, metered: bool = False) -> list[Overload]:
    return [_overload(*row, metered=metered) for row in rows]


def functions(*tables: Iterable[Overload]) -> Functions:
    """By name, in the order of their rows."""
    found: dict[str, tuple[Overload, ...]] = {}
    for table in tables:
        for overload in table:
            found[overload.name] = (*found.get(overload.name, ()), overload)
    return found


def _overload(identity: str, signature: str, run: Callable[..., Any], *, metered: bool) -> Overload:
    called, _, result = signature.rpartition("): ")
    head, arguments = _opened(called)
    target, separator, name = head.rpartition("->")
    params = [named(part) for part in split_parameters(arguments)]
    if separator:
        params.insert(0, named(target))
    return Overload(identity, name, bool(separator), tuple(params), named(result), run, metered)


def _opened(called: str) -> tuple[str, str]:
    """What is before the bracket of the arguments, which is closed by the end, and what is in it."""
    depth = 0
    for index in range(len(called) - 1, -1, -1):
        depth += (called[index] == ")") - (called[index] == "(")
        if depth < 0:
            return called[:index], called[index + 1 :]
    raise ValueError(called)


_BY_KIND: Final[Mapping[str, str]] = {
    "bool": "bool", "int": "int", "uint": "uint", "double": "double", "string": "string", "bytes": "bytes",
    "null": "null_type", "list": "list", "map": "map", "type": "type", "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}  # fmt: skip


def accepts(of: Type, value: Any) -> bool:
    """Whether a value can be an argument of this type; what lists and maps hold is not looked at."""
    if of.kind in ("dyn", "param"):
        return True
    name = type_name(value)
    return name == _BY_KIND.get(of.kind, of.name) or (of.kind == "struct" and name == "map")
