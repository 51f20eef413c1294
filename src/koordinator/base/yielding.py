"""Cooperative yielding: what a program does in the background gives way to whoever waits for an answer.

A look at a node that finds nothing to write awaits nothing, so workers alone would see to thousands of nodes in a row,
for seconds in which no admission is answered and no lease renewed. Workers that pass a checkpoint before each piece of
work use the loop for a slice at a time, one after the other, and everything that has arrived meanwhile comes before the
next slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from koordinator.base.clock import Clock

SLICE: Final = 0.001
"""Seconds. What is being worked on at its end is finished first."""


class CooperativeYielding:
    """Shared by all background work of one event loop."""

    def __init__(self, clock: Clock, seconds: float = SLICE) -> None:
        self._clock = clock
        self._slice = seconds
        self._until = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._giving = False

    async def checkpoint(self) -> None:
        """Before each piece of work: go on at once within a slice, else wait for the next; first come, first served."""
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
        """One turn in each round of the loop; whoever was cancelled meanwhile needs none."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._give)
                return
        self._giving = False
