"""Detects attempts that take too long: between taking a pod from the queue and its end, binding included.

Nothing is recorded for the many that end in time: the queue knows which pods are in flight, and since when.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.queued_pod import Pool
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Seconds: the interval of checks, and the limit of an attempt."""

    period: float = 10.0
    timeout: float = 30.0


class SchedulerMonitor:
    """``run`` checks the pods in flight; ``completed`` must be called at the end of each attempt."""

    def __init__(
        self, queue: SchedulingQueue, metrics: SchedulerMetrics, clock: Clock, options: MonitorOptions | None = None
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._clock = clock
        self._options = options or MonitorOptions()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(self._options.period)
            self.check()

    def check(self) -> None:
        """Log and count every attempt that takes too long, at each check again, so that the counter's rate shows stuck
        attempts."""
        now = self._clock.monotonic()
        for entry in self._queue.pods():
            if entry.pool is Pool.IN_FLIGHT:
                self.completed(entry.pod.pod, now - entry.popped_at)

    def completed(self, pod: Pod, seconds: float) -> None:
        """An attempt has taken ``seconds``."""
        if seconds <= self._options.timeout:
            return
        logger.warning(
            "!!!CRITICAL TIMEOUT!!! scheduling pod %s(%s) took longer (%.3fs) than the timeout %gs",
            *(pod.metadata.key, pod.metadata.uid, seconds, self._options.timeout),
        )
        self._metrics.timed_out(pod.spec.scheduler_name)
