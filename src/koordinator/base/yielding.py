"""Cooperative yielding: background work gives way to requests that wait for a response.

Reconciling a node without anything to write awaits nothing, so workers would otherwise process thousands of nodes in a
row, for seconds in which no admission request is served and no lease is renewed. Workers that pass a checkpoint before
each piece of work use the event loop for one slice at a time, one after the other, and everything that has arrived
meanwhile runs before the next slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from koordinator.base.clock import Clock

SLICE: Final = 0.001
"""Seconds. A piece of work in progress at the end of the slice is finished first."""


class CooperativeYielding:
    """Shared by all background work of one event loop."""

    def __init__(self, clock: Clock, seconds: float = SLICE) -> None:
        self._clock = clock
        self._slice = seconds
        self._until = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._giving = False

    async def checkpoint(self) -> None:
        """To be awaited before each piece of work: returns at once within a slice, else waits for the next slice
        (FIFO)."""
        if self._clock.monotonic() < self._until:
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._giving:
            self._giving = True
            loop.call_soon(self._give)
        await turn
        self._until = self._clock.monotonic() + self._slice

    def _give(self) -> None:
        """Grant one slice per iteration of the event loop; waiters that were cancelled are skipped."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._give)
                return
        self._giving = False
