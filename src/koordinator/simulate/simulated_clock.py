"""The clock of a simulation: it advances only when no task can run otherwise."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from datetime import datetime
from typing import Any

from koordinator.base.clock import ManualClock


class SimulatedClock(ManualClock):
    """The wall clock stands at the time of the snapshot: reports that were fresh then stay fresh, and nothing expires
    because the simulation takes long. Pauses and time limits use the monotonic clock, which ``advance`` moves."""

    def __init__(self, moment: datetime) -> None:
        super().__init__(moment)
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    async def run_ready(self) -> None:
        """Run all tasks until each of them waits for time or for others. No task may wait for a socket."""
        # asyncio's queue of ready callbacks. This task is in it itself while it waits, and not while it runs.
        ready: deque[Any] | None = getattr(asyncio.get_running_loop(), "_ready", None)
        assert ready is not None, "a simulation needs asyncio's own event loop: others do not show whether tasks wait"
        while True:
            await asyncio.sleep(0)
            if not ready:
                return

    def next_deadline(self) -> float | None:
        """When the first sleeper wakes, on the monotonic clock; None if there is none."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking each sleeper at its own time and running all tasks that follow from that."""
        end = self._monotonic + seconds
        await self.run_ready()
        while (deadline := self.next_deadline()) is not None and deadline <= end:
            self._move_to(deadline)
            while (first := self.next_deadline()) is not None and first <= deadline:
                heapq.heappop(self._sleepers)[2].set_result(None)
            await self.run_ready()
        self._move_to(end)
