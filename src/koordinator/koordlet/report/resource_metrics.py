"""What the agent exports of the node, its pods and the latest measurement."""

from __future__ import annotations

from functools import partial
from typing import Final

from koordinator.api.node import Node
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, FREE_CPU, FREE_MEMORY, MID_CPU, MID_MEMORY
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.enforce.plugins import Plugins
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache
from koordinator.koordlet.observe.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.observe.usage_table import NEVER, BestEffortRow, NodeRow, UsageTable
from koordinator.koordlet.pods.listing import PodListing
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.features import Undetermined, Works, probe_machine
from koordinator.node.host import Host

_OFFERED: Final = {BATCH_CPU: "integer", BATCH_MEMORY: "byte", MID_CPU: "integer", MID_MEMORY: "byte"}
_UNITS: Final = {**_OFFERED, FREE_CPU: "integer", FREE_MEMORY: "byte"}
_OF_CONTAINER: Final = ("resource", "unit", "pod_uid", "pod_name", "pod_namespace", "container_id", "container_name")


def export_resources(metrics: AgentMetrics, states: StatesInformer) -> None:
    """What koord-manager has made allocatable, and what containers take of it."""
    metrics.latest(
        "node_resource_allocatable",
        "the node allocatable of resources updated by koordinator",
        ("resource", "unit"),
        lambda: allocatable_rows(states.node),
        external=True,
    )
    for kind in ("requests", "limits"):
        help_text = f"the container {kind} of resources updated by koordinator"
        rows = partial(_container_rows, states, kind)
        metrics.latest(f"container_resource_{kind}", help_text, _OF_CONTAINER, rows, external=True)


def export_listing(metrics: AgentMetrics, listing: PodListing) -> None:
    """Whether the kernel has the cgroups of the pods that run where they are looked for."""

    def rows() -> Rows:
        missing = len(listing.without_cgroups)
        running = sum(pod.is_running for pod in listing.pods)
        return [(("found",), float(running - missing)), (("missing",), float(missing))]

    metrics.latest(
        "pod_cgroups",
        "Pods that the kubelet lists as running, by whether the kernel has all of their cgroups where they belong",
        ("state",),
        rows,
    )


def export_plugins(metrics: AgentMetrics, plugins: Plugins) -> None:
    """Which of what other packages add works, and which has failed; nothing of what the options switch off."""

    def rows() -> Rows:
        return [((guard.name, guard.package), float(not guard.problem)) for guard in plugins.guards if guard.is_on]

    metrics.latest(
        "plugin_working",
        "1 for each strategy, hook, controller, sink and backend of another package that works, 0 for one that fails",
        ("plugin", "package"),
        rows,
    )


def export_usage(metrics: AgentMetrics, table: UsageTable) -> None:
    """What the last round has measured."""

    def host_applications() -> Rows:
        for name, row in table.host_applications.items():
            if row.cpu_at >= table.at and row.memory_at > NEVER:
                yield (name, "cpu", row.spec.priority, row.spec.qos), row.cpu
                yield (name, "memory", row.spec.priority, row.spec.qos), row.memory.usage

    def of_last_round(row: NodeRow | BestEffortRow, value: float) -> float | None:
        return value if row.at >= table.at else None

    metrics.value(
        "node_used_cpu_cores",
        "Number of cpu cores used by node in realtime",
        lambda: of_last_round(table.node, table.node.cpu),
    )
    metrics.value(
        "node_used_memory_bytes",
        "Memory used by node in realtime",
        lambda: of_last_round(table.node, table.node.memory.usage),
    )
    metrics.value(
        "be_suppress_be_used_cpu_cores",
        "Number of cpu cores used by BE.",
        lambda: of_last_round(table.best_effort, table.best_effort.usage / 1000),
    )
    metrics.latest(
        "host_application_resource_usage",
        "Host application resource usage collected by koordlet",
        ("host_application_name", "resource", "priority_class", "qos"),
        host_applications,
    )


def export_features(metrics: AgentMetrics, host: Host) -> None:
    """Which kernel features the machine has; to look for all of them takes some milliseconds."""

    def rows() -> Rows:
        features = probe_machine(host).features
        return [
            ((feature.name,), float(isinstance(feature.state, Works)))
            for feature in features
            if not isinstance(feature.state, Undetermined)
        ]

    metrics.latest(
        "kernel_feature_works", "Whether the machine has a feature; koord doctor says what lacks.", ("feature",), rows
    )


def export_cache(metrics: AgentMetrics, cache: RingMetricCache) -> None:
    metrics.value("metric_cache_series", "Series that the metric cache keeps.", lambda: cache.series_count)
    metrics.value("metric_cache_bytes", "What its samples take.", lambda: cache.size_bytes)
    metrics.value(
        "metric_cache_rejected_samples_total",
        "Samples since the start that were dropped for want of memory.",
        lambda: cache.rejected_samples,
    )


def export_reading(metrics: AgentMetrics, meter: CgroupMeter, advisor: MetricsAdvisor) -> None:
    """What measuring costs."""
    metrics.value(
        "cgroup_files_read_total", "Files of cgroups read every round, since the start.", lambda: meter.files_read
    )
    metrics.value("cgroup_files_open", "Those that are kept open.", lambda: meter.open_files)
    metrics.value("scan_duration_seconds", "How long the last round took to read.", lambda: advisor.seconds)
    metrics.value("scan_unreadable_files", "Files that the last round could not read.", lambda: advisor.unreadable)


def allocatable_rows(node: Node | None) -> Rows:
    """Batch and mid resources of the node, 0 for one that it does not have; and its free resources, if it has any."""
    if node is None:
        return
    for resource, unit in _UNITS.items():
        amount = node.status.allocatable.get(resource)
        if amount is not None or resource in _OFFERED:
            yield (resource, unit), 0 if amount is None else amount.value


def _container_rows(states: StatesInformer, kind: str) -> Rows:
    """Resources of the classes below prod that containers request, or are limited to (``kind``: requests or limits).

    The unit is the original's for all of them, which is not what they are in, but what dashboards select.
    """
    unit = "integer" if kind == "requests" else "byte"
    for pod in states.pods:
        metadata = pod.pod.metadata
        amounts = {
            each.name: each.resources.requests if kind == "requests" else each.resources.limits
            for each in pod.pod.spec.containers
        }
        for made in pod.containers:
            own = amounts.get(made.name, {})
            owner = (metadata.uid, metadata.name, metadata.namespace, made.id, made.name)
            for resource in _UNITS:
                if resource in own:
                    yield (resource, unit, *owner), own[resource].value
