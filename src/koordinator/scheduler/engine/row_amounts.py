"""The resources of nodes in the form in which plugins compute with them, row by row or all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.resource_index import UNOFFERED, ResourceIndex

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Item = TypeVar("Item", bound=np.generic)

_CPU_AND_MEMORY: Final = 2
"""The first two of all resources."""


def grown(array: NDArray[Item], shape: tuple[int, ...], order: Literal["C", "F"] = "F") -> NDArray[Item]:
    """A copy of the array in a larger one, with zeros."""
    larger = np.zeros(shape, dtype=array.dtype, order=order)
    larger[tuple(slice(0, length) for length in array.shape)] = array
    return larger


class Machines:
    """CPU and memory of all rows, in floating point, which divides several times as fast as integers do. Matrices of
    shape (2, rows)."""

    def __init__(self) -> None:
        self.allocatable: Floats = np.zeros((_CPU_AND_MEMORY, 0))
        self.requested: Floats = np.zeros((_CPU_AND_MEMORY, 0))
        self.non_zero_requested: Floats = np.zeros((_CPU_AND_MEMORY, 0))

    def grow(self, rows: int) -> None:
        self.allocatable = grown(self.allocatable, (_CPU_AND_MEMORY, rows), "C")
        self.requested = grown(self.requested, (_CPU_AND_MEMORY, rows), "C")
        self.non_zero_requested = grown(self.non_zero_requested, (_CPU_AND_MEMORY, rows), "C")

    def write(self, row: int, allocatable: Ints, requested: Ints, non_zero_requested: Ints) -> None:
        """Store a row of NodeColumns, in the order of its resources."""
        self.allocatable[:, row] = allocatable[:_CPU_AND_MEMORY]
        self.requested[:, row] = requested[:_CPU_AND_MEMORY]
        self.non_zero_requested[:, row] = non_zero_requested


class RowAmounts:
    """The resources of some rows, gathered on first access, once for all plugins that evaluate these rows. Matrices of
    shape (resources, rows), to be read only."""

    __slots__ = ("_allocatable", "_complete", "_free", "_machines", "_non_zero", "_requested", "_rows", "_unused")

    def __init__(self, rows: Rows, machines: Machines, unused: Ints) -> None:
        """``unused`` is of all rows."""
        self._rows = rows
        self._machines = machines
        self._unused = unused
        self._free: Ints | None = None
        self._allocatable: Floats | None = None
        self._requested: Floats | None = None
        self._non_zero: Floats | None = None
        self._complete: bool | None = None

    @property
    def free(self) -> Ints:
        """Of every resource, allocatable minus requested."""
        if self._free is None:
            self._free = self._at(self._unused)
        return self._free

    @property
    def allocatable(self) -> Floats:
        """CPU and memory, as are the others."""
        if self._allocatable is None:
            self._allocatable = self._at(self._machines.allocatable)
        return self._allocatable

    @property
    def requested(self) -> Floats:
        if self._requested is None:
            self._requested = self._at(self._machines.requested)
        return self._requested

    @property
    def non_zero_requested(self) -> Floats:
        """See NodeColumns."""
        if self._non_zero is None:
            self._non_zero = self._at(self._machines.non_zero_requested)
        return self._non_zero

    @property
    def have_cpu_and_memory(self) -> bool:
        """Whether every one of these nodes has both."""
        if self._complete is None:
            # Several times as fast as all().
            self._complete = bool(np.count_nonzero(self.allocatable) == self.allocatable.size)
        return self._complete

    def _at(self, matrix: NDArray[Item]) -> NDArray[Item]:
        count = self._rows.shape[0]
        if count and self._rows[-1] == count - 1:
            # All rows: a view, which costs nothing.
            return matrix[:, :count]
        return matrix.take(self._rows, axis=1)


WITH_DEFAULTS: Final = 2
"""CPU and memory, the first of all resources, have requests with defaults."""


class RowIntegers:
    """Lists by resource, to be read only."""

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

    def shift_unoffered(self, name: str, more: int) -> None:
        """Count more of a resource that no node has offered."""
        amount = self.unoffered.pop(name, 0) + more
        if amount:
            self.unoffered[name] = amount

    def set_allocatable(self, amounts: Mapping[int, int]) -> None:
        self.allocatable = [amounts.get(column, 0) for column in range(len(self.allocatable))]
        self.unused = [whole - taken for whole, taken in zip(self.allocatable, self.requested, strict=True)]
