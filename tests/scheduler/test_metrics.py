"""Names, labels and values of what the scheduler exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.scheduler.cycle.measurement import PluginTimes, SchedulerMonitor
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.fakes import describe, make_pod

POD = make_pod("p", scheduler="p")


def monitor(metrics: SchedulerMetrics) -> SchedulerMonitor:
    clock = ManualClock()
    return SchedulerMonitor(SchedulingQueue(lambda pod, at: (at,), lambda pod: None, clock.monotonic), metrics, clock)


def bound(metrics: SchedulerMetrics, attempts: int = 1) -> None:
    """A pod was bound after so many attempts; LoadAwareScheduling had kept it off another node."""
    info, node, profile = describe(POD), NodeReference("a", 0, 1), Profile("p", {}, PluginOrder())
    placement = Placement(CycleState(info), info, profile, node, 5, 3, (), (), (), ("LoadAwareScheduling",))
    monitor(metrics).bound(QueuedPod(info, 0.0, 0.0, attempts=attempts), placement, 0.0)


UPSTREAM: dict[str, tuple[set[str], Callable[[SchedulerMetrics], object]]] = {
    "scheduler_schedule_attempts_total": ({"profile", "result"}, bound),
    "scheduler_scheduling_attempt_duration_seconds_count": (
        {"profile", "result"},
        lambda m: monitor(m).failed(POD, "Unschedulable", 0.0),
    ),
    "scheduler_scheduling_algorithm_duration_seconds_count": (set(), lambda m: m.algorithm(1.0)),
    "scheduler_pod_scheduling_sli_duration_seconds_count": ({"attempts"}, bound),
    "scheduler_pod_scheduling_attempts_count": (set(), bound),
    "scheduler_pod_scheduling_evaluated_nodes_count": (set(), bound),
    "scheduler_pod_scheduling_feasible_nodes_count": (set(), bound),
    "scheduler_preemption_attempts_total": (set(), lambda m: m.preemption_attempts.inc()),
    "scheduler_preemption_victims_count": (set(), lambda m: m.preemption_victims.observe(2)),
    "scheduler_permit_wait_duration_seconds_count": ({"result"}, lambda m: m.waited(allowed=True, seconds=1.0)),
    "scheduler_framework_extension_point_duration_seconds_count": (
        {"extension_point", "status", "profile"},
        lambda m: PluginTimes("p", m, lambda: 1.0).end("Filter", 0.0),
    ),
    "scheduler_plugin_execution_duration_seconds_count": (
        {"plugin", "extension_point", "status"},
        lambda m: m.plugin_duration.labels("Fit", "Filter", "Success").observe(1.0),
    ),
    "scheduler_scheduling_timeout": ({"profile"}, lambda m: m.timeouts.update(["p"])),
    "scheduler_pending_pods": ({"queue"}, lambda m: m.observe_sizes(lambda pool: 1, dict)),
    "scheduler_cache_size": ({"type"}, lambda m: m.observe_sizes(lambda pool: 1, lambda: {"nodes": 1})),
    "scheduler_unschedulable_pods": (
        {"plugin", "profile"},
        lambda m: m.observe_unschedulable(lambda: [waiting("p", "Fit")]),
    ),
    "scheduler_queue_incoming_pods_total": (
        {"queue", "event"},
        lambda m: m.observe_incoming(Counter({(Pool.ACTIVE, "NodeAdd"): 1})),
    ),
}


def waiting(name: str, *plugins: str, pool: Pool = Pool.UNSCHEDULABLE) -> QueuedPod:
    return QueuedPod(describe(make_pod(name)), 0.0, 0.0, pool, plugins=frozenset(plugins))


def exported(happens: Callable[[SchedulerMetrics], object]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) -> value, as a scrape sees it."""
    metrics = Metrics()
    happens(SchedulerMetrics(metrics))
    text = metrics.exposition("")[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_metric_of_upstream_has_its_name_and_labels(name: str) -> None:
    labels, happens = UPSTREAM[name]
    found = [dict(pairs) for known, pairs in exported(happens) if known == name]
    assert found
    assert all(each.keys() == labels for each in found)


@pytest.mark.parametrize(("reason", "result"), [("Unschedulable", "unschedulable"), ("SchedulerError", "error")])
def test_a_failed_attempt_counts_by_its_result(reason: str, result: str) -> None:
    values = exported(lambda metrics: monitor(metrics).failed(POD, reason, 0.0))
    assert values["scheduler_schedule_attempts_total", (("profile", "p"), ("result", result))] == 1


def test_many_attempts_share_a_label() -> None:
    values = exported(lambda metrics: bound(metrics, attempts=40))
    assert values["scheduler_pod_scheduling_sli_duration_seconds_count", (("attempts", "15+"),)] == 1


def test_a_pod_counts_for_each_plugin_that_keeps_it_waiting() -> None:
    pods = [waiting("a", "Fit", "Taint"), waiting("b", "Fit", pool=Pool.BACKOFF), waiting("c", "Fit", pool=Pool.ACTIVE)]
    values = exported(lambda metrics: metrics.observe_unschedulable(lambda: pods))
    assert {labels[0][1]: value for (name, labels), value in values.items() if "unschedulable" in name} == {
        "Fit": 2,
        "Taint": 1,
    }


def test_every_pool_has_a_size_but_that_of_pods_in_flight() -> None:
    values = exported(lambda metrics: metrics.observe_sizes(lambda pool: len(pool.value), dict))
    assert {labels[0][1]: value for (name, labels), value in values.items() if "pending" in name} == {
        "active": 6,
        "backoff": 7,
        "unschedulable": 13,
        "gated": 5 + len("preempting"),
    }


def test_gated_pods_come_into_the_unschedulable_ones_as_upstream_counts_them() -> None:
    counts = Counter({(Pool.GATED, "UnschedulablePodAdd"): 2, (Pool.UNSCHEDULABLE, "UnschedulablePodAdd"): 3})
    values = exported(lambda metrics: metrics.observe_incoming(counts))
    labels = (("event", "UnschedulablePodAdd"), ("queue", "unschedulable"))
    assert values["scheduler_queue_incoming_pods_total", labels] == 5


def test_what_upstream_does_not_have_has_names_of_its_own() -> None:
    def happens(metrics: SchedulerMetrics) -> None:
        bound(metrics)
        metrics.malformed("Pod")
        metrics.plugin_error("Fit", "on_node")

    values = exported(happens)
    assert values["scheduler_pods_kept_off_nodes_total", (("plugin", "LoadAwareScheduling"),)] == 1
    assert values["scheduler_malformed_objects_total", (("kind", "Pod"),)] == 1
    assert values["scheduler_plugin_errors_total", (("method", "on_node"), ("plugin", "Fit"))] == 1
