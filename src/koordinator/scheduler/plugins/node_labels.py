"""What the labels of nodes say, by row: the results of functions of a node's labels and name, computed once a row and
remembered until the labels change, and the domains of topology keys, which are the sets of nodes with the same value of
that label, as numbers.

Thousands of pods ask the same of all nodes: does this selector match, may this volume be used here. A volume on the
disk of a node names that node by its host name; such a test fails for all other rows without being evaluated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.base.groups import Groups
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.plugin_forms import SomeRows
from koordinator.scheduler.engine.row_amounts import grown
from koordinator.scheduler.engine.view import ClusterView

HOST_NAME: Final = "kubernetes.io/hostname"
_NAME: Final = "LabelRows"
_NEVER: Final = -1
_CELLS: Final = 2_000_000

Compute = Callable[[Node], int]
"""A result for a node, or for a test whether it passes."""


class LabelRows(EventHandler):
    """Which labels each row has had since when: every change of them gives the row a new version."""

    handles_status_updates = False

    def __init__(self, columns: NodeColumns) -> None:
        self.columns = columns
        self._known: dict[int, Mapping[str, str]] = {}
        self._of_host = Groups[str, int, None]()
        self.versions: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    @classmethod
    def of(cls, view: ClusterView) -> LabelRows:
        """Those of a view, for all profiles; created by the first caller."""
        return view.share(_NAME, lambda: cls(view.columns))

    def on_reset(self) -> None:
        for row in list(self._known):
            self.on_node_removed(row, "")

    def on_node(self, row: int, node: Node) -> None:
        """May be called any number of times."""
        labels = node.metadata.labels
        before = self._known.get(row)
        if before is labels or before == labels:
            return
        self._forget_host(row, before)
        self._known[row] = labels
        self._of_host.put(labels.get(HOST_NAME, ""), row, None)
        self._move_on(row)

    def on_node_removed(self, row: int, name: str) -> None:
        if row in self._known:
            self._forget_host(row, self._known.pop(row))
            self._move_on(row)

    def on_hosts(self, hosts: frozenset[str]) -> list[int]:
        """The rows whose nodes bear one of these host names."""
        return sorted(row for host in hosts for row in self._of_host.of(host))

    def _forget_host(self, row: int, labels: Mapping[str, str] | None) -> None:
        if labels is not None:
            self._of_host.take(labels.get(HOST_NAME, ""), row)

    def _move_on(self, row: int) -> None:
        self.fit(row + 1)
        self.versions[row] += 1

    def fit(self, size: int) -> None:
        """Have a version for at least so many rows."""
        if self.versions.shape[0] < size:
            self.versions = widened(self.versions, size)


class NodeResults:
    """The results of one function. ``hosts``: it is 0 for every node that bears none of these host names."""

    def __init__(self, rows: LabelRows, compute: Compute, hosts: frozenset[str] | None = None) -> None:
        self._rows = rows
        self._compute = compute
        self._hosts = hosts
        self._values: Ints = np.zeros(0, dtype=np.int64)
        self._versions: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """The versions of the rows' labels when the values were computed."""

    def of(self, rows: SomeRows) -> Any:
        """The result for each of ``rows``; 0 for a free one."""
        self._fit()
        if isinstance(rows, int):
            if self._versions[rows] != self._rows.versions[rows]:
                self._evaluate(rows)
            return self._values.item(rows)
        for row in rows[self._versions[rows] != self._rows.versions[rows]].tolist():
            self._evaluate(row)
        return self._values[rows]

    def passing(self, rows: Rows) -> Mask:
        """Of a test: whether each of ``rows`` passes."""
        passed: Mask = self.of(rows) != 0
        return passed

    def _evaluate(self, row: int) -> None:
        node = self._rows.columns.nodes[row]
        self._values[row] = self._compute(node) if node is not None else 0
        self._versions[row] = self._rows.versions[row]

    def _fit(self) -> None:
        known, size = self._values.shape[0], self._rows.columns.size
        if known >= size:
            return
        self._rows.fit(size)
        values = np.zeros(self._rows.versions.shape[0], dtype=np.int64)
        versions = np.full(values.shape[0], _NEVER, dtype=np.int32)
        if self._hosts is not None:
            # Nothing need be computed for a node with another host name until its labels change.
            versions[:size] = self._rows.versions[:size]
            versions[self._rows.on_hosts(self._hosts)] = _NEVER
        values[:known], versions[:known] = self._values, self._versions
        self._values, self._versions = values, versions


class KnownResults:
    """Results by the content of their functions; those not used for the longest time are dropped first."""

    def __init__(self, view: ClusterView) -> None:
        self.rows = LabelRows.of(view)
        self._columns = view.columns
        self._known: OrderedDict[Hashable, NodeResults] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], Compute], hosts: frozenset[str] | None = None) -> NodeResults:
        """The results ``key``; ``compute`` is called for the function when they are new."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        while self._known and (len(self._known) + 1) * max(1, self._columns.size) > _CELLS:
            self._known.popitem(last=False)
        found = self._known[key] = NodeResults(self.rows, compute(), hosts)
        return found


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
            self.domain = widened(self.domain, row + 1, NO_DOMAIN)
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


def widened(array: NDArray[Item], length: int, fill: int = 0) -> NDArray[Item]:
    """A copy of the array with space for at least ``length`` items; new ones are ``fill``."""
    return grown(array, (max(64, 2 * array.shape[0], length),), fill=fill)
