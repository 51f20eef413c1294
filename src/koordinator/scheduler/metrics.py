"""What the scheduler counts, under kube-scheduler's metric names, so that its dashboards and alerts go on working."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.base.metrics import Metrics, exponential_buckets
from koordinator.scheduler.queue.queued_pod import Pool

_RESULTS: Final = {"Unschedulable": "unschedulable", "SchedulerError": "error"}
_PENDING: Final = (Pool.ACTIVE, Pool.BACKOFF, Pool.UNSCHEDULABLE, Pool.GATED)


class SchedulerMetrics:
    """Durations are in seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, "
            "while 'error' means an internal scheduler problem.",
            ("profile", "result"),
            stability="STABLE",
        )
        self._attempt_duration = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            ("profile", "result"),
            buckets=exponential_buckets(0.001, 2, 15),
            stability="STABLE",
        )
        self._algorithm_duration = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            # Upstream's start at a millisecond; nearly all of ours would be in the first of those.
            buckets=(*exponential_buckets(0.00003125, 2, 5), *exponential_buckets(0.001, 2, 15)),
        )
        self._sli_duration = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might "
            "involve multiple scheduling attempts.",
            ("attempts",),
            buckets=exponential_buckets(0.01, 2, 20),
            stability="BETA",
        )
        self._pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=exponential_buckets(1, 2, 5),
            stability="STABLE",
        )
        self._kept_off = metrics.counter(
            "scheduler_pods_kept_off_nodes_total",
            "Pods that were placed while a plugin was the first to rule out some other node, by plugin.",
            ("plugin",),
        )
        self._malformed = metrics.counter(
            "scheduler_malformed_objects_total",
            "Objects that could not be read and were skipped, by kind.",
            ("kind",),
        )
        self._plugin_errors = metrics.counter(
            "scheduler_plugin_errors_total",
            "Events that a plugin failed to take note of, by plugin and method.",
            ("plugin", "method"),
        )
        self._scheduled: dict[str, tuple[Counter, Histogram]] = {}
        """By profile: looking labels up costs more than counting."""
        self.algorithm: Callable[[float], None] = self._algorithm_duration.observe
        """A decision took so long."""

    def scheduled(self, profile: str, attempt: float, since_queued: float, attempts: int) -> None:
        """A pod was bound."""
        known = self._scheduled.get(profile)
        if known is None:
            labels = (profile, "scheduled")
            known = self._attempts.labels(*labels), self._attempt_duration.labels(*labels)
            self._scheduled[profile] = known
        known[0].inc()
        known[1].observe(attempt)
        self._sli_duration.labels(str(attempts) if attempts < 15 else "15+").observe(since_queued)
        self._pod_attempts.observe(attempts)

    def kept_off(self, plugin: str) -> None:
        """A pod was placed, and ``plugin`` was the first to rule out some other node for it."""
        self._kept_off.labels(plugin).inc()

    def failed(self, profile: str, reason: str, attempt: float) -> None:
        """An attempt ended without a binding; ``reason`` is that of the PodScheduled condition."""
        labels = (profile, _RESULTS[reason])
        self._attempts.labels(*labels).inc()
        self._attempt_duration.labels(*labels).observe(attempt)

    def plugin_error(self, plugin: str, method: str) -> None:
        """A plugin failed to take note of an event."""
        self._plugin_errors.labels(plugin, method).inc()

    def malformed(self, kind: str) -> None:
        self._malformed.labels(kind).inc()

    def observe_sizes(self, pending: Callable[[Pool], int], cached: Callable[[], dict[str, int]]) -> None:
        """Where to read the sizes of the queue's pools, and of the cache by type, at each scrape."""
        self._metrics.register(_Sizes(pending, cached))


class _Sizes(Collector):
    """Gauges read when they are asked for: keeping them current would cost every pod several updates."""

    def __init__(self, pending: Callable[[Pool], int], cached: Callable[[], dict[str, int]]) -> None:
        self._pending = pending
        self._cached = cached

    def collect(self) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "scheduler_pending_pods", "Number of pending pods, by the queue type.", labels=("queue",)
        )
        for pool in _PENDING:
            pending.add_metric([pool.value], self._pending(pool))
        cached = GaugeMetricFamily(
            "scheduler_cache_size", "Number of nodes, pods and assumed pods in the cache.", labels=("type",)
        )
        for name, size in self._cached().items():
            cached.add_metric([name], size)
        return (pending, cached)
