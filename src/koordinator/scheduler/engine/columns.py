"""Nodes as columns: one row a node, kept current by events, never rebuilt for a decision.

Each row carries a version for each aspect of it that can change. Whoever caches something computed from rows
remembers the version up to which it is current and recomputes only the rows that have moved on since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.scheduler.engine.resource_index import ResourceIndex
from koordinator.scheduler.engine.row_amounts import Machines, RowAmounts
from koordinator.scheduler.engine.row_numbers import RowNumbers

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

EXACT_BELOW: Final = 1 << 46
"""Percentages of smaller amounts come out exact, rounded down, when computed in floating point: a hundred times the
amount still has all its digits, and no quotient is so near below an integer that it would be rounded up to it."""
_CHANGES_KEPT: Final = 8192


class Aspect(IntEnum):
    """What of a node can change by itself; a plugin names the aspects that it reads."""

    NODE = 0
    """The Node object: labels, taints, allocatable, spec.unschedulable."""
    PODS = 1
    """The pods that are on the node or assumed to be: requested resources, host ports."""
    LOAD = 2
    """Measured or expected usage."""
    LABELS = 3
    """The labels of a pod that is on the node; also when it is being deleted now."""


Item = TypeVar("Item", bound=np.generic)


def at(column: NDArray[Item], rows: Rows) -> NDArray[Item]:
    """``column[rows]``, to be read only: when all rows are meant this is a view, several times as fast as a copy.
    ``rows`` ascend."""
    count = rows.shape[0]
    return column[:count] if count and rows[-1] == count - 1 else column.take(rows)


@dataclass(frozen=True, slots=True)
class Touched:
    """The rows that changed after some version, ascending."""

    rows: Rows
    """Freed ones among them."""
    alive: Rows
    aspects: int
    """Bit mask (``1 << aspect``) of all that changed on any of them."""


class NodeColumns:
    """The nodes of a cluster. Rows of deleted nodes are free (``alive`` False) and are used again."""

    def __init__(self, resources: ResourceIndex | None = None) -> None:
        self.resources = resources or ResourceIndex()
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.names: list[str] = []
        self.size = 0
        """Rows in use or freed; every array below has at least this many rows, and ``[:size]`` is what counts."""
        self._free: list[int] = []
        self._capacity = 0
        self._clock = 0
        self.alive: Mask = np.zeros(0, dtype=np.bool_)
        self.unschedulable: Mask = np.zeros(0, dtype=np.bool_)
        self.allocatable: Ints = np.zeros((0, len(self.resources)), dtype=np.int64, order="F")
        """(rows, resources), as is ``requested``. One resource of all rows lies together: that is what plugins read."""
        self.requested: Ints = np.zeros((0, len(self.resources)), dtype=np.int64, order="F")
        self.non_zero_requested: Ints = np.zeros((0, 2), dtype=np.int64, order="F")
        """CPU and memory, pods without a request counted with 100 milli-CPU and 200 MiB."""
        self._unused: Ints = np.zeros((0, len(self.resources)), dtype=np.int64, order="F")
        """``allocatable`` without ``requested``, for ``amounts``."""
        self.numbers: list[RowNumbers] = []
        """The same row by row."""
        self._machines = Machines()
        self.largest_amount = 0
        """No node has had more of any resource."""
        self._gathered: tuple[Rows, int, RowAmounts] | None = None
        """The rows, the version and the answer of the last call of ``amounts``."""
        self._versions: Ints = np.zeros((len(Aspect), 0), dtype=np.int64)
        self._row_versions: Ints = np.zeros(0, dtype=np.int64)
        """The latest of ``_versions`` of each row."""
        self._latest = [0] * len(Aspect)
        """The latest of ``_versions`` of each aspect."""
        self._alive_rows: Rows | None = None
        self._touched: dict[int, Touched] = {}
        self._touched_at = -1
        self._changes: list[tuple[int, int]] = []
        self._changes_after = 0
        """The version before the first of ``_changes``; versions count changes one by one."""

    @property
    def alive_rows(self) -> Rows:
        """The rows of all nodes, ascending; the same array for all who ask."""
        if self._alive_rows is None:
            self._alive_rows = np.flatnonzero(self.alive[: self.size])
        return self._alive_rows

    @property
    def version(self) -> int:
        """Grows with every change of any row."""
        return self._clock

    def changes_since(self, version: int, at_most: int) -> dict[int, int] | None:
        """Row -> bit mask (``1 << aspect``) of what changed after ``version``; None when that is too long ago or
        more than ``at_most`` changes, where ``touched_since`` is the better question."""
        first = version - self._changes_after
        if first < 0 or self._clock - version > at_most:
            return None
        changed: dict[int, int] = {}
        for row, aspect in self._changes[first:]:
            changed[row] = changed.get(row, 0) | aspect
        return changed

    def has_changed(self, aspects: Sequence[int], version: int) -> bool:
        """Whether any of these aspects of any row changed after ``version``."""
        return max(map(self._latest.__getitem__, aspects)) > version

    def touched_since(self, version: int) -> Touched:
        """What changed after ``version``. Whoever asks about the same version gets the same arrays."""
        if self._touched_at != self._clock:
            self._touched.clear()
            self._touched_at = self._clock
        found = self._touched.get(version)
        if found is None:
            rows: Rows = (self._row_versions[: self.size] > version).nonzero()[0]
            aspects = sum([1 << aspect for aspect, latest in enumerate(self._latest) if latest > version])
            alive = rows[self.alive[rows]] if self._free else rows
            found = self._touched[version] = Touched(rows, alive, aspects)
        return found

    def touched_in(self, aspect: Aspect, rows: Rows, version: int) -> Mask:
        """Of which of ``rows`` the aspect changed after ``version``."""
        touched: Mask = self._versions[aspect].take(rows) > version
        return touched

    def amounts(self, rows: Rows) -> RowAmounts:
        """The resources of ``rows``, which ascend. Plugins that are asked about the same rows share the answer."""
        known = self._gathered
        if known is not None and known[0] is rows and known[1] == self._clock:
            return known[2]
        found = RowAmounts(rows, self._machines, self._unused.T)
        self._gathered = rows, self._clock, found
        return found

    def row_version(self, row: int) -> int:
        """Grows with every change of ``row``."""
        return int(self._row_versions[row])

    def versions(self, aspect: Aspect) -> Ints:
        """When ``aspect`` of each row last changed; shape (size,), to be read only."""
        return self._versions[aspect, : self.size]

    def touch(self, row: int, aspect: Aspect) -> None:
        """Note that ``aspect`` of ``row`` has changed."""
        self._clock += 1
        self._versions[aspect, row] = self._row_versions[row] = self._latest[aspect] = self._clock
        self._changes.append((row, 1 << aspect))
        if len(self._changes) > _CHANGES_KEPT:
            half = len(self._changes) // 2
            del self._changes[:half]
            self._changes_after += half

    def set_node(self, node: Node) -> int:
        """Add or replace a node; returns its row."""
        row = self.row_of.get(node.metadata.name)
        if row is None:
            row = self._allocate(node.metadata.name)
        self.nodes[row] = node
        self.unschedulable[row] = node.spec.unschedulable
        amounts = self.resources.vector(node.status.allocatable)
        self.fit_resources()
        numbers = self.numbers[row]
        numbers.set_allocatable(amounts)
        self.allocatable[row] = numbers.allocatable
        self._unused[row] = numbers.unused
        self._machines.write(row, self.allocatable[row], self.requested[row], self.non_zero_requested[row])
        self.largest_amount = max(self.largest_amount, *amounts.values(), 0)
        self.touch(row, Aspect.NODE)
        return row

    def remove_node(self, name: str) -> int | None:
        """Free the node's row; returns it, or None when there was no such node."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self.nodes[row] = None
        self.alive[row] = False
        self.allocatable[row] = 0
        self.requested[row] = self._unused[row] = 0
        self.non_zero_requested[row] = 0
        self.numbers[row] = RowNumbers(len(self.resources))
        self._machines.write(row, self.allocatable[row], self.requested[row], self.non_zero_requested[row])
        self._alive_rows = None
        for aspect in Aspect:
            self.touch(row, aspect)
        self._free.append(row)
        return row

    def add_request(self, row: int, request: Mapping[int, int], non_zero: tuple[int, int], sign: int = 1) -> None:
        """Count a pod on ``row`` (``sign`` 1) or take it off again (-1). ``request`` includes the pod itself."""
        self.shift(row, request, non_zero, sign)
        self.touch(row, Aspect.PODS)

    def shift(self, row: int, request: Mapping[int, int], non_zero: tuple[int, int], sign: int) -> None:
        """As add_request, but nobody is told: for who thinks of a node as it might be, and undoes it at once."""
        self.fit_resources()
        numbers = self.numbers[row]
        numbers.shift(request, non_zero, sign)
        requested, unused = self.requested[row], self._unused[row]
        for column in request:
            requested[column] = numbers.requested[column]
            unused[column] = numbers.unused[column]
        self.non_zero_requested[row] = numbers.counted[:2]
        self._machines.write_requested(row, numbers.requested, numbers.counted)
        self._gathered = None

    def _allocate(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = self.size
            self.size += 1
            self.nodes.append(None)
            self.names.append("")
            self.numbers.append(RowNumbers(len(self.resources)))
            self._grow_rows()
        self.names[row] = name
        self.row_of[name] = row
        self.alive[row] = True
        self._alive_rows = None
        for aspect in Aspect:
            self.touch(row, aspect)
        return row

    def _grow_rows(self) -> None:
        if self.size <= self._capacity:
            return
        self._capacity = max(64, self._capacity * 2, self.size)
        self.alive = _grown(self.alive, (self._capacity,))
        self.unschedulable = _grown(self.unschedulable, (self._capacity,))
        width = self.allocatable.shape[1]
        self.allocatable = _grown(self.allocatable, (self._capacity, width))
        self.requested = _grown(self.requested, (self._capacity, width))
        self._unused = _grown(self._unused, (self._capacity, width))
        self.non_zero_requested = _grown(self.non_zero_requested, (self._capacity, 2))
        self._machines.grow(self._capacity)
        self._versions = np.ascontiguousarray(_grown(self._versions, (len(Aspect), self._capacity)))
        self._row_versions = _grown(self._row_versions, (self._capacity,))

    def fit_resources(self) -> None:
        width = len(self.resources)
        if width > self.allocatable.shape[1]:
            self.allocatable = _grown(self.allocatable, (self._capacity, width))
            self.requested = _grown(self.requested, (self._capacity, width))
            self._unused = _grown(self._unused, (self._capacity, width))
            self._gathered = None
            for numbers in self.numbers:
                numbers.widen(width - len(numbers.requested))


def _grown(array: NDArray[Item], shape: tuple[int, ...]) -> NDArray[Item]:
    larger = np.zeros(shape, dtype=array.dtype, order="F")
    larger[tuple(slice(0, length) for length in array.shape)] = array
    return larger
