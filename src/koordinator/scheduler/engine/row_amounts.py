"""The resources of nodes: the column of each, and the amounts in the form in which plugins compute with them, row by
row or all at once.

A resource gets a column of its own when a node first offers it. Pods, Reservations and quotas may name any resource:
their amounts are kept by name, and what no node offers has no column (UNOFFERED stands for it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.api.quantity import Quantity
from koordinator.api.usable_amounts import bounded

CPU: Final = 0
MEMORY: Final = 1
EPHEMERAL_STORAGE: Final = 2
PODS: Final = 3
UNOFFERED: Final = 4
"""Of all resources that no node has offered yet: its amounts are 0 on every node. What pods request of them on a node
is in ``RowIntegers.unoffered``."""
_OFFERED: Final = ("cpu", "memory", "ephemeral-storage", "pods")


class _Columns(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return UNOFFERED


class ResourceIndex:
    """Resource name -> column. CPU is in milli-CPU, everything else in whole units (bytes, counts)."""

    def __init__(self, on_new: Callable[[str], None]) -> None:
        """``on_new`` is called with each resource that has got a column."""
        self._on_new = on_new
        self._columns = _Columns({name: column for column, name in enumerate(_OFFERED)})
        self.column_of: Mapping[str, int] = self._columns
        """By name, of the resources that have a column; every other name maps to UNOFFERED."""
        self.width = UNOFFERED + 1
        """The number of columns, UNOFFERED included."""

    def column(self, name: str) -> int:
        """The column of ``name``, allocated if it is new. For what nodes offer and what the configuration names, never
        for what pods request."""
        column = self._columns[name]
        if column == UNOFFERED:
            column = self._columns[name] = self.width
            self.width += 1
            self._on_new(name)
        return column


def whole_amounts(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Integer amounts in the units of columns, within the bounds of what can be meant."""
    return {name: bounded(amount.milli if name == "cpu" else amount.value) for name, amount in amounts.items()}


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Item = TypeVar("Item", bound=np.generic)

WITH_DEFAULTS: Final = 2
"""CPU and memory, the first of all resources, have requests with defaults."""


def grown(
    array: NDArray[Item], shape: tuple[int, ...], order: Literal["C", "F"] = "F", *, fill: int = 0
) -> NDArray[Item]:
    """A copy of the array in a larger one, whose other items are ``fill``."""
    # The operating system commits the memory of zeros only when it is written.
    larger = np.full(shape, fill, array.dtype, order) if fill else np.zeros(shape, array.dtype, order)
    larger[tuple(map(slice, array.shape))] = array
    return larger


class FloatAmounts:
    """The resources of all rows in floating point, which divides several times as fast as integers do.

    Both matrices have the shape (2 + resources, rows): CPU and memory, for which pods without a request count with a
    default, and then all resources as they are, see ``chosen_of``."""

    def __init__(self) -> None:
        self.allocatable: Floats = np.zeros((0, 0))
        self.requested: Floats = np.zeros((0, 0))

    def grow(self, resources: int, rows: int) -> None:
        shape = WITH_DEFAULTS + resources, rows
        self.allocatable, self.requested = grown(self.allocatable, shape, "C"), grown(self.requested, shape, "C")

    def write(self, row: int, allocatable: list[int]) -> None:
        """Store what the node of the row offers."""
        self.allocatable[:, row] = allocatable[:WITH_DEFAULTS] + allocatable


def chosen_of(columns: Sequence[int], *, with_defaults: bool) -> Rows:
    """Where FloatAmounts have the resources of these columns."""
    chosen = [column if with_defaults and column < WITH_DEFAULTS else column + WITH_DEFAULTS for column in columns]
    return np.array(chosen, dtype=np.intp)


class RowAmounts:
    """The resources of some rows, gathered on first access, once for all plugins that evaluate these rows. Matrices of
    shape (resources, rows), to be read only. For ``chosen``, see ``chosen_of``."""

    __slots__ = ("_allocatable", "_complete", "_floats", "_free", "_requested", "_rows", "_unused")

    def __init__(self, rows: Rows, floats: FloatAmounts, unused: Ints) -> None:
        """``unused`` is of all rows."""
        self._rows = rows
        self._floats = floats
        self._unused = unused
        self._free: Ints | None = None
        self._allocatable: Floats | None = None
        self._requested: Floats | None = None
        self._complete: dict[bytes, Floats | None] = {}

    @property
    def free(self) -> Ints:
        """Of every resource, allocatable minus requested."""
        if self._free is None:
            self._free = self._at(self._unused)
        return self._free

    def allocatable(self, chosen: Rows) -> Floats | None:
        """None unless every one of these nodes has all the chosen resources."""
        key = chosen.tobytes()
        if key not in self._complete:
            if self._allocatable is None:
                self._allocatable = self._at(self._floats.allocatable)
            found = self._allocatable.take(chosen, axis=0)
            # Several times as fast as all().
            self._complete[key] = found if np.count_nonzero(found) == found.size else None
        return self._complete[key]

    def requested(self, chosen: Rows) -> Floats:
        """A copy."""
        if self._requested is None:
            self._requested = self._at(self._floats.requested)
        return self._requested.take(chosen, axis=0)

    def _at(self, matrix: NDArray[Item]) -> NDArray[Item]:
        count = self._rows.shape[0]
        if count and self._rows[-1] == count - 1:
            # All rows: a view, which costs nothing.
            return matrix[:, :count]
        return matrix.take(self._rows, axis=1)


class RowIntegers:
    """Lists by resource, to be written by ``NodeColumns`` alone."""

    __slots__ = ("_column_of", "allocatable", "counted", "requested", "unoffered", "unused")

    def __init__(self, resources: ResourceIndex) -> None:
        self._column_of, width = resources.column_of, resources.width
        self.allocatable = [0] * width
        self.requested = [0] * width
        self.counted = [0] * width
        """``requested``, but pods without a request for CPU or memory count with a default."""
        self.unused = [0] * width
        """``allocatable`` minus ``requested``."""
        self.unoffered: dict[str, int] = {}
        """What pods request of resources that no node has offered, by name, without zeros."""

    def offered(self, name: str) -> int:
        """The allocatable amount of any resource; 0 where the node does not offer it."""
        return self.allocatable[self._column_of[name]]

    def free(self, name: str) -> int:
        """Of any resource, allocatable minus requested; below 0 on an overcommitted node."""
        column = self._column_of[name]
        return self.unused[column] if column != UNOFFERED else -self.unoffered.get(name, 0)

    def by_name(self) -> dict[str, tuple[int, int]]:
        """Requested and allocatable: of all resources that some node offers, and of others that pods here request."""
        amounts = {name: (self.requested[column], self.allocatable[column]) for name, column in self._column_of.items()}
        return {**amounts, **{name: (amount, 0) for name, amount in self.unoffered.items()}}

    def widen(self, name: str) -> None:
        """Append the resource, which a node has offered for the first time."""
        requested = self.unoffered.pop(name, 0)
        self.allocatable.append(0)
        self.requested.append(requested)
        self.counted.append(requested)
        self.unused.append(-requested)

    def add_unoffered(self, name: str, more: int) -> None:
        """Count so much more of a resource that no node has offered."""
        amount = self.unoffered.pop(name, 0) + more
        if amount:
            self.unoffered[name] = amount

    def set_allocatable(self, amounts: Mapping[int, int]) -> None:
        self.allocatable = [amounts.get(column, 0) for column in range(len(self.allocatable))]
        self.unused = [whole - taken for whole, taken in zip(self.allocatable, self.requested, strict=True)]


class AmountColumns:
    """The resources of all rows. What is allocatable and requested is kept as integers, row by row; the arrays follow
    when they are read, since most decisions read a few rows alone."""

    def __init__(self) -> None:
        self.resources = ResourceIndex(self._add_resource)
        self.version = 0
        """Grows with every change of any row."""
        self.numbers: list[RowIntegers] = []
        self.allocatable: Ints = np.zeros((0, self.resources.width), dtype=np.int64, order="F")
        """(rows, resources). One resource of all rows is contiguous, since plugins read it so."""
        self._unused: Ints = np.zeros((0, self.resources.width), dtype=np.int64, order="F")
        """``allocatable`` minus what is requested, in its shape."""
        self._counted: Ints = np.zeros((0, WITH_DEFAULTS), dtype=np.int64, order="F")
        """(rows, CPU and memory): what is requested, see ``RowIntegers.counted``."""
        self._floats = FloatAmounts()
        self._late: set[int] = set()
        """The rows of which the arrays do not show the last changes."""
        self.largest_amount = 0
        """The largest amount of any resource that any node has had."""
        self._gathered: tuple[Rows, int, RowAmounts] | None = None
        """The rows, the version and the result of the last call of ``amounts``."""

    def amounts(self, rows: Rows) -> RowAmounts:
        """The resources of ``rows``, which ascend. Plugins that pass the same array share the result."""
        known = self._gathered
        if known is not None and known[0] is rows and known[1] == self.version:
            return known[2]
        found = RowAmounts(rows, self._floats, self.unused.T)
        self._gathered = rows, self.version, found
        return found

    @property
    def unused(self) -> Ints:
        """``allocatable`` minus what pods request, in its shape; to be read only."""
        self._catch_up()
        return self._unused

    @property
    def requested(self) -> Ints:
        """What pods request, in the shape of ``allocatable``; a copy."""
        return self.allocatable - self.unused

    def taken(self, column: int, *, with_defaults: bool) -> Ints:
        """What pods request of one resource on each row; with the defaults for CPU and memory where they request
        nothing of these."""
        self._catch_up()
        if with_defaults and column < WITH_DEFAULTS:
            return self._counted[:, column]
        return self.allocatable[:, column] - self._unused[:, column]

    def _catch_up(self) -> None:
        """Write to the arrays what has changed since they were last read."""
        if not self._late:
            return
        late, numbers, width = list(self._late), self.numbers, self.resources.width
        of_rows = [(one.unused, one.counted[:WITH_DEFAULTS], one.requested) for one in map(numbers.__getitem__, late)]
        # Several times as fast as an array from lists.
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(of_rows)), dtype=np.int64)
        rows, found = np.array(late, dtype=np.intp), flat.reshape(len(late), -1)
        self._unused[rows] = found[:, :width]
        self._counted[rows] = found[:, width : width + WITH_DEFAULTS]
        self._floats.requested[:, rows] = found[:, width:].T
        self._late.clear()

    def _grow_amounts(self, rows: int, resources: int) -> None:
        self.allocatable = grown(self.allocatable, (rows, resources))
        self._unused = grown(self._unused, (rows, resources))
        self._counted = grown(self._counted, (rows, WITH_DEFAULTS))
        self._floats.grow(resources, rows)

    def _add_resource(self, name: str) -> None:
        """Give a resource the last column, with what pods on nodes request of it already."""
        self._grow_amounts(self.allocatable.shape[0], self.resources.width)
        self._gathered = None
        for numbers in self.numbers:
            numbers.widen(name)
        self._late.update(range(len(self.numbers)))
