"""The domain of each node in a topology, as a number by node row, shared by all classes of pods that spread over it."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows

NO_DOMAIN: Final = -1
"""The domain number of a node without the topology key."""
NAMELESS: Final = 0
"""The number of the domain whose name is empty; it always exists."""


class Topology:
    """The domains of one topology key. The number of a domain without nodes is reused for another domain."""

    def __init__(self, key: str, columns: NodeColumns) -> None:
        self.key = key
        self.domain: Rows = np.full(columns.alive.shape[0], NO_DOMAIN, dtype=np.intp)
        """The domain of each row."""
        self.size = 1
        """Greater than any domain number."""
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
        """Set the domain of the node of ``row`` to ``name``; None for no domain."""
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
    """The topologies by key. Each is kept only as long as the state of some class of pods refers to it."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[str, Topology] = WeakValueDictionary()

    def topology(self, key: str) -> Topology:
        """The topology of the key, which is updated as long as the caller holds a reference to it."""
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


ABSENT: Final = 2**31 - 1
"""The value of a domain without a counted node in the minimum over domains; larger than any number of pods."""


class DomainCounts:
    """Counts nodes and matching pods by domain, for one constraint. A row contributes its pods if its node counts.
    Arrays by domain have at least one item more than there are domains, so that the index of a row without domain (-1)
    finds a neutral value at the end."""

    def __init__(self, domain: Rows, counts: Mask, pods: Ints, size: int) -> None:
        """By row: ``domain``, ``counts`` (whether the node counts) and ``pods``. ``size`` is the topology's."""
        self.domain = domain.copy()
        """The domain of each row."""
        self._counts = counts
        places = 2 * size + 16
        counting = np.flatnonzero(counts)
        self.nodes: Ints = np.bincount(domain[counting], minlength=places).astype(np.int64)
        """Domain -> number of nodes that count."""
        self.pods: Ints = np.bincount(domain[counting], weights=pods[counting], minlength=places).astype(np.int64)
        """Domain -> number of pods on these nodes."""
        self._or_absent: Ints = np.where(self.nodes > 0, self.pods, ABSENT)
        self.present = int(np.count_nonzero(self.nodes))
        """The number of domains with a node that counts."""

    @property
    def least(self) -> int:
        """The minimum number of pods over domains with a node that counts; ABSENT if there is no such domain."""
        return int(self._or_absent.min())

    @property
    def emptiest(self) -> int:
        """The number of a domain with ``least`` pods."""
        return int(self._or_absent.argmin())

    def add(self, row: int, pods: int) -> int | None:
        """Add ``pods`` to the row. Return the domain whose count changes; None if the node does not count."""
        if not self._counts.item(row):
            return None
        domain = self.domain.item(row)
        self._add(domain, 0, pods)
        return domain

    def move(self, row: int, domain: int, counts: bool, pods: int) -> list[int]:
        """Set the domain of the row, on which ``pods`` are, and whether its node counts. Return the domains whose
        counts change."""
        before, counted = self.domain.item(row), self._counts.item(row)
        if before == domain and counted == counts:
            return []
        if domain >= self.nodes.shape[0] - 1:
            self._grow(domain)
        self.domain[row] = domain
        self._counts[row] = counts
        if counted:
            self._add(before, -1, -pods)
        if counts:
            self._add(domain, 1, pods)
        return [number for number, involved in ((before, counted), (domain, counts)) if involved]

    def _add(self, domain: int, nodes: int, pods: int) -> None:
        had, now = self.nodes.item(domain), self.nodes.item(domain) + nodes
        self.nodes[domain] = now
        self.pods[domain] += pods
        self._or_absent[domain] = self.pods[domain] if now else ABSENT
        self.present += (now > 0) - (had > 0)

    def _grow(self, domain: int) -> None:
        more = np.zeros(domain + 16, dtype=np.int64)
        self.nodes = np.concatenate([self.nodes, more])
        self.pods = np.concatenate([self.pods, more])
        self._or_absent = np.concatenate([self._or_absent, np.full_like(more, ABSENT)])

    def widen(self, capacity: int) -> None:
        """Extend the arrays by row to ``capacity``."""
        more = capacity - self.domain.shape[0]
        self.domain = np.concatenate([self.domain, np.full(more, NO_DOMAIN, dtype=np.intp)])
        self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.bool_)])
