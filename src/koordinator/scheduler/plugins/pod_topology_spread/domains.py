"""Which domain of a topology each node is in, as numbers by row, shared by all classes of pods that spread over it."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows

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


ABSENT: Final = 2**31 - 1
"""What a domain without any node that counts has in ``least``; larger than any number of pods."""


class DomainCounts:
    """A row adds its pods to its domain if its node counts. Arrays by domain have at least one place more than there
    are domains, so that a row without domain (-1) finds a neutral value at the end."""

    def __init__(self, domain: Rows, counts: Mask, pods: Ints, size: int) -> None:
        """``domain``, ``counts`` (whether the node counts) and ``pods`` by row; ``size`` of the topology."""
        self.domain = domain.copy()
        """The domain of each row."""
        self._counts = counts
        places = 2 * size + 16
        counting = np.flatnonzero(counts)
        self.nodes: Ints = np.bincount(domain[counting], minlength=places).astype(np.int64)
        """Nodes that count, by domain."""
        self.pods: Ints = np.bincount(domain[counting], weights=pods[counting], minlength=places).astype(np.int64)
        """Pods on them, by domain."""
        self._or_absent: Ints = np.where(self.nodes > 0, self.pods, ABSENT)
        self.present = int(np.count_nonzero(self.nodes))
        """Domains with a node that counts."""

    @property
    def least(self) -> int:
        """The pods of the present domain that has the fewest; ABSENT when there is none."""
        return int(self._or_absent.min())

    @property
    def emptiest(self) -> int:
        """The number of a domain that has ``least`` pods."""
        return int(self._or_absent.argmin())

    def add(self, row: int, pods: int) -> int | None:
        """The row has so many pods more; returns the domain that this changes."""
        if not self._counts.item(row):
            return None
        domain = self.domain.item(row)
        self._add(domain, 0, pods)
        return domain

    def move(self, row: int, domain: int, counts: bool, pods: int) -> list[int]:
        """The row, on which ``pods`` are, is in this domain now and counts or not; returns the domains that this
        changes."""
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
        """Make room for rows."""
        more = capacity - self.domain.shape[0]
        self.domain = np.concatenate([self.domain, np.full(more, NO_DOMAIN, dtype=np.intp)])
        self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.bool_)])
