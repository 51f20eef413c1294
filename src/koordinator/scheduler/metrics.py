"""The scheduler's metrics, under kube-scheduler's names, so that dashboards and alerts for it keep working."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, UntypedMetricFamily

from koordinator.base.clock import Clock
from koordinator.base.instruments import Scraped
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics, exponential_buckets
from koordinator.scheduler.engine.framework_hooks import MetricsProvider
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod

_PENDING: Final = (Pool.ACTIVE, Pool.BACKOFF, Pool.UNSCHEDULABLE, Pool.GATED)


class SchedulerMetrics:
    """The metrics of one scheduler process. Durations are in seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self.registered = metrics
        """The registry of the program, which holds all these metrics."""
        self.attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, "
            "while 'error' means an internal scheduler problem.",
            ("profile", "result"),
            stability="STABLE",
        )
        self.attempt_duration = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            ("profile", "result"),
            buckets=exponential_buckets(0.001, 2, 15),
            stability="STABLE",
        )
        self._algorithm_duration = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            # Upstream's buckets start at a millisecond; nearly all of ours would be in the first of those.
            buckets=(*exponential_buckets(0.00003125, 2, 5), *exponential_buckets(0.001, 2, 15)),
        )
        self.sli_duration = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might "
            "involve multiple scheduling attempts.",
            ("attempts",),
            buckets=exponential_buckets(0.01, 2, 20),
            stability="BETA",
        )
        self.pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=exponential_buckets(1, 2, 5),
            stability="STABLE",
        )
        self.filtered_by = metrics.counter(
            "scheduler_pods_kept_off_nodes_total",
            "Pods that were placed while a plugin was the first to reject some other node, by plugin.",
            ("plugin",),
        )
        self._malformed = metrics.counter(
            "scheduler_malformed_objects_total",
            "Objects that could not be read and were skipped, by kind.",
            ("kind",),
        )
        self._plugin_errors = metrics.counter(
            "scheduler_plugin_errors_total",
            "Failed calls of a plugin after which scheduling continued without their result, by plugin and method.",
            ("plugin", "method"),
        )
        self._plugin_resyncs = metrics.counter(
            "scheduler_plugin_resyncs_total",
            "How often a plugin that had failed at an event was rebuilt, or was not completely, by plugin and result.",
            ("plugin", "result"),
        )
        self.evaluated = metrics.histogram(
            "scheduler_pod_scheduling_evaluated_nodes",
            "The number of nodes the scheduler evaluated the pod against in the filtering phase and beyond when find "
            "the suggested node",
            buckets=exponential_buckets(1, 2, 24),
        )
        self.feasible = metrics.histogram(
            "scheduler_pod_scheduling_feasible_nodes",
            "The number of of nodes out of the evaluated ones that fit the pod when find the suggested node",
            buckets=exponential_buckets(1, 2, 24),
        )
        self.preemption_attempts = metrics.counter(
            "scheduler_preemption_attempts_total",
            "Total preemption attempts in the cluster till now",
            stability="STABLE",
        )
        self.preemption_victims = metrics.histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            buckets=exponential_buckets(1, 2, 7),
            stability="STABLE",
        )
        self._permit_wait = metrics.histogram(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit.",
            ("result",),
            buckets=exponential_buckets(0.001, 2, 15),
        )
        self.point_duration = metrics.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            # Upstream's buckets start at a tenth of a millisecond; ours stay below that while only one node has
            # changed.
            buckets=(*exponential_buckets(0.00000625, 2, 4), *exponential_buckets(0.0001, 2, 12)),
            stability="STABLE",
        )
        self.plugin_duration = metrics.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            ("plugin", "extension_point", "status"),
            buckets=exponential_buckets(0.00001, 1.5, 20),
        )
        self.timeouts: Counter[str] = Counter()
        metrics.register(
            Scraped(
                # The original's counter, whose name lacks the suffix that the library appends to every counter.
                "scheduler_scheduling_timeout",
                "[STABLE] The currently scheduled Pod exceeds the maximum acceptable time interval",
                ("profile",),
                lambda: [((profile,), count) for profile, count in self.timeouts.items()],
                UntypedMetricFamily,
            )
        )
        self.algorithm: Callable[[float], None] = self._algorithm_duration.observe
        """Observes the duration of a decision."""

    def waited(self, allowed: bool, seconds: float) -> None:
        """Observe how long Permit plugins delayed a pod."""
        self._permit_wait.labels("Success" if allowed else "Unschedulable").observe(seconds)

    def observe_unschedulable(self, pods: Callable[[], Iterable[QueuedPod]]) -> None:
        """Set the source, read at each scrape, of the pods that plugins have rejected."""
        self.registered.register(
            Scraped(
                "scheduler_unschedulable_pods",
                "[ALPHA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge "
                "for all plugins that caused it to not schedule and so this metric is broken down by plugin.",
                ("plugin", "profile"),
                lambda: _rejected_by(pods()),
            )
        )

    def plugin_error(self, plugin: str, method: str) -> None:
        """Count an error of a plugin after which scheduling continues without its result."""
        self._plugin_errors.labels(plugin, method).inc()

    def plugin_resync(self, plugin: str, result: str) -> None:
        """Count a rebuilt plugin: ``success``, or ``error`` when it leaves something out from now on."""
        self._plugin_resyncs.labels(plugin, result).inc()

    def malformed(self, kind: str) -> None:
        self._malformed.labels(kind).inc()

    def observe_incoming(self, counts: Mapping[tuple[Pool, str], int]) -> None:
        """Set the queue's counters, read at each scrape: how many pods entered a pool, by cause."""
        self.registered.register(
            Scraped(
                "scheduler_queue_incoming_pods",
                "[STABLE] Number of pods added to scheduling queues by event and queue type.",
                ("queue", "event"),
                lambda: _incoming(counts),
                CounterMetricFamily,
            )
        )

    def observe_plugins(self, profiles: Iterable[Profile]) -> None:
        """Export the plugins' own metrics; if several profiles have a plugin, those of the first instance."""
        providers: dict[str, MetricsProvider] = {}
        for profile in profiles:
            for provider in profile.all(MetricsProvider):
                providers.setdefault(provider.name, provider)
        for provider in providers.values():
            for collector in provider.collectors():
                self.registered.register(collector)

    def loops(self, clock: Clock) -> LoopMetrics:
        """The heartbeat metrics of the program's loops."""
        return LoopMetrics(clock, self.registered)

    def observe_sizes(self, pending: Callable[[Pool], int], cached: Callable[[], dict[str, int]]) -> None:
        """Set the sources of the sizes of the queue's pools, and of the cache by type, read at each scrape."""
        self.registered.register(
            Scraped(
                "scheduler_pending_pods",
                "[STABLE] Number of pending pods, by the queue type.",
                ("queue",),
                lambda: _pending_sizes(pending),
            )
        )
        self.registered.register(
            Scraped(
                "scheduler_cache_size",
                "[ALPHA] Number of nodes, pods and assumed pods in the cache.",
                ("type",),
                lambda: [((name,), size) for name, size in cached().items()],
            )
        )


def _pending_sizes(pending: Callable[[Pool], int]) -> list[tuple[tuple[str], int]]:
    sizes = Counter({pool: pending(pool) for pool in _PENDING})
    sizes[Pool.GATED] += pending(Pool.PREEMPTING)
    return [((pool.value,), size) for pool, size in sizes.items()]


def _incoming(counts: Mapping[tuple[Pool, str], int]) -> Iterable[tuple[tuple[str, str], int]]:
    """Upstream counts a gated pod among the unschedulable ones here."""
    sums: Counter[tuple[str, str]] = Counter()
    for (pool, event), count in list(counts.items()):
        sums[(Pool.UNSCHEDULABLE if pool is Pool.GATED else pool).value, event] += count
    return sums.items()


def _rejected_by(pods: Iterable[QueuedPod]) -> Iterable[tuple[tuple[str, str], int]]:
    return Counter(
        (plugin, entry.pod.pod.spec.scheduler_name)
        for entry in pods
        if entry.pool in (Pool.UNSCHEDULABLE, Pool.BACKOFF)
        for plugin in entry.plugins
    ).items()
