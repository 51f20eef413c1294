"""Measures attempts: how they end, how long they and the plugins in them take, and which of them take too long.

Looking labels up costs more than counting, so that what is observed often is looked up once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.base.instruments import CounterSeries, JointSamples
from koordinator.scheduler.engine.batch_kernel import BatchHandle
from koordinator.scheduler.engine.cached_results import CachedFilterResults, CachedScores
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

logger = logging.getLogger(__name__)

_RESULTS: Final = {"Unschedulable": "unschedulable", "SchedulerError": "error"}
_MOST_ATTEMPTS: Final = 15
"""So many attempts or more have one label."""


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Seconds: the interval of checks, and the limit of an attempt."""

    period: float = 10.0
    timeout: float = 30.0


class SchedulerMonitor:
    """``bound`` or ``failed`` must be called at the end of each attempt. ``run`` checks the pods in flight: an attempt
    may take too long between taking the pod from the queue and its end, binding included."""

    def __init__(
        self, queue: SchedulingQueue, metrics: SchedulerMetrics, clock: Clock, options: MonitorOptions | None = None
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._clock = clock
        self._options = options or MonitorOptions()
        self._bound: dict[tuple[str, int], tuple[CounterSeries, JointSamples]] = {}
        """By profile and attempts."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(self._options.period)
            self.check()

    def check(self) -> None:
        """Log and count every attempt that takes too long, at each check again, so that the counter's rate shows stuck
        attempts. Nothing is recorded for the many that end in time: the queue knows since when pods are in flight."""
        now = self._clock.monotonic()
        for entry in self._queue.pods():
            if entry.pool is Pool.IN_FLIGHT and now - entry.popped_at > self._options.timeout:
                self._timed_out(entry.pod.pod, now - entry.popped_at)

    def bound(self, entry: QueuedPod, placement: Placement, started: float) -> None:
        """The attempt that began at ``started`` has bound the pod."""
        now, pod = self._clock.monotonic(), placement.pod.pod
        seconds, attempts = now - started, entry.attempts
        key = pod.spec.scheduler_name, min(attempts, _MOST_ATTEMPTS)
        counter, samples = self._bound.get(key) or self._bound_after(*key)
        counter.inc()
        samples.observe((seconds, now - entry.created_at, attempts, placement.evaluated, placement.feasible))
        for name in placement.rejecting_plugins:
            self._metrics.filtered_by.labels(name).inc()
        if seconds > self._options.timeout:
            self._timed_out(pod, seconds)

    def _bound_after(self, profile: str, attempts: int) -> tuple[CounterSeries, JointSamples]:
        metrics, labels = self._metrics, (profile, "scheduled")
        samples = JointSamples(
            metrics.attempt_duration.labels(*labels),
            metrics.sli_duration.labels(str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"),
            metrics.pod_attempts.labels(),
            metrics.evaluated.labels(),
            metrics.feasible.labels(),
        )
        return self._bound.setdefault((profile, attempts), (metrics.attempts.labels(*labels), samples))

    def failed(self, pod: Pod, reason: str, started: float) -> None:
        """The attempt has ended without a binding; ``reason`` is that of the PodScheduled condition."""
        labels, seconds = (pod.spec.scheduler_name, _RESULTS[reason]), self._clock.monotonic() - started
        self._metrics.attempts.labels(*labels).inc()
        self._metrics.attempt_duration.labels(*labels).observe(seconds)
        if seconds > self._options.timeout:
            self._timed_out(pod, seconds)

    def _timed_out(self, pod: Pod, seconds: float) -> None:
        logger.warning(
            "!!!CRITICAL TIMEOUT!!! scheduling pod %s(%s) took longer (%.3fs) than the timeout %gs",
            *(pod.metadata.key, pod.metadata.uid, seconds, self._options.timeout),
        )
        self._metrics.timeouts[pod.spec.scheduler_name] += 1


class PluginTimes:
    """Measures the run times of plugins and extension points: Filter and Score in the decisions for which the engine of
    the profile calls ``refresh`` in place of Evaluation.refresh, the other points whenever they have something to
    run."""

    def __init__(self, profile: str, metrics: SchedulerMetrics, monotonic: Callable[[], float]) -> None:
        self._profile = profile
        self._metrics = metrics
        self._monotonic = monotonic
        self.begin = monotonic
        self._points: dict[tuple[str, str], Callable[[float], None]] = {}
        """By point and status: looking labels up costs more than counting."""
        self._filters: dict[Any, _Stopwatch] = {}
        """By plugin."""
        self._scores: dict[Any, _Stopwatch] = {}

    def end(self, point: str, begun: float, status: str = "Success") -> None:
        """See PointTimes."""
        seconds = self._monotonic() - begun
        observe = self._points.get((point, status)) or self._point_times(point, status)
        observe(seconds)

    def _point_times(self, point: str, status: str) -> Callable[[float], None]:
        """The function that observes how long all plugins of an extension point took for one pod."""
        labelled = self._metrics.point_duration.labels(point, status, self._profile)
        return self._points.setdefault((point, status), labelled.observe)

    def refresh(self, evaluation: Evaluation) -> None:
        """Refresh the evaluation, and measure that."""
        plan = evaluation.plan
        filters, scores = self._timed(self._filters, plan.filters), self._timed(self._scores, plan.scores)
        try:
            evaluation.refresh()
        finally:
            for entry, stopwatch in (*filters, *scores):
                entry.use(stopwatch.plugin)
                if stopwatch.in_batch is not None:
                    stopwatch.put_back()
            self._observe("Filter", [stopwatch for _, stopwatch in filters if stopwatch.calls])
            self._observe("Score", [stopwatch for _, stopwatch in scores if stopwatch.calls])

    def _observe(self, point: str, called: list[_Stopwatch]) -> None:
        seconds, status = 0.0, "Success"
        for stopwatch in called:
            took = self._metrics.plugin_duration.labels(stopwatch.plugin.name, point, stopwatch.status)
            took.observe(stopwatch.seconds)
            seconds += stopwatch.seconds
            if stopwatch.status == "Error":
                status = "Error"
            stopwatch.reset()
        if called:
            self._point_times(point, status)(seconds)

    def _timed(
        self, stopwatches: dict[Any, _Stopwatch], entries: list[CachedFilterResults] | list[CachedScores]
    ) -> list[tuple[CachedFilterResults | CachedScores, _Stopwatch]]:
        for entry in entries:
            if entry.plugin not in stopwatches:
                stopwatches[entry.plugin] = _Stopwatch(entry.plugin, self._monotonic)
        timed = [(entry, stopwatches[entry.plugin]) for entry in entries]
        for entry, stopwatch in timed:
            replacement: Any = stopwatch
            entry.use(replacement)
            if entry.in_batch is not None:
                stopwatch.measure_batch(entry.in_batch)
        return timed


class _Stopwatch:
    """Replaces a plugin and adds up the time that its methods take."""

    def __init__(self, plugin: Any, monotonic: Callable[[], float]) -> None:
        self.plugin = plugin
        self._monotonic = monotonic
        self.in_batch: tuple[BatchHandle, Callable[..., Any]] | None = None
        self.reset()

    def reset(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.status = "Success"

    def measure_batch(self, in_batch: BatchHandle) -> None:
        """Batch evaluation of the plugin for this class of pods and others counts for this decision, too."""
        self.in_batch = in_batch, in_batch.evaluate
        in_batch.evaluate = self._measuring(in_batch.evaluate)

    def put_back(self) -> None:
        if self.in_batch is not None:
            self.in_batch[0].evaluate = self.in_batch[1]
            self.in_batch = None

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.plugin, name)
        if not callable(member):
            return member
        measured = self.__dict__[name] = self._measuring(member)
        return measured

    def _measuring(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = self._monotonic()
            try:
                return method(*arguments)
            except Exception:
                self.status = "Error"
                raise
            finally:
                self.seconds += self._monotonic() - started
                self.calls += 1

        return call
