"""The NodeMetric status that koordlet would write, worked out from samples for many nodes at once; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.nodemetric import AVERAGE, P50, P90, P95, P99, USAGE_WITHOUT_PAGE_CACHE
from koordinator.api.qos import QoSClass
from koordinator.api.timestamps import format_time
from koordinator.base.durations import format_duration
from koordinator.cluster.nodes.population import Population, Rows, SampleRing, Window
from koordinator.cluster.nodes.suppression import HeldDown
from koordinator.cluster.nodes.usage import Floats
from koordinator.model.node_metric import (
    COLD_SHARE,
    DEFAULT_AGGREGATE_SECONDS,
    DEFAULT_DURATIONS,
    CollectPolicy,
    resource_map,
)

Document = dict[str, Any]

_PERCENTILES: Final = {P50: 50, P90: 90, P95: 95, P99: 99}

_USAGES = ("nodeUsage", "systemUsage")


def default_spec(report_seconds: int) -> Document:
    """The spec of a NodeMetric that no manager has created."""
    return {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": DEFAULT_AGGREGATE_SECONDS,
            "reportIntervalSeconds": report_seconds,
            "nodeAggregatePolicy": {"durations": [format_duration(duration) for duration in DEFAULT_DURATIONS]},
            "nodeMemoryCollectPolicy": USAGE_WITHOUT_PAGE_CACHE,
        }
    }


def node_metric_statuses(
    population: Population, nodes: Sequence[str], policy: CollectPolicy, time: float, update_time: datetime
) -> list[Document]:
    """One status for each of ``nodes``, for the windows that end with the last sample before ``time`` (simulated
    seconds): in a fast simulation whole windows pass between two samples."""
    if population.sampled_at is not None:
        time = min(time, population.sampled_at)
    rows = np.array([population.node_row(name) for name in nodes], dtype=np.int64)
    since = time - policy.aggregate_seconds
    node_usages = _averages(population.node_samples.window(rows, since, time))
    system_usages = _averages(population.system_samples.window(rows, since, time))
    node_aggregates = _aggregates(population.node_samples, rows, policy, time)
    system_aggregates = _aggregates(population.system_samples, rows, policy, time)
    pods = _pod_metrics(population, nodes, since, time, format_time(update_time))
    return [
        {
            "updateTime": format_time(update_time),
            "nodeMetric": {
                "nodeUsage": node_usages[index],
                "aggregatedNodeUsages": node_aggregates and node_aggregates[index],
                "systemUsage": system_usages[index],
                "aggregatedSystemUsages": system_aggregates and system_aggregates[index],
            },
            "podsMetric": pods[index],
            # Prediction is koordlet's; without it, this is what koordlet writes too.
            "prodReclaimableMetric": {"resource": {}},
        }
        for index in range(len(nodes))
    ]


def clearing(status: Document) -> Document:
    """The status as a merge patch that also takes back a usage that is empty now."""
    info = {
        field: {"resources": None, "devices": None} if field in _USAGES and not value else value
        for field, value in status["nodeMetric"].items()
    }
    return {**status, "nodeMetric": info}


def _pod_metrics(
    population: Population, nodes: Sequence[str], start: float, end: float, now: str
) -> list[list[Document]]:
    """Pods with a sample in the window, by namespace and name, one list for each node."""
    held = [_suppression(population.held_down(name), now) for name in nodes]
    of_node = [population.pods_of(name) for name in nodes]
    rows = np.array([row for pods in of_node for row, _ in pods], dtype=np.int64)
    usages = iter(_averages(population.pod_samples.window(rows, start, end)))
    return [
        [
            {
                "name": profile.name,
                "namespace": profile.namespace,
                "podUsage": usage,
                "priority": profile.priority.value,
                "qos": profile.qos.value,
                **(extensions if profile.qos is QoSClass.BE else {}),
            }
            for (_, profile), usage in zip(pods, usages, strict=False)
            if usage
        ]
        for pods, extensions in zip(of_node, held, strict=True)
    ]


def _suppression(held: HeldDown | None, now: str) -> Document:
    """What koordlet would say of each best-effort pod of a node."""
    if held is None:
        return {}
    # Imported where it is needed: a cluster without suppression needs nothing of koordlet.
    from koordinator.koordlet.enforce.strategies.cpu_suppress import Budget
    from koordinator.koordlet.report.suppression import suppression_extension

    threshold = held.threshold
    milli = (round(cores * 1000) for cores in (held.capacity, held.others, held.system))
    capacity, others, system = milli
    why = str(Budget(capacity, threshold.percent, threshold.least_percent, others, 0, system))
    return {"extensions": {EXTENSIONS_MEMBER: suppression_extension(threshold.policy, held.cores, now, why)}}


def _aggregates(ring: SampleRing, rows: Rows, policy: CollectPolicy, time: float) -> list[list[Document]] | None:
    """One list for each row, with one element for each duration; None without a policy."""
    if policy.durations is None:
        return None
    columns = []
    for duration in policy.durations:
        seconds = duration.total_seconds()
        window = ring.window(rows, time - seconds, time)
        warm = window.spans() >= COLD_SHARE * seconds
        usages = {AVERAGE: _averages(window, warm)}
        for name, percent in _PERCENTILES.items():
            usages[name] = _resource_maps(*window.percentiles(percent), warm)
        columns.append((format_duration(duration), usages))
    return [
        [
            {"usage": {name: usage[index] for name, usage in usages.items()}, "duration": duration}
            for duration, usages in columns
        ]
        for index in range(len(rows))
    ]


def _averages(window: Window, warm: Sequence[bool] | np.ndarray[Any, Any] | None = None) -> list[Document]:
    cpu, memory = window.averages()
    return _resource_maps(cpu, memory, [True] * len(cpu) if warm is None else warm)


def _resource_maps(cpu: Floats, memory: Floats, valid: Sequence[bool] | np.ndarray[Any, Any]) -> list[Document]:
    """``{}`` where there is nothing to say."""
    return [
        resource_map(cores, size) if good and not math.isnan(cores) else {}
        for cores, size, good in zip(cpu.tolist(), memory.tolist(), valid, strict=True)
    ]
