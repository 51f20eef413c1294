"""A bound on the request bytes that the proxy buffers: 16 MiB are fine for one call, but not for a thousand at once."""

from __future__ import annotations

from types import TracebackType
from typing import Final

MOST_BUFFERED: Final = 64 << 20
"""Bytes: four of the longest messages, or thousands of those that kubelet sends."""


class BufferBudget:
    """A limit shared by all connections of a server. Bytes that are taken must be given back."""

    def __init__(self, limit: int = MOST_BUFFERED) -> None:
        """``limit`` is in bytes."""
        self._limit = limit
        self.used = 0

    def take(self, length: int) -> bool:
        """Whether that many more bytes may be buffered; if so, they are counted."""
        if self.used + length > self._limit:
            return False
        self.used += length
        return True

    def give_back(self, length: int) -> None:
        """Return bytes that are buffered no more to the budget."""
        self.used -= length


class BufferLease:
    """The bytes that one request takes from a budget, until the end of a ``with`` block."""

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, length: int) -> bool:
        """As ``BufferBudget.take``."""
        is_free = self._budget.take(length)
        self._held += length if is_free else 0
        return is_free

    def __enter__(self) -> BufferLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._budget.give_back(self._held)
        self._held = 0
