"""The domains of a topology key, that is the sets of nodes with the same value of that label, and sums by domain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Ints, NodeColumns
from koordinator.scheduler.engine.plugin_forms import SomeRows, look_up

NO_DOMAIN: Final = 0
"""The domain number of rows without the label. Its sum is always 0."""
Item = TypeVar("Item", bound=np.generic)


class Topology:
    """Maps the values of a node label to domain numbers, and node rows to domains. The number of a domain is reused
    when its last row has left it."""

    def __init__(self, key: str, columns: NodeColumns) -> None:
        self.key = key
        self.domains: Ints = np.zeros(columns.alive.shape[0], dtype=np.int64)
        """Row -> domain number."""
        self.count = 1
        """All domain numbers in use are below this."""
        self._numbers: dict[str, int] = {}
        self._values: dict[int, str] = {}
        self._rows: dict[int, set[int]] = {}
        self._free: list[int] = []
        for row in columns.row_of.values():
            self.set(row, columns.nodes[row])

    def rows(self, domain: int) -> Iterable[int]:
        """The rows of a domain."""
        return self._rows.get(domain, ())

    def value(self, domain: int) -> str:
        """The label's value in a domain that has rows."""
        return self._values[domain]

    def set(self, row: int, node: Node | None) -> None:
        """The node of ``row`` was added, updated or, with None, deleted."""
        if row >= self.domains.shape[0]:
            self.domains = grown(self.domains, row + 1)
        before = int(self.domains[row])
        value = node.metadata.labels.get(self.key) if node is not None else None
        if value == self._values.get(before):
            return
        if before != NO_DOMAIN:
            self._leave(row, before)
        self.domains[row] = self._enter(row, value) if value is not None else NO_DOMAIN

    def _enter(self, row: int, value: str) -> int:
        number = self._numbers.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number, self.count = self.count, self.count + 1
            self._numbers[value], self._values[number], self._rows[number] = number, value, set()
        self._rows[number].add(row)
        return number

    def _leave(self, row: int, number: int) -> None:
        rows = self._rows[number]
        rows.discard(row)
        if not rows:
            del self._rows[number]
            del self._numbers[self._values.pop(number)]
            self._free.append(number)


class Topologies:
    """The topologies by key. Each is kept only as long as the state of some class of pods refers to it."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[str, Topology] = WeakValueDictionary()

    def __getitem__(self, key: str) -> Topology:
        topology = self._by_key.get(key)
        if topology is None:
            topology = self._by_key[key] = Topology(key, self._columns)
        return topology

    def __iter__(self) -> Iterator[Topology]:
        return iter(self._by_key.values())


class DomainSums:
    """The amounts that node rows contribute, summed by domain. If a row changes its domain, so does its amount."""

    def __init__(self, topology: Topology, contributions: Mapping[int, int]) -> None:
        self.topology = topology
        rows, amounts = _array(contributions.keys()), _array(contributions.values())
        self._domain: Ints = topology.domains.copy()
        """Row -> the domain to which it contributes."""
        self._amount: Ints = np.zeros(self._domain.shape[0], dtype=np.int64)
        self._amount[rows] = np.where(self._domain[rows] == NO_DOMAIN, 0, amounts)
        self._sums: Ints = np.zeros(topology.count, dtype=np.int64)
        np.add.at(self._sums, self._domain[rows], self._amount[rows])
        self._occupied = int(np.count_nonzero(self._sums))
        self._turned: set[int] = set()

    @property
    def empty(self) -> bool:
        """Whether the sum is zero in every domain."""
        return not self._occupied

    def occupied_values(self) -> list[str]:
        """The label's values in the domains whose sum is not zero."""
        return sorted(self.topology.value(domain) for domain in np.flatnonzero(self._sums).tolist())

    def put(self, row: int, amount: int) -> bool:
        """Set the amount of ``row``, in the domain in which it is now. Return whether any sum has changed."""
        self._reach(row)
        domain, before = self.topology.domains.item(row), self._domain.item(row)
        if domain == NO_DOMAIN:
            amount = 0
        known = self._amount.item(row)
        if domain == before:
            if amount == known:
                return False
            self._amount[row] = amount
            self._add(domain, amount - known)
            return True
        self._amount[row], self._domain[row] = amount, domain
        self._add(before, -known)
        self._add(domain, amount)
        return bool(known or amount)

    def put_all(self, rows: Sequence[int], amounts: Mapping[int, int]) -> bool:
        """As ``put`` for each of ``rows``, with 0 for those missing in ``amounts``. Efficient if most have not
        changed."""
        self._reach(max(max(rows), max(amounts, default=0)))
        places = np.array(rows, dtype=np.intp)
        given = np.zeros(self._amount.shape[0], dtype=np.int64)
        given[_array(amounts.keys())] = _array(amounts.values())
        others = (self._amount[places] != given[places]) | (self._domain[places] != self.topology.domains[places])
        changed = False
        for row in places[others].tolist():
            changed |= self.put(row, amounts.get(row, 0))
        return changed

    @property
    def contributors(self) -> int:
        """The number of rows with an amount other than 0."""
        return int(np.count_nonzero(self._amount))

    def turned_rows(self) -> set[int]:
        """The rows of domains whose sum has changed to or from zero since the last call."""
        if not self._turned:
            return set()
        rows = set[int]().union(*map(self.topology.rows, self._turned))
        self._turned.clear()
        return rows

    def at(self, rows: SomeRows) -> Any:
        """The sum of each row's domain; 0 without a domain."""
        if self._sums.shape[0] < self.topology.count:
            self._sums = grown(self._sums, self.topology.count)
        return look_up(self._sums, self.topology.domains, rows)

    def _reach(self, row: int) -> None:
        if row >= self._amount.shape[0]:
            self._domain = grown(self._domain, row + 1)
            self._amount = grown(self._amount, row + 1)

    def _add(self, domain: int, amount: int) -> None:
        if not amount:
            return
        if domain >= self._sums.shape[0]:
            self._sums = grown(self._sums, self.topology.count)
        before = self._sums.item(domain)
        self._sums[domain] = before + amount
        if not before or not before + amount:
            self._occupied += 1 if not before else -1
            self._turned ^= {domain}


def _array(numbers: Collection[int]) -> Ints:
    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))


def grown(array: NDArray[Item], length: int) -> NDArray[Item]:
    """A copy of the array with space for at least ``length`` items; new ones are zero."""
    larger = np.zeros(max(64, 2 * array.shape[0], length), dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger
