"""One row of NodeColumns in plain integers: most decisions ask about single rows, where reading an array takes longer
than what is computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_WITH_DEFAULTS: Final = 2
"""CPU and memory, the first of all resources, have requests with defaults."""


class RowNumbers:
    """Lists by resource, to be read only."""

    __slots__ = ("allocatable", "counted", "requested", "unused")

    def __init__(self, width: int) -> None:
        self.allocatable = [0] * width
        self.requested = [0] * width
        self.counted = [0] * width
        """``requested``, but pods without a request for CPU or memory counted with a default."""
        self.unused = [0] * width
        """``allocatable`` without ``requested``."""

    def widen(self, more: int) -> None:
        """There are ``more`` resources now."""
        for numbers in (self.allocatable, self.requested, self.counted, self.unused):
            numbers.extend([0] * more)

    def set_allocatable(self, amounts: Mapping[int, int]) -> None:
        self.allocatable = [amounts.get(column, 0) for column in range(len(self.allocatable))]
        self.unused = [whole - taken for whole, taken in zip(self.allocatable, self.requested, strict=True)]

    def shift(self, request: Mapping[int, int], non_zero: tuple[int, int], sign: int) -> None:
        """A pod comes (``sign`` 1) or goes (-1)."""
        requested, counted, unused = self.requested, self.counted, self.unused
        for column, amount in request.items():
            more = sign * amount
            requested[column] += more
            unused[column] -= more
            if column >= _WITH_DEFAULTS:
                counted[column] += more
        counted[0] += sign * non_zero[0]
        counted[1] += sign * non_zero[1]
