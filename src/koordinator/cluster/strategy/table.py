"""``kubectl get`` tables: columns with the function that reads each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.age import age

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
