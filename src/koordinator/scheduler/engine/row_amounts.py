"""The resources of nodes in the form in which plugins compute with them, row by row or all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Number = TypeVar("Number", bound=np.generic)

_CPU_AND_MEMORY: Final = 2
"""The first two of all resources."""


class Machines:
    """CPU and memory of all rows, in floating point, which divides several times as fast as integers do. Matrices of
    shape (2, rows)."""

    def __init__(self) -> None:
        self.allocatable: Floats = np.zeros((_CPU_AND_MEMORY, 0))
        self.requested: Floats = np.zeros((_CPU_AND_MEMORY, 0))
        self.non_zero_requested: Floats = np.zeros((_CPU_AND_MEMORY, 0))

    def grow(self, rows: int) -> None:
        self.allocatable = _wider(self.allocatable, rows)
        self.requested = _wider(self.requested, rows)
        self.non_zero_requested = _wider(self.non_zero_requested, rows)

    def write(self, row: int, allocatable: Ints, requested: Ints, non_zero_requested: Ints) -> None:
        """Store a row of NodeColumns, in the order of its resources."""
        self.allocatable[:, row] = allocatable[:_CPU_AND_MEMORY]
        self.write_requested(row, requested, non_zero_requested)

    def write_requested(
        self, row: int, requested: Sequence[int] | Ints, non_zero_requested: Sequence[int] | Ints
    ) -> None:
        self.requested[0, row], self.requested[1, row] = requested[0], requested[1]
        self.non_zero_requested[0, row], self.non_zero_requested[1, row] = non_zero_requested[0], non_zero_requested[1]


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

    def _at(self, matrix: NDArray[Number]) -> NDArray[Number]:
        count = self._rows.shape[0]
        if count and self._rows[-1] == count - 1:
            # All rows: a view, which costs nothing.
            return matrix[:, :count]
        return matrix.take(self._rows, axis=1)


def _wider(matrix: Floats, rows: int) -> Floats:
    larger = np.zeros((matrix.shape[0], rows))
    larger[:, : matrix.shape[1]] = matrix
    return larger


_WITH_DEFAULTS: Final = 2
"""CPU and memory, the first of all resources, have requests with defaults."""


class RowIntegers:
    """Lists by resource, to be read only."""

    __slots__ = ("allocatable", "counted", "requested", "unused")

    def __init__(self, width: int) -> None:
        self.allocatable = [0] * width
        self.requested = [0] * width
        self.counted = [0] * width
        """``requested``, but pods without a request for CPU or memory count with a default."""
        self.unused = [0] * width
        """``allocatable`` minus ``requested``."""

    def widen(self, more: int) -> None:
        """Append ``more`` resources."""
        for numbers in (self.allocatable, self.requested, self.counted, self.unused):
            numbers.extend([0] * more)

    def set_allocatable(self, amounts: Mapping[int, int]) -> None:
        self.allocatable = [amounts.get(column, 0) for column in range(len(self.allocatable))]
        self.unused = [whole - taken for whole, taken in zip(self.allocatable, self.requested, strict=True)]

    def shift(self, request: Mapping[int, int], non_zero: tuple[int, int], sign: int) -> None:
        """Add a pod (``sign`` 1) or remove it (-1)."""
        requested, counted, unused = self.requested, self.counted, self.unused
        for column, amount in request.items():
            more = sign * amount
            requested[column] += more
            unused[column] -= more
            if column >= _WITH_DEFAULTS:
                counted[column] += more
        counted[0] += sign * non_zero[0]
        counted[1] += sign * non_zero[1]
