"""What the vendors' tools print, read by the names that stand in it: tools get columns and lines with each version."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.device_daemon.machine import DiscoveryError

_SHOWN: Final = 100
_GAP: Final = re.compile(r"\s{2,}|\t")
"""Between the cells of a table: within names and values there are single blanks."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9#]+")
_UNIT: Final = re.compile(r"\s*\([^()]*\)\s*$")
_ABSENT: Final = frozenset({"", "-", "--", "na", "n/a"})


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by column name, and the lines below the header that are no rows of it."""

    columns: Sequence[str]
    rows: Sequence[dict[str, str]]
    odd: Sequence[str]


@dataclass(frozen=True, slots=True)
class Field:
    """A line ``Name(unit) : value``; ``section`` is the name of the line that it is indented below."""

    section: str
    name: str
    value: str


def plain(name: str) -> str:
    """A name as it is compared: ``Chip Phy-ID`` and ``chip phy id`` are the same."""
    return _NOT_IN_NAMES.sub(" ", name.lower()).strip()


def is_absent(value: str) -> bool:
    """Whether the tool says that it has no value."""
    return value.strip().lower() in _ABSENT


def number(text: str, what: str) -> int:
    """A decimal number. Raises DiscoveryError."""
    if not (text.isascii() and text.isdigit()):
        raise DiscoveryError(f"{what} {shown(text)} is not a number")
    if len(text) > len(str(1 << 62)):
        raise DiscoveryError(f"{what} {shown(text)} is too large")
    return int(text)


def shown(text: str) -> str:
    """As it may stand in a log line."""
    return repr(text.strip()[:_SHOWN])


def first_line(output: str) -> str:
    """What stands where something else was expected, as it may stand in a log line."""
    return shown(next((line for line in output.splitlines() if line.strip()), ""))


def odd_rows(odd: Sequence[str], what: str) -> str:
    """How rows that cannot be read are reported: all of them, in one line."""
    return f"{len(odd)} {'row' if len(odd) == 1 else 'rows'} of {what} cannot be read, such as {shown(odd[0])}"


def read_table(output: str, known: Sequence[str], required: Collection[str], what: str) -> Table:
    """The table whose header has the ``required`` columns; others may be there or not, in any order.

    ``known`` are the names (see ``plain``) of columns that are told apart even where single blanks are between them.
    Only the last cell of such a row may have blanks. Raises DiscoveryError, which says ``what`` was read, where there
    is no header.
    """
    lines = iter(output.splitlines())
    for line in lines:
        columns = _columns(line, known)
        if set(required) <= set(columns) and len(set(columns)) == len(columns):
            break
    else:
        names = ", ".join(sorted(required))
        raise DiscoveryError(f"{what} has no table with the columns {names}, but begins with {first_line(output)}")
    rows, odd = [], []
    for line in lines:
        if not line.strip():
            continue
        cells = _cells(line, len(columns))
        if cells is None:
            odd.append(line)
        else:
            rows.append(dict(zip(columns, cells, strict=True)))
    return Table(columns, rows, odd)


def _columns(line: str, known: Sequence[str]) -> list[str]:
    text = plain(line)
    found: list[str] = []
    while text:
        name = next((name for name in sorted(known, key=len, reverse=True) if f"{text} ".startswith(f"{name} ")), None)
        if name is None:
            return [plain(cell) for cell in _GAP.split(line.strip())]
        found.append(name)
        text = text[len(name) :].strip()
    return found


def _cells(line: str, count: int) -> list[str] | None:
    """None for a line that has another number of cells."""
    for cells in (_GAP.split(line.strip()), line.split(maxsplit=count - 1)):
        if len(cells) == count:
            return [cell.strip() for cell in cells]
    return None


def read_fields(output: str) -> Iterator[Field]:
    """In the order in which they are printed; names without units (see ``plain``)."""
    above: list[tuple[int, str]] = []
    for line in output.expandtabs(8).splitlines():
        name, _, value = line.partition(":")
        indent = len(line) - len(line.lstrip())
        name = plain(_UNIT.sub("", name))
        if not name:
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        yield Field(above[-1][1] if above else "", name, value.strip())
        above.append((indent, name))


def values_of(output: str, *names: str) -> list[str]:
    """The values of all fields with one of the names."""
    return [field.value for field in read_fields(output) if field.name in names]


def sum_of(fields: Iterable[Field], *names: str) -> int:
    """Of the numbers of those with one of the names; a field without a value is none. Raises DiscoveryError."""
    return sum(
        number(field.value, field.name) for field in fields if field.name in names and not is_absent(field.value)
    )
