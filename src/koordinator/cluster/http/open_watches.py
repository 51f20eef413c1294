"""How many watches may be open, and the memory of those that have ended.

Each holds a connection for an hour or so. Without a limit of their own, they would take all connections, and nobody
could send another request, not even the one that would end them.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from koordinator.cluster.errors import ApiError

_LOG = logging.getLogger(__name__)
_MANY: Final = 500
"""Watches whose memory is worth the milliseconds that it takes to give it back."""
_SETTLED_SECONDS: Final = 2.0


def too_many_requests() -> ApiError:
    """429, in the words of the real server."""
    return ApiError(429, "TooManyRequests", "Too many requests, please try again later.", retry_after=1)


def give_memory_back_soon() -> None:
    """When the connections of the watches are gone, too."""
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, _give_memory_back)


def _give_memory_back() -> None:
    """Collect the cycles that connections leave, and return what the C library's allocator holds without need."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        _LOG.debug("this C library has no malloc_trim")


class OpenWatches:
    """Counts them; ``most`` may be open at one time."""

    def __init__(self, most: int, give_back: Callable[[], None] = give_memory_back_soon) -> None:
        self._most = most
        self._give_back = give_back
        self.open = 0
        self._ended = 0
        self._is_full = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """While one more is open. Entering raises ApiError 429 when there are too many."""
        if self.open >= self._most:
            if not self._is_full:
                _LOG.warning("%d watches are open; others are refused, so that other requests are served", self.open)
            self._is_full = True
            raise too_many_requests()
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._is_full = False
            self._count_ended()

    def _count_ended(self) -> None:
        """A crowd that has gone leaves more than it is worth to keep; a few that come and go do not."""
        self._ended += 1
        if self._ended >= _MANY and self._ended > self.open:
            self._ended = 0
            self._give_back()
