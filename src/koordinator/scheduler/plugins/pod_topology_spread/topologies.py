"""Which domain of a topology each node is in, as numbers by row, shared by all classes of pods that spread over it."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import NodeColumns, Rows

NO_DOMAIN: Final = -1
"""The number of a node without the key."""
NAMELESS: Final = 0
"""The number of the domain whose name is the empty text, which there always is."""


class Topology:
    """The domains of one topology key. A number without nodes is used again for another domain."""

    def __init__(self, key: str, columns: NodeColumns) -> None:
        self.key = key
        self.domain: Rows = np.full(columns.alive.shape[0], NO_DOMAIN, dtype=np.intp)
        """The domain of each row."""
        self.size = 1
        """Greater than any number of a domain."""
        self._number_of: dict[str, int] = {"": NAMELESS}
        self._names = [""]
        self._nodes = [1]
        self._free: list[int] = []
        for row, node in enumerate(columns.nodes):
            if node is not None:
                self.place(row, node.metadata.labels.get(key))

    def name(self, number: int) -> str:
        """The label's value in the domain of this number."""
        return self._names[number]

    def place(self, row: int, name: str | None) -> None:
        """The node of ``row`` is in the domain ``name`` now; None: in none."""
        if row >= self.domain.shape[0]:
            more = np.full(row + 64, NO_DOMAIN, dtype=np.intp)
            self.domain = np.concatenate([self.domain, more])
        before = self.domain.item(row)
        if before >= 0 and self._names[before] == name:
            return
        self.domain[row] = NO_DOMAIN if name is None else self._enter(name)
        if before >= 0:
            self._leave(before)

    def _enter(self, name: str) -> int:
        number = self._number_of.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = self.size
                self.size += 1
                self._names.append(name)
                self._nodes.append(0)
            self._number_of[name] = number
        self._nodes[number] += 1
        return number

    def _leave(self, number: int) -> None:
        self._nodes[number] -= 1
        if not self._nodes[number]:
            del self._number_of[self._names[number]]
            self._free.append(number)


class Topologies:
    """The topologies that some class of pods uses at present."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[str, Topology] = WeakValueDictionary()

    def topology(self, key: str) -> Topology:
        """Kept current for as long as the caller holds it."""
        topology = self._by_key.get(key)
        if topology is None:
            topology = self._by_key[key] = Topology(key, self._columns)
        return topology

    def set_node(self, row: int, node: Node) -> None:
        for topology in self._by_key.values():
            topology.place(row, node.metadata.labels.get(topology.key))

    def remove_node(self, row: int) -> None:
        for topology in self._by_key.values():
            topology.place(row, None)
