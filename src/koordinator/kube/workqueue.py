"""The work queue of controllers: an item is never processed twice concurrently, and never lost.

client-go's semantics: an item that is added again while it waits is processed once; one that is added while it is being
processed is queued again after ``done``. Items may be added after a delay, or after the delay of a rate limiter.
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
    """``get`` on a queue that was shut down and is empty."""


class WorkQueue(Generic[K]):
    """For one event loop. ``run_timers`` must run beside the workers for items that are added with a delay."""

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
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """The number of ready items (neither delayed nor being processed)."""
        return len(self._queue)

    @property
    def unfinished(self) -> int:
        """The number of items that are ready or being processed."""
        return len(self._dirty | self._processing)

    async def idle(self) -> None:
        """Wait until no item is ready, being processed or delayed."""
        await self._idle.wait()

    @property
    def waiting(self) -> int:
        """The number of delayed items."""
        return len(self._due)

    def add(self, item: K) -> None:
        """Make the item ready, unless it already is, or the queue was shut down."""
        if self._shutting_down or item in self._dirty:
            return
        self._dirty.add(item)
        self._idle.clear()
        if item not in self._processing:
            self._push(item)

    def add_after(self, item: K, seconds: float) -> None:
        """Add the item after ``seconds``; of two delays for one item the one that ends earlier counts."""
        if self._shutting_down:
            return
        if seconds <= 0:
            self.add(item)
            return
        due = self._clock.monotonic() + seconds
        if due >= self._due.get(item, float("inf")):
            return
        self._idle.clear()
        self._due[item] = due
        heapq.heappush(self._waiting, (due, next(self._order), item))
        self._earlier.set()

    def add_rate_limited(self, item: K) -> None:
        """Add the item after the delay of the rate limiter."""
        self.add_after(item, self._limiter.when(item))

    def forget(self, item: K) -> None:
        """Reset the item's failures, because it succeeded or was given up. ``done`` must still be called."""
        self._limiter.forget(item)

    def retries(self, item: K) -> int:
        return self._limiter.retries(item)

    async def get(self) -> K:
        """Wait for an item and take it; call ``done`` afterwards. Raises QueueShutDown if shut down and empty."""
        while not self._queue:
            if self._shutting_down:
                raise QueueShutDown("the work queue was shut down")
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # If this getter had been woken already, pass the wake-up on to another one.
                if getter.done() and not getter.cancelled():
                    self._wake_one()
                raise
        item = self._queue.popleft()
        self._processing.add(item)
        self._dirty.discard(item)
        return item

    def done(self, item: K) -> None:
        """Mark the item as processed, successfully or not; if it was added meanwhile, it is ready now."""
        self._processing.discard(item)
        if item in self._dirty:
            self._push(item)
        elif not self._dirty and not self._processing and not self._due:
            self._idle.set()

    def shut_down(self) -> None:
        """Accept no more items; ``get`` returns the ready ones and then raises. Delayed items are dropped."""
        self._shutting_down = True
        self._waiting.clear()
        self._due.clear()
        if not self.unfinished:
            self._idle.set()
        while self._getters:
            self._wake_one()

    async def run_timers(self) -> None:
        """Add the items whose delay is over; runs until cancelled."""
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
            # An entry that was replaced by an earlier one stays in the heap and is ignored.
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
    """Process a queue with ``workers`` tasks until it is shut down.

    An item whose processing raises is passed to ``on_error`` and retried after a growing delay.
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
