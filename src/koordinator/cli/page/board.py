"""What the page shows, as rows by table, and what has changed from one turn to the next.

A row is encoded once, when it changes, for all viewers and for the first state that a new viewer gets. A viewer sees
the rows that its rights allow, and of a table that it may not see at all, which right is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.codec import encode

Row = Mapping[str, Any]
_GONE: Final = b"null"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a viewer may see of one table: all rows, or those of some namespaces. ``lacks`` says which right is missing
    for the rest, in a sentence; empty where none is."""

    everywhere: bool = True
    namespaces: frozenset[str] = frozenset()
    lacks: str = ""

    def shows(self, key: str) -> bool:
        """Whether the row ``namespace/name`` may be seen; rows without a namespace are for those who see all."""
        return self.everywhere or key.partition("/")[0] in self.namespaces


SightOf = Callable[[str], Sight]
"""The name of a table -> what a viewer may see of it. Viewers with equal rights have one and the same function."""
ALL: Final = Sight()


def sees_all(table: str) -> Sight:
    """The sight of somebody who reads with the rights by which the board is filled."""
    return ALL


class Table:
    """The rows of one kind, by key. ``problem`` says why they are not known; empty where they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        self._rows: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._told = ""

    def put(self, key: str, row: Row) -> None:
        """Add a row, or replace it; one that is the same as before is no change."""
        encoded = encode(row)
        if self._rows.get(key) != encoded:
            self._rows[key] = encoded
            self._changed.add(key)

    def remove(self, key: str) -> None:
        if self._rows.pop(key, None) is not None:
            self._changed.add(key)

    def replace(self, rows: Mapping[str, Row]) -> None:
        """These are all the rows that there are."""
        for key in [key for key in self._rows if key not in rows]:
            self.remove(key)
        for key, row in rows.items():
            self.put(key, row)

    def turn(self) -> TableChange | None:
        """What has changed since the last turn; None for nothing."""
        if not self._changed and self.problem == self._told:
            return None
        self._told = self.problem
        rows = {key: self._rows.get(key, _GONE) for key in self._changed}
        self._changed.clear()
        return TableChange(rows, self.problem)

    def whole(self) -> TableChange:
        """All of it, for a viewer who has nothing yet. What changes before the next turn comes twice, which is no
        harm."""
        return TableChange(self._rows, self.problem)


@dataclass(frozen=True, slots=True)
class TableChange:
    """Rows as JSON by key, ``null`` for those that are gone."""

    rows: Mapping[str, bytes]
    problem: str

    def encoded(self, sight: Sight) -> bytes:
        """As one viewer may see it."""
        shown = ((key, row) for key, row in self.rows.items() if sight.shows(key))
        rows = b",".join(b"%b:%b" % (encode(key), row) for key, row in shown)
        return b'{"rows":{%b},"problem":%b,"lacks":%b}' % (rows, encode(self.problem), encode(sight.lacks))


@dataclass(frozen=True, slots=True)
class Turn:
    """What has changed in one turn; ``number`` counts the turns."""

    number: int
    tables: Mapping[str, TableChange]
    is_whole: bool = False
    _encoded: dict[SightOf, bytes] = field(default_factory=dict)

    def encoded(self, sight_of: SightOf) -> bytes:
        """As a viewer may see it; made once for all that see the same."""
        found = self._encoded.get(sight_of)
        if found is None:
            tables = b",".join(
                b"%b:%b" % (encode(name), table.encoded(sight_of(name))) for name, table in self.tables.items()
            )
            found = b'{"turn":%d,"whole":%b,"tables":{%b}}' % (
                self.number,
                b"true" if self.is_whole else b"false",
                tables,
            )
            self._encoded[sight_of] = found
        return found


class Board:
    """All tables. ``turn`` is called again and again by whoever keeps the time."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = {table.name: table for table in tables}
        self._number = 0

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def turn(self) -> Turn | None:
        """What has changed since the last turn; None for nothing."""
        changed = {table.name: change for table in self if (change := table.turn()) is not None}
        if not changed:
            return None
        self._number += 1
        return Turn(self._number, changed)

    def whole(self) -> Turn:
        """All that there is now."""
        return Turn(self._number, {table.name: table.whole() for table in self}, is_whole=True)
