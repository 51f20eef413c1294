"""Nodes as columns: one row for each node, kept current by events, never rebuilt for a decision.

Each row carries a version for each of its aspects that can change. A cache of something computed from rows stores the
version up to which it is current and recomputes only the rows that have changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from koordinator.api.kinds import Kind
from koordinator.api.node import Node
from koordinator.scheduler.engine.row_amounts import (
    UNOFFERED,
    WITH_DEFAULTS,
    AmountColumns,
    Item,
    RowIntegers,
    grown,
    whole_amounts,
)

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

EXACT_BELOW: Final = 1 << 46
"""Percentages of smaller amounts come out exact, rounded down, when computed in floating point: a hundred times the
amount still has all its digits, and no quotient is so near below an integer that it would be rounded up to it."""
_CHANGES_KEPT: Final = 8192
_Amounts = tuple[Mapping[str, int], tuple[int, int]]
_NO_DISCOUNT: Final[_Amounts] = {}, (0, 0)


class Aspect(IntEnum):
    """The independently changing parts of a node; a plugin names the aspects that it reads."""

    NODE = 0
    """The Node object: labels, taints, allocatable, spec.unschedulable."""
    PODS = 1
    """The pods that are on the node or assumed on it: requested resources, host ports."""
    LOAD = 2
    """Measured or expected usage."""
    LABELS = 3
    """The labels of pods on the node; also changes when one of them begins to be deleted."""


@dataclass(frozen=True, slots=True)
class NamedAspect:
    """A kind of change that a plugin defines: the plugin names it in ``reads``, and reports it by ``NodeColumns.touch``
    with the number that ``NodeColumns.aspect`` returns. Equal names are the same aspect in all plugins."""

    name: str
    is_static: bool = False
    """Whether it stays the same as pods come and go."""

    @classmethod
    def of_objects(cls, kind: Kind[Any]) -> NamedAspect:
        """The aspect of objects of ``kind`` that bear a node's name, as Device and CSINode do."""
        return cls(kind.name, is_static=True)


AnyAspect = Aspect | NamedAspect


class NodeReference(msgspec.Struct, frozen=True):
    """A node that was chosen for a pod. ``index`` is that of its row, which another node may have by now: then the
    generation of the row differs, see ``NodeColumns.is_current``."""

    name: str
    index: int
    generation: int


def at(column: NDArray[Item], rows: Rows) -> NDArray[Item]:
    """``column[rows]``, to be read only: for all rows a view, several times as fast as a copy. ``rows`` ascend."""
    count = rows.shape[0]
    return column[:count] if count and rows[-1] == count - 1 else column.take(rows)


@dataclass(frozen=True, slots=True)
class Touched:
    """The nodes that are dirty since some version, ascending."""

    rows: Rows
    """Including freed ones."""
    alive: Rows
    aspects: int
    """Bit mask (``1 << aspect``) of all that changed on any of the rows."""


class NodeColumns(AmountColumns):
    """The nodes of a cluster. Rows of deleted nodes are free (``alive`` False) and are reused."""

    def __init__(self) -> None:
        super().__init__()
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.names: list[str] = []
        self.size = 0
        """Rows in use or freed; every array below has at least this many rows, of which ``[:size]`` are valid."""
        self._free: list[int] = []
        self._capacity = 0
        self.alive: Mask = np.zeros(0, dtype=np.bool_)
        self.unschedulable: Mask = np.zeros(0, dtype=np.bool_)
        self.discounts: dict[int, dict[str, _Amounts]] = {}
        """Row -> the discounts that count there, by holder. Pods that leave such a row free other amounts than they
        request."""
        self._aspects: dict[str, int] = {}
        """The numbers of the named aspects."""
        self._masks: dict[tuple[AnyAspect, ...], int] = {}
        self.static_aspects = 1 << Aspect.NODE
        """Bit mask (``1 << aspect``) of those that do not change as pods come and go."""
        self._generations: list[int] = []
        self.simulations: list[dict[tuple[int, int], tuple[int, int, int]]] = []
        """Those in progress, the outermost first: nothing that is computed meanwhile may be kept for longer. By row and
        aspect that were touched, the versions before, of that aspect of the row, of the row and of the aspect."""
        self._versions: Ints = np.zeros((len(Aspect), 0), dtype=np.int64)
        self._row_versions: Ints = np.zeros(0, dtype=np.int64)
        """The latest of ``_versions`` of each row."""
        self._latest = [0] * len(Aspect)
        """The latest of ``_versions`` of each aspect."""
        self.rejecting = 0
        """How many cached filter results have ever rejected a row, see ``CachedFilterResults.has_rejected``."""
        self._alive_rows: Rows | None = None
        self._touched: dict[int, Touched] = {}
        self._touched_at = -1
        self._changes: list[tuple[int, int]] = []
        """The last changes, without those of simulations: row and bit mask of aspects. Changes of one row, one after
        the other, are one."""
        self._changed_at: list[int] = []  # The versions of ``_changes``.
        self._changes_after = 0
        """All changes after this version are among ``_changes``."""

    @property
    def aspects(self) -> range:
        """The numbers of all aspects, named ones included."""
        return range(len(self._latest))

    def aspect(self, aspect: AnyAspect) -> int:
        """The number of an aspect; a named one gets its number on the first call."""
        if isinstance(aspect, Aspect):
            return int(aspect)
        number = self._aspects.get(aspect.name)
        if number is None:
            number = self._aspects[aspect.name] = len(self._latest)
            self._latest.append(0)
            self._versions = np.pad(self._versions, ((0, 1), (0, 0)))
            if aspect.is_static:
                self.static_aspects |= 1 << number
        return number

    def mask(self, aspects: tuple[AnyAspect, ...]) -> int:
        """Bit mask (``1 << aspect``) of ``aspects``. A plugin that reads no aspect still has to evaluate each new row
        once: with its node."""
        found = self._masks.get(aspects)
        if found is None:
            found = self._masks[aspects] = sum({1 << self.aspect(each) for each in aspects}) or 1 << Aspect.NODE
        return found

    def reference(self, row: int) -> NodeReference:
        """A reference to the node that has ``row`` now."""
        return NodeReference(self.names[row], row, self._generations[row])

    def is_current(self, node: NodeReference) -> bool:
        """Whether the row still belongs to the node."""
        return bool(self.alive[node.index]) and self._generations[node.index] == node.generation

    @property
    def alive_rows(self) -> Rows:
        """The rows of all nodes, ascending; all callers share the array."""
        if self._alive_rows is None:
            self._alive_rows = np.flatnonzero(self.alive[: self.size])
        return self._alive_rows

    def changes_since(self, version: int, at_most: int) -> dict[int, int] | None:
        """Row -> bit mask (``1 << aspect``) of what changed after ``version``, and of some rows a little before; None
        when that is too long ago or more than ``at_most`` changes, for which ``touched_since`` is faster."""
        first = bisect_right(self._changed_at, version)
        if version < self._changes_after or len(self._changed_at) - first > at_most:
            return None
        found = self._changes[first:]
        changed = dict(found)
        if len(changed) < len(found):
            for row, aspects in found:
                changed[row] |= aspects
        for simulation in self.simulations:
            for row, number in simulation:
                if self._versions[number, row] > version:
                    changed[row] = changed.get(row, 0) | 1 << number
        return changed

    def count_since(self, version: int) -> int:
        """The number of changes after ``version``, as far as they are known, without those of simulations."""
        return len(self._changed_at) - bisect_right(self._changed_at, version)

    def has_changed(self, aspects: Sequence[int], version: int) -> bool:
        """Whether any of these aspects of any row changed after ``version``."""
        return max(map(self._latest.__getitem__, aspects)) > version

    def touched_since(self, version: int) -> Touched:
        """The rows that changed after ``version``. Calls with the same version share the arrays."""
        if self._touched_at != self.version:
            self._touched.clear()
            self._touched_at = self.version
        found = self._touched.get(version)
        if found is None:
            rows: Rows = (self._row_versions[: self.size] > version).nonzero()[0]
            aspects = sum([1 << aspect for aspect, latest in enumerate(self._latest) if latest > version])
            alive = rows[self.alive[rows]] if self._free else rows
            found = self._touched[version] = Touched(rows, alive, aspects)
        return found

    def touched_in(self, aspect: int, rows: Rows, version: int) -> Mask:
        """For each of ``rows``, whether the aspect changed after ``version``."""
        touched: Mask = self._versions[aspect].take(rows) > version
        return touched

    def row_version(self, row: int) -> int:
        """Grows with every change of ``row``."""
        return int(self._row_versions[row])

    def versions(self, aspect: int) -> Ints:
        """The version at which ``aspect`` of each row last changed; shape (size,), to be read only."""
        return self._versions[aspect, : self.size]

    def touch(self, row: int, aspect: int) -> None:
        """Record that ``aspect`` of ``row`` has changed."""
        self.version += 1
        if self.simulations:
            before, key = self.simulations[-1], (row, aspect)
            if key not in before:
                before[key] = self._versions.item(aspect, row), self._row_versions.item(row), self._latest[aspect]
        elif (changes := self._changes) and changes[-1][0] == row:
            # Mostly a placement, which changes the pods of a row and then its load.
            changes[-1] = row, changes[-1][1] | 1 << aspect
            self._changed_at[-1] = self.version
        else:
            changes.append((row, 1 << aspect))
            self._changed_at.append(self.version)
            if len(changes) > _CHANGES_KEPT:
                half = len(self._changes) // 2
                self._changes_after = self._changed_at[half - 1]
                del self._changes[:half], self._changed_at[:half]
        self._versions[aspect, row] = self._row_versions[row] = self._latest[aspect] = self.version

    def begin_simulation(self) -> None:
        """Begin a block whose changes are all undone before ``end_simulation``."""
        self.simulations.append({})

    def end_simulation(self) -> None:
        """End the block; all changes since ``begin_simulation`` have been undone, so that caches that were not
        refreshed meanwhile need not recompute these rows. ``version`` is not reset, so that what was computed meanwhile
        cannot pass for current."""
        for (row, aspect), (version, row_version, latest) in reversed(self.simulations.pop().items()):
            self._versions[aspect, row], self._row_versions[row], self._latest[aspect] = version, row_version, latest
        self._touched.clear()

    def set_node(self, node: Node) -> int:
        """Add or replace a node; returns its row."""
        row = self.row_of.get(node.metadata.name)
        if row is None:
            row = self._allocate(node.metadata.name)
        self.nodes[row] = node
        self.unschedulable[row] = node.spec.unschedulable
        column = self.resources.column
        amounts = {column(name): amount for name, amount in whole_amounts(node.status.allocatable).items()}
        numbers = self.numbers[row]
        numbers.set_allocatable(amounts)
        self.allocatable[row] = numbers.allocatable
        self._floats.write(row, numbers.allocatable)
        self._late.add(row)
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
        self.discounts.pop(row, None)
        self.allocatable[row] = 0
        self.numbers[row] = RowIntegers(self.resources)
        self._floats.write(row, self.numbers[row].allocatable)
        self._late.add(row)
        self._alive_rows = None
        for aspect in self.aspects:
            self.touch(row, aspect)
        self._free.append(row)
        return row

    def add_request(self, row: int, request: Mapping[str, int], non_zero: tuple[int, int], times: int = 1) -> None:
        """Count so many pods more on ``row`` (negative: fewer). ``request`` includes the pod itself."""
        numbers, column_of = self.numbers[row], self.resources.column_of
        requested, counted, unused = numbers.requested, numbers.counted, numbers.unused
        for name, amount in request.items():
            column, more = column_of[name], times * amount
            if column == UNOFFERED:
                numbers.add_unoffered(name, more)
                continue
            requested[column] += more
            unused[column] -= more
            if column >= WITH_DEFAULTS:
                counted[column] += more
        counted[0] += times * non_zero[0]
        counted[1] += times * non_zero[1]
        self._late.add(row)
        self.touch(row, Aspect.PODS)

    def discount(self, row: int, holder: str, amounts: Mapping[str, int], non_zero: tuple[int, int]) -> None:
        """Count so much less on ``row`` than its pods request, in place of an earlier discount of the holder."""
        there = self.discounts.pop(row, {})
        before, after = there.pop(holder, _NO_DISCOUNT), (amounts, non_zero)
        if after != _NO_DISCOUNT:
            there[holder] = after
        if there:
            self.discounts[row] = there
        if before != after:
            self.add_request(row, *before)
            self.add_request(row, *after, -1)

    def drop_discounts(self) -> None:
        """Count all that pods request."""
        for row, holder in [(row, holder) for row, there in self.discounts.items() for holder in there]:
            self.discount(row, holder, *_NO_DISCOUNT)

    def _allocate(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = self.size
            self.size += 1
            self.nodes.append(None)
            self.names.append("")
            self.numbers.append(RowIntegers(self.resources))
            self._generations.append(0)
            self._grow_rows()
        self._generations[row] += 1
        self.names[row] = name
        self.row_of[name] = row
        self.alive[row] = True
        self._alive_rows = None
        for aspect in self.aspects:
            self.touch(row, aspect)
        return row

    def _grow_rows(self) -> None:
        if self.size <= self._capacity:
            return
        self._capacity = max(64, self._capacity * 2, self.size)
        self.alive = grown(self.alive, (self._capacity,))
        self.unschedulable = grown(self.unschedulable, (self._capacity,))
        self._grow_amounts(self._capacity, self.allocatable.shape[1])
        self._versions = grown(self._versions, (len(self._latest), self._capacity), "C")
        self._row_versions = grown(self._row_versions, (self._capacity,))
