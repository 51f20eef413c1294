"""The work queue of controllers: an item is never worked on twice at once, and never forgotten.

client-go's semantics: an item that is added again while it waits is worked on once; one that is added while it is being
worked on waits until ``done`` and then comes again. Items may be added after a pause, or after the pause that a rate
limiter decides on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.kube.requeue_delays import ItemRateLimiter, default_controller_limiter

K = TypeVar("K", bound=Hashable)


class QueueShutDown(KoordinatorError):
    """``get`` on a queue that was shut down and has nothing left."""


class WorkQueue(Generic[K]):
    """For one event loop. ``run_timers`` must run beside the workers for items that are added with a pause."""

    def __init__(self, clock: Clock, limiter: ItemRateLimiter[K] | None = None) -> None:
        self._clock = clock
        self._limiter: ItemRateLimiter[K] = limiter or default_controller_limiter(clock)
        self._queue: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._waiting: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._earlier = asyncio.Event()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shutting_down = False

    def __len__(self) -> int:
        """How many items are ready (not those that wait out a pause, nor those being worked on)."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """How many items wait out a pause."""
        return len(self._due)

    def add(self, item: K) -> None:
        """Make the item ready, unless it is already, or the queue was shut down."""
        if self._shutting_down or item in self._dirty:
            return
        self._dirty.add(item)
        if item not in self._processing:
            self._push(item)

    def add_after(self, item: K, seconds: float) -> None:
        """Add the item when ``seconds`` have passed; of two pauses for one item the earlier end counts."""
        if self._shutting_down:
            return
        if seconds <= 0:
            self.add(item)
            return
        due = self._clock.monotonic() + seconds
        if due >= self._due.get(item, float("inf")):
            return
        self._due[item] = due
        heapq.heappush(self._waiting, (due, next(self._order), item))
        self._earlier.set()

    def add_rate_limited(self, item: K) -> None:
        """Add the item after the pause that the rate limiter decides on."""
        self.add_after(item, self._limiter.when(item))

    def forget(self, item: K) -> None:
        """The item succeeded or was given up: its next failure is its first. It still has to be ``done``."""
        self._limiter.forget(item)

    def retries(self, item: K) -> int:
        return self._limiter.retries(item)

    async def get(self) -> K:
        """Wait for an item and take it; call ``done`` with it afterwards. Raises QueueShutDown at the end."""
        while not self._queue:
            if self._shutting_down:
                raise QueueShutDown("the work queue was shut down")
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # The wake-up that this getter may have had already belongs to another one now.
                if getter.done() and not getter.cancelled():
                    self._wake_one()
                raise
        item = self._queue.popleft()
        self._processing.add(item)
        self._dirty.discard(item)
        return item

    def done(self, item: K) -> None:
        """The work on the item ended, well or not; if it was added meanwhile, it is ready now."""
        self._processing.discard(item)
        if item in self._dirty:
            self._push(item)

    def shut_down(self) -> None:
        """Accept no more; ``get`` hands out what is ready and then raises. Items in a pause are dropped."""
        self._shutting_down = True
        self._waiting.clear()
        self._due.clear()
        while self._getters:
            self._wake_one()

    async def run_timers(self) -> None:
        """Add the items whose pause is over; runs until cancelled."""
        while True:
            self._earlier.clear()
            self._add_due()
            pause = self._waiting[0][0] - self._clock.monotonic() if self._waiting else None
            if pause is None:
                await self._earlier.wait()
            else:
                await self._sleep_or_earlier(pause)

    def _add_due(self) -> None:
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            due, _, item = heapq.heappop(self._waiting)
            # An entry that an earlier one replaced stays in the heap and means nothing any more.
            if self._due.get(item) == due:
                del self._due[item]
                self.add(item)

    async def _sleep_or_earlier(self, pause: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(pause))
        earlier = asyncio.ensure_future(self._earlier.wait())
        try:
            await asyncio.wait({sleeping, earlier}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            earlier.cancel()

    def _push(self, item: K) -> None:
        self._queue.append(item)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


async def run_workers(
    queue: WorkQueue[K],
    work: Callable[[K], Awaitable[None]],
    *,
    workers: int,
    on_error: Callable[[K, Exception], None],
) -> None:
    """Work on a queue with ``workers`` tasks until it is shut down.

    An item whose work raises is given to ``on_error`` and comes again after its growing pause.
    """

    async def worker() -> None:
        while True:
            try:
                item = await queue.get()
            except QueueShutDown:
                return
            try:
                await work(item)
            except Exception as error:
                on_error(item, error)
                queue.add_rate_limited(item)
            else:
                queue.forget(item)
            finally:
                queue.done(item)

    async with asyncio.TaskGroup() as tasks:
        timers = tasks.create_task(queue.run_timers(), name="work queue timers")
        async with asyncio.TaskGroup() as pool:
            for number in range(workers):
                pool.create_task(worker(), name=f"worker {number}")
        timers.cancel()
