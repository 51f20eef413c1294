"""The load of one node: its last report, the pods assigned to it, and what those add to the report.

A report lags behind: a pod that was assigned after it, or so shortly before that its usage cannot be in it yet, counts
with its expected usage. (Original: podAssignCache of LoadAwareScheduling.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import ResourceList
from koordinator.api.priority import PriorityClass
from koordinator.api.timestamps import format_micro_time
from koordinator.api.usable_amounts import are_plain, is_below_zero, unusable
from koordinator.scheduler.plugins.load_aware.pod_load import AssignedPod, Share, total
from koordinator.scheduler.plugins.load_aware.settings import LONGEST_WINDOW, AggregatedKey, Settings, Vector

_DEFAULT_REPORT_SECONDS: Final = 60.0
_CLOCKS_DIFFER_BY: Final = 60.0
"""Seconds that a node's clock may be ahead without a word."""
_FAULTS_NAMED: Final = 5
"""Of a NodeMetric: where the first fields are not usable, so are many, for the same reason."""


@dataclass(frozen=True, slots=True)
class Report:
    """A NodeMetric, as vectors. Times are in seconds since the epoch."""

    updated: float
    """The node's own time of the report; 0 when it never reported."""
    expires_from: float | None
    """The time from which the age of this report is counted; None without one."""
    interval: float
    measured: bool
    """Whether status.nodeMetric is set at all, and says how much the node uses."""
    usage: Vector
    system: Vector
    aggregated: dict[AggregatedKey, Vector]
    pods: dict[str, Vector]
    prod_pods: frozenset[str]
    faults: tuple[str, ...] = ()
    """What of the NodeMetric is not usable, field by field."""


@dataclass(slots=True)
class NodeLoad:
    """One node. What its pods add to the load follows from its report, so another one changes it for all of them."""

    width: int
    """The number of resources."""
    metric: Report | None = None
    pods: dict[str, AssignedPod] = field(default_factory=dict)

    def assign(self, uid: str, pod: AssignedPod) -> Share | None:
        """Count the pod, in place of its previous state; returns what the pods add to the load more than before, None
        for nothing."""
        before = self.pods.get(uid)
        self.pods[uid] = pod
        if self.metric is None or (before is not None and self._count_alike(before, pod)):
            return None
        share = self.share_of(pod)
        return share if before is None else share.without(self.share_of(before))

    def remove(self, uid: str) -> Share | None:
        """Stop counting the pod; returns what it has added to the load, None for nothing."""
        pod = self.pods.pop(uid, None)
        return self.share_of(pod) if pod is not None and self.metric is not None else None

    def sums(self) -> Share:
        """What all pods together add to the load."""
        return total(map(self.share_of, self.pods.values()), self.width)

    def share_of(self, pod: AssignedPod) -> Share:
        """What the pod adds to the load: nothing while the node has not reported."""
        metric, expected = self.metric, pod.expected
        if metric is None:
            return total((), self.width)
        usage = metric.pods.get(pod.key)
        if usage is None:
            return expected.share
        nothing = (0,) * self.width
        active = expected.prod and pod.key in metric.prod_pods
        prod_usage = usage if active else nothing
        estimate = expected.amounts
        if not any(estimate):
            return Share(prod_usage, nothing, nothing, nothing)
        excess = tuple([max(0, most - used) for most, used in zip(estimate, usage, strict=True)])
        counts = _is_expected(pod, metric)
        node_delta, prod_delta = excess if counts else nothing, nothing
        if expected.prod and not active:
            prod_delta = estimate
        elif expected.prod and counts:
            prod_delta = excess
        return Share(prod_usage, node_delta, prod_delta, estimate)

    def _count_alike(self, one: AssignedPod, other: AssignedPod) -> bool:
        """Whether both add the same. A confirmed binding seldom changes more than the time."""
        # Mostly the very same object, which is compared many times as fast.
        if one.key != other.key or (one.expected is not other.expected and one.expected != other.expected):
            return False
        metric = self.metric
        return metric is None or one.key not in metric.pods or _is_expected(one, metric) == _is_expected(other, metric)


def _is_expected(pod: AssignedPod, metric: Report) -> bool:
    """Whether the estimate counts although the pod has been measured: the report cannot contain all of its usage
    yet."""
    return metric.updated - metric.interval < pod.assigned_at or pod.estimated_until > metric.updated


def read_report(metric: NodeMetric, settings: Settings, before: Report | None, now: float) -> Report:
    """A NodeMetric in vectors; one without an update time keeps that of the report before it.

    A usage below zero says nothing, and is taken for one that was not reported; one beyond all bounds counts as the
    largest. ``now``: no report is from the time after it; 0 if it is unknown."""
    status, policy = metric.status, metric.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy else None
    info = status.node_metric
    system = info.system_usage.resources if info is not None and settings.prod_includes_system else {}
    faults = [*_ahead(status.update_time, now), *_unusable(metric, settings)]
    reported_at = status.update_time.timestamp() if status.update_time else None
    if reported_at is not None and now:
        reported_at = min(reported_at, now)
    updated = reported_at if reported_at is not None else before.updated if before else 0.0
    measured = {
        f"{pod.namespace}/{pod.name}": (settings.amounts(pod.pod_usage.resources), pod.priority)
        for pod in status.pods_metric
        if pod.pod_usage.resources and not is_below_zero(pod.pod_usage.resources)
    }
    return Report(
        updated=updated,
        expires_from=reported_at,
        interval=float(max(interval, 0)) if interval is not None else _DEFAULT_REPORT_SECONDS,
        measured=info is not None and not any(map(is_below_zero, (info.node_usage.resources, system))),
        usage=settings.amounts(info.node_usage.resources if info else {}),
        system=settings.amounts(system),
        aggregated=_aggregated(metric, settings),
        pods={key: usage for key, (usage, _) in measured.items()},
        prod_pods=frozenset(key for key, (_, priority) in measured.items() if priority == PriorityClass.PROD.value),
        faults=tuple(faults),
    )


def _aggregated(metric: NodeMetric, settings: Settings) -> dict[AggregatedKey, Vector]:
    found: dict[AggregatedKey, Vector] = {}
    info = metric.status.node_metric
    for entry in sorted(info.aggregated_node_usages if info else [], key=lambda each: each.duration):
        for aggregation, usage in entry.usage.items():
            if usage.resources and not is_below_zero(usage.resources):
                vector = settings.amounts(usage.resources)
                found[aggregation, entry.duration] = vector
                found[aggregation, LONGEST_WINDOW] = vector
    return found


def _ahead(updated: datetime | None, now: float) -> list[str]:
    if updated is None or not now or updated.timestamp() - now <= _CLOCKS_DIFFER_BY:
        return []
    at = format_micro_time(datetime.fromtimestamp(now, UTC))
    return [f"status.updateTime: {format_micro_time(updated)} is yet to come: it counts as {at}, when it was read"]


def _unusable(metric: NodeMetric, settings: Settings) -> list[str]:
    status, info = metric.status, metric.status.node_metric
    found: list[str] = []

    def look(resources: ResourceList, field: str, *places: object) -> None:
        # There are thousands of reports a minute, and hardly any has a fault.
        if not are_plain(resources):
            counting = {name: resources[name] for name in settings.resources if name in resources}
            found.extend(unusable(counting, field.format(*places)))

    if info is not None:
        look(info.node_usage.resources, "status.nodeMetric.nodeUsage.resources")
        if settings.prod_includes_system:
            look(info.system_usage.resources, "status.nodeMetric.systemUsage.resources")
        for index, entry in enumerate(info.aggregated_node_usages):
            for aggregation, usage in entry.usage.items():
                field = "status.nodeMetric.aggregatedNodeUsages[{}].usage.{}.resources"
                look(usage.resources, field, index, aggregation)
    for index, pod in enumerate(status.pods_metric):
        look(pod.pod_usage.resources, "status.podsMetric[{}].podUsage.resources", index)
    return found[:_FAULTS_NAMED]
