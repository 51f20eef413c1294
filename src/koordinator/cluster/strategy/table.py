"""``kubectl get`` tables: columns with the function that reads each cell, and ages as kubectl prints them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Column

NONE: Final = "<none>"
UNSET: Final = "<unset>"
Cell = Callable[[Document, datetime], Any]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a kind and its cells, in the same order."""

    columns: Sequence[Column]
    cells: Sequence[Cell]

    def row(self, obj: Document, now: datetime) -> list[Any]:
        return [cell(obj, now) for cell in self.cells]


def table(*pairs: tuple[Column, Cell]) -> Table:
    return Table(tuple(column for column, _ in pairs), tuple(cell for _, cell in pairs))


def text(name: str, path: str, *, wide: bool = False, absent: Any = "") -> tuple[Column, Cell]:
    """A string column; ``path`` is dotted: ``spec.type``."""
    return Column(name, priority=int(wide)), at(path, absent)


def integer(name: str, path: str, *, wide: bool = False) -> tuple[Column, Cell]:
    return Column(name, "integer", priority=int(wide)), at(path, 0)


def boolean(name: str, path: str) -> tuple[Column, Cell]:
    return Column(name, "boolean"), at(path, False)


def computed(
    name: str, read: Callable[[Document], Any], kind: str = "string", *, wide: bool = False
) -> tuple[Column, Cell]:
    """A column that needs more than one field."""
    return Column(name, kind, priority=int(wide)), lambda obj, now: read(obj)


def at(path: str, absent: Any) -> Cell:
    names = path.split(".")

    def read(obj: Document, now: datetime) -> Any:
        value = lookup(obj, names)
        return absent if value is None else value

    return read


def lookup(obj: Any, names: Sequence[str]) -> Any:
    """The value at a path of object fields, None where it is not there."""
    for name in names:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


NAME = (Column("Name", format="name"), at("metadata.name", ""))
AGE: tuple[Column, Cell] = (Column("Age"), lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now))
CREATED_AT = (Column("Created At", "date"), at("metadata.creationTimestamp", None))
NAME_AND_AGE = table(NAME, CREATED_AT)
"""What the real server shows of a kind without columns of its own."""


def selector_text(selector: Document) -> str:
    """A label selector as kubectl shows it, in the syntax of ``kubectl get -l``."""
    parts = [labels_text(selector["matchLabels"])] if selector.get("matchLabels") else []
    for requirement in selector.get("matchExpressions") or []:
        key, operator = requirement["key"], requirement["operator"]
        values = ",".join(sorted(requirement.get("values") or []))
        simple = {"Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(simple.get(operator) or f"{key} {operator.lower()} ({values})")
    return ",".join(parts) or NONE


def labels_text(labels: Document) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


# Durations as kubectl shows them: about two digits of precision, so that a column stays narrow.


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


def human_duration(duration: timedelta) -> str:
    """``45s``, ``3m20s``, ``5h``, ``2d3h``, ``400d``, ``2y35d`` (k8s.io/apimachinery, duration.HumanDuration)."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def age(timestamp: Any, now: datetime) -> str:
    """How long ago an RFC 3339 time was; ``<unknown>`` when it is not set."""
    if not timestamp:
        return "<unknown>"
    return human_duration(now - datetime.fromisoformat(timestamp))


def _two(seconds: int, unit: int, name: str, small: int, small_name: str) -> str:
    whole, rest = divmod(seconds, unit)
    rest //= small
    return f"{whole}{name}{rest}{small_name}" if rest else f"{whole}{name}"
