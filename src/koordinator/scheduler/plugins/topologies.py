"""The domains of topology keys: the sets of nodes with the same value of that label, as numbers by node row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import NodeColumns, Rows

NO_DOMAIN: Final = -1
"""The domain number of a row without the label. Arrays by domain have at least one item more than there are domains, so
that such a row finds a neutral value at the end."""
NAMELESS: Final = 0
"""The number of the domain whose name is empty; it always exists."""
Item = TypeVar("Item", bound=np.generic)


class Topology:
    """The domains of one key. The number of a domain is reused when its last row has left it."""

    def __init__(self, key: str, columns: NodeColumns) -> None:
        self.key = key
        self.domain: Rows = np.full(columns.alive.shape[0], NO_DOMAIN, dtype=np.intp)
        """The domain of each row."""
        self._number_of: dict[str, int] = {"": NAMELESS}
        self._names = [""]
        self._rows: list[set[int]] = [set()]
        self._free: list[int] = []
        for row in columns.row_of.values():
            self.set(row, columns.nodes[row])

    @property
    def size(self) -> int:
        """Greater than any domain number."""
        return len(self._names)

    def name(self, domain: int) -> str:
        """The label's value in the domain of this number."""
        return self._names[domain]

    def rows(self, domain: int) -> Iterable[int]:
        """The rows of a domain."""
        return self._rows[domain] if domain < len(self._rows) else ()

    def set(self, row: int, node: Node | None) -> None:
        """The node of ``row`` was added, updated or, with None, deleted."""
        if row >= self.domain.shape[0]:
            self.domain = grown(self.domain, row + 1, NO_DOMAIN)
        name = node.metadata.labels.get(self.key) if node is not None else None
        before = self.domain.item(row)
        if before != NO_DOMAIN and self._names[before] == name:
            return
        self.domain[row] = NO_DOMAIN if name is None else self._enter(row, name)
        if before != NO_DOMAIN:
            self._leave(row, before)

    def _enter(self, row: int, name: str) -> int:
        number = self._number_of.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                self._rows.append(set())
            self._number_of[name] = number
        self._rows[number].add(row)
        return number

    def _leave(self, row: int, number: int) -> None:
        rows = self._rows[number]
        rows.discard(row)
        if not rows and number != NAMELESS:
            del self._number_of[self._names[number]]
            self._free.append(number)


class Topologies:
    """The topologies by key. Each is kept, and updated, only as long as the state of some class of pods refers to
    it."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[str, Topology] = WeakValueDictionary()

    def __getitem__(self, key: str) -> Topology:
        topology = self._by_key.get(key)
        if topology is None:
            topology = self._by_key[key] = Topology(key, self._columns)
        return topology

    def set(self, row: int, node: Node | None) -> None:
        """See Topology."""
        for topology in self._by_key.values():
            topology.set(row, node)


def grown(array: NDArray[Item], length: int, fill: int = 0) -> NDArray[Item]:
    """A copy of the array with space for at least ``length`` items; new ones are ``fill``."""
    larger = np.full(max(64, 2 * array.shape[0], length), fill, dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger
