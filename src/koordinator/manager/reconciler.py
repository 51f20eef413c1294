"""One controller's queue and workers: keys in, each reconciled alone, failures tried again after a growing pause."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.kube.requeue_delays import ExponentialFailureLimiter
from koordinator.kube.workqueue import WorkQueue, run_workers
from koordinator.manager.turns import Turns

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
_DEADLINE: Final = 60.0
_LONGEST_PAUSE: Final = 30.0
"""Between two tries of one key: what an API server that was away for minutes could not take is written soon after."""


class Reconciler(Generic[K]):
    """Work is done while ``run`` runs; what is added before is known from ``every`` then."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Coroutine[Any, Any, float | None]],
        every: Callable[[], Iterable[K]],
        *,
        clock: Clock,
        metrics: Metrics,
        turns: Turns,
        workers: int = 1,
        deadline: float = _DEADLINE,
    ) -> None:
        """``reconcile`` returns after how many seconds the key is due again, None if only when it is added; it must end
        within ``deadline`` seconds. ``every`` gives all keys. ``turns`` are those that all controllers share."""
        self.name = name
        self._reconcile = reconcile
        self._every = every
        self._clock = clock
        self._workers = workers
        self._deadline = deadline
        self._turns = turns
        self._queue: WorkQueue[K] | None = None
        results = metrics.tally(
            "koordinator_manager_reconcile_total", "Keys that a controller has seen to", ("controller", "result")
        )
        self._done, self._failed = results.labels(name, "success"), results.labels(name, "error")

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
        queue: WorkQueue[K] = WorkQueue(self._clock, ExponentialFailureLimiter(maximum=_LONGEST_PAUSE))
        self._queue = queue
        self.add_all()
        try:
            await run_workers(queue, self._work, workers=self._workers, on_error=self._report)
        finally:
            self._queue = None

    async def _work(self, key: K) -> None:
        await self._turns.take()
        after = await within(self._clock, self._deadline, self._reconcile(key))
        self._done.inc()
        if after is not None and self._queue is not None:
            self._queue.add_after(key, after)

    def _report(self, key: K, error: Exception) -> None:
        self._failed.inc()
        if isinstance(error, KoordinatorError):
            logger.warning("%s: %s: %s; trying again", self.name, key, error)
        elif isinstance(error, TimeoutError):
            logger.warning("%s: %s: not done within %gs; trying again", self.name, key, self._deadline)
        else:
            logger.error("%s: %s failed; trying again", self.name, key, exc_info=error)
