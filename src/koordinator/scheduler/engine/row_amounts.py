"""The resources of some nodes side by side, gathered once for all plugins that ask about the same rows."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_CPU_AND_MEMORY: Final = slice(2)
"""The first two of all resources."""


class RowAmounts:
    """Matrices of shape (resources, rows), gathered when they are first asked for; to be read only. All but ``free``
    are of CPU and memory alone, and in floating point, which divides several times as fast as integers do."""

    __slots__ = (
        "_allocatable",
        "_allocatable_here",
        "_complete",
        "_free",
        "_free_here",
        "_non_zero",
        "_non_zero_here",
        "_requested",
        "_requested_here",
        "_rows",
    )

    def __init__(self, rows: Rows, allocatable: Ints, requested: Ints, free: Ints, non_zero_requested: Ints) -> None:
        """The matrices are of all rows."""
        self._rows = rows
        self._allocatable, self._requested, self._free, self._non_zero = (
            allocatable,
            requested,
            free,
            non_zero_requested,
        )
        self._allocatable_here: Floats | None = None
        self._requested_here: Floats | None = None
        self._free_here: Ints | None = None
        self._non_zero_here: Floats | None = None
        self._complete: bool | None = None

    @property
    def free(self) -> Ints:
        """Of every resource, what no pod has requested."""
        if self._free_here is None:
            self._free_here = self._at(self._free)
        return self._free_here

    @property
    def allocatable(self) -> Floats:
        if self._allocatable_here is None:
            self._allocatable_here = self._at(self._allocatable[_CPU_AND_MEMORY]).astype(np.float64)
        return self._allocatable_here

    @property
    def requested(self) -> Floats:
        if self._requested_here is None:
            self._requested_here = self._at(self._requested[_CPU_AND_MEMORY]).astype(np.float64)
        return self._requested_here

    @property
    def non_zero_requested(self) -> Floats:
        """See NodeColumns."""
        if self._non_zero_here is None:
            self._non_zero_here = self._at(self._non_zero).astype(np.float64)
        return self._non_zero_here

    @property
    def have_cpu_and_memory(self) -> bool:
        """Whether every one of these nodes has both."""
        if self._complete is None:
            # Several times as fast as all().
            self._complete = bool(np.count_nonzero(self.allocatable) == self.allocatable.size)
        return self._complete

    def _at(self, matrix: Ints) -> Ints:
        count = self._rows.shape[0]
        if count and self._rows[-1] == count - 1:
            # All rows are meant: a view, which costs nothing.
            return matrix[:, :count]
        return matrix.take(self._rows, axis=1)
