"""The controllers of a program: each has a queue of keys and workers that reconcile one key at a time; a key that fails
is tried again after a growing pause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.instruments import Counter
from koordinator.base.loops import Heartbeat, LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.base.yielding import SLICE, CooperativeYielding
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.requeue_delays import ExponentialFailureLimiter
from koordinator.kube.workqueue import WorkQueue, run_workers

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
_DEADLINE: Final = 60.0
_SHORTEST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 30.0
"""Between two tries of one key: what an API server that was away for minutes could not take is written soon after."""


class Controller(Protocol):
    """Creates its informers in ``__init__``; works only while this replica leads."""

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards, when this replica leads once more."""
        ...


async def run_controllers(informers: InformerSet, controllers: Mapping[str, Controller]) -> None:
    """Run them all side by side until cancelled, from the moment at which everything that is watched is known."""
    await informers.wait_synced()
    async with asyncio.TaskGroup() as tasks:
        for name, controller in controllers.items():
            tasks.create_task(controller.run(), name=f"controller {name}")
        await asyncio.Event().wait()


class Reconcilers:
    """Makes the reconcilers of one program: together they keep its event loop no longer than one of them."""

    def __init__(self, clock: Clock, metrics: Metrics, results: str, *, slice_seconds: float = SLICE) -> None:
        """``results`` names the metric that counts keys by controller and result."""
        self._clock = clock
        self.yielding = CooperativeYielding(clock, slice_seconds)
        """For work of one key that takes long: it shares the event loop with the other reconcilers."""
        self._loops = LoopMetrics(clock, metrics)
        self._results = metrics.counter(results, "Keys that a controller has seen to", ("controller", "result"))
        self._made: list[Reconciler[Any]] = []

    @property
    def in_hand(self) -> int:
        """How many keys are due or being reconciled."""
        return sum(reconciler.in_hand for reconciler in self._made)

    def make(
        self,
        name: str,
        reconcile: Callable[[K], Coroutine[Any, Any, float | None]],
        every: Callable[[], Iterable[K]],
        *,
        workers: int = 1,
        deadline: float = _DEADLINE,
        pauses: tuple[float, float] = (_SHORTEST_PAUSE, _LONGEST_PAUSE),
    ) -> Reconciler[K]:
        """``reconcile`` returns after how many seconds the key is due again, None if only when it is added; it must end
        within ``deadline`` seconds. ``every`` gives all keys. ``pauses`` are the shortest and the longest before a key
        that failed is tried again, in seconds."""
        loop = self._loops.loop(f"controller {name}", deadline)
        made = Reconciler(name, reconcile, every, self._clock, self.yielding, loop, self._results, workers, pauses)
        self._made.append(made)
        return made


class Reconciler(Generic[K]):
    """Work is done while ``run`` runs; what is added before is known from ``every`` then. Made by ``Reconcilers``."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Coroutine[Any, Any, float | None]],
        every: Callable[[], Iterable[K]],
        clock: Clock,
        yielding: CooperativeYielding,
        heartbeat: Heartbeat,
        results: Counter,
        workers: int,
        pauses: tuple[float, float],
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._every = every
        self._clock = clock
        self._workers = workers
        self._pauses = pauses
        self._yielding = yielding
        self._heartbeat = heartbeat
        self._queue: WorkQueue[K] | None = None
        self._done, self._failed = results.labels(name, "success"), results.labels(name, "error")

    @property
    def is_running(self) -> bool:
        return self._queue is not None

    @property
    def in_hand(self) -> int:
        """How many keys are due or being reconciled."""
        return 0 if self._queue is None else self._queue.unfinished

    def add(self, key: K) -> None:
        """The key has to be looked at."""
        if self._queue is not None:
            self._queue.add(key)

    def add_all(self) -> None:
        """All keys have to be looked at."""
        for key in self._every():
            self.add(key)

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards."""
        queue: WorkQueue[K] = WorkQueue(self._clock, ExponentialFailureLimiter(*self._pauses))
        self._queue = queue
        self.add_all()
        try:
            await run_workers(queue, self._work, workers=self._workers, on_error=self._report)
        finally:
            self._queue = None

    async def _work(self, key: K) -> None:
        await self._yielding.checkpoint()
        after = await self._heartbeat.iterate(self._reconcile(key))
        self._done.inc()
        if after is not None and self._queue is not None:
            self._queue.add_after(key, after)

    def _report(self, key: K, error: Exception) -> None:
        self._failed.inc()
        if isinstance(error, KoordinatorError):
            logger.warning("%s: %s: %s; trying again", self.name, key, error)
        elif isinstance(error, TimeoutError):
            logger.warning("%s: %s: not done within %gs; trying again", self.name, key, self._heartbeat.deadline)
        else:
            logger.error("%s: %s failed; trying again", self.name, key, exc_info=error)
