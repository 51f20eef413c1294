"""A bound for what the proxy keeps of requests: 16 MiB are fine for one call, and the end of a node for a thousand."""

from __future__ import annotations

from types import TracebackType
from typing import Final

MOST_BUFFERED: Final = 64 << 20
"""Bytes: four of the longest messages, or thousands of those that kubelet sends."""


class BufferBudget:
    """Shared by all connections of the proxy. What is taken must be given back."""

    def __init__(self, limit: int = MOST_BUFFERED) -> None:
        """``limit`` is in bytes."""
        self._limit = limit
        self.used = 0

    def take(self, length: int) -> bool:
        """Whether that many bytes more may be kept; if so, they are counted."""
        if self.used + length > self._limit:
            return False
        self.used += length
        return True

    def give_back(self, length: int) -> None:
        """Bytes that are kept no more."""
        self.used -= length


class BufferLease:
    """What one request takes of a budget, until the end of a ``with`` block."""

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
