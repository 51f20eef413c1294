"""What is known of one node's load: its last report, the pods assigned to it, and what those add to the report.

A report lags behind: a pod that was assigned after it, or so shortly before that its usage cannot be in it yet, counts
with what it is expected to use. (Original: podAssignCache of LoadAwareScheduling.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordinator.api.nodemetric import NodeMetric
from koordinator.api.priority import PriorityClass
from koordinator.scheduler.plugins.load_aware.settings import LONGEST_WINDOW, AggregatedKey, Settings, Vector

_DEFAULT_REPORT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """A NodeMetric, as vectors. Times are in seconds since the epoch."""

    updated: float
    """When the node last said when it reported; 0 when it never did."""
    expires_from: float | None
    """What the age of this report is counted from; None when it does not say."""
    interval: float
    measured: bool
    """Whether status.nodeMetric is there at all."""
    usage: Vector
    system: Vector
    aggregated: dict[AggregatedKey, Vector]
    pods: dict[str, Vector]
    prod_pods: frozenset[str]


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod on the node. Times are in seconds since the epoch."""

    key: str
    prod: bool
    assigned_at: float
    estimated_until: float
    """Until when the estimate counts although the pod has been measured; 0 when it never does."""
    estimate: Vector | None


@dataclass(slots=True)
class Sums:
    """What the assigned pods add up to, by resource."""

    prod_usage: list[int]
    node_delta: list[int]
    prod_delta: list[int]
    estimated: list[int]


@dataclass(slots=True)
class NodeLoad:
    """One node; ``sums`` are kept by ``assign`` and ``remove`` and built anew by ``report``."""

    width: int
    metric: Report | None = None
    pods: dict[str, AssignedPod] = field(default_factory=dict)
    sums: Sums = field(init=False)

    def __post_init__(self) -> None:
        self.sums = self._zeros()

    def report(self, metric: Report | None) -> None:
        """The node has reported, or its NodeMetric is gone."""
        self.metric = metric
        self.sums = self._zeros()
        for pod in self.pods.values():
            self._add(pod, 1)

    def assign(self, uid: str, pod: AssignedPod) -> bool:
        """Count the pod, in the place of what was known of it; returns whether any sum may have changed."""
        before = self.pods.get(uid)
        self.pods[uid] = pod
        if before is not None:
            if self._count_alike(before, pod):
                return False
            self._add(before, -1)
        self._add(pod, 1)
        return True

    def remove(self, uid: str) -> bool:
        """Count the pod no longer; returns whether it was counted."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return False
        self._add(pod, -1)
        return True

    def _add(self, pod: AssignedPod, sign: int) -> None:
        metric = self.metric
        if metric is None:
            return
        usage = metric.pods.get(pod.key)
        active = pod.prod and pod.key in metric.prod_pods
        sums = self.sums
        if active and usage is not None:
            _accumulate(sums.prod_usage, usage, sign)
        if pod.estimate is None:
            return
        force = usage is None or _is_expected(pod, metric)
        if force:
            _accumulate(sums.node_delta, _excess(pod.estimate, usage), sign)
        _accumulate(sums.estimated, pod.estimate, sign)
        if pod.prod and (force or (usage is not None and not active)):
            _accumulate(sums.prod_delta, _excess(pod.estimate, usage if active else None), sign)

    def _count_alike(self, one: AssignedPod, other: AssignedPod) -> bool:
        """Whether both add the same. A confirmed binding seldom changes more than the moment."""
        if one.key != other.key or one.prod != other.prod or one.estimate != other.estimate:
            return False
        metric = self.metric
        return metric is None or one.key not in metric.pods or _is_expected(one, metric) == _is_expected(other, metric)

    def _zeros(self) -> Sums:
        return Sums([0] * self.width, [0] * self.width, [0] * self.width, [0] * self.width)


def _is_expected(pod: AssignedPod, metric: Report) -> bool:
    """Whether the estimate counts although the pod has been measured: its usage cannot be all in the report yet."""
    return metric.updated - metric.interval < pod.assigned_at or pod.estimated_until > metric.updated


def read_report(metric: NodeMetric, settings: Settings, before: Report | None) -> Report:
    """A NodeMetric in vectors; one without an update time keeps that of the report before it."""
    status, policy = metric.status, metric.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy else None
    info = status.node_metric
    told = status.update_time.timestamp() if status.update_time else None
    updated = told if told is not None else before.updated if before else 0.0
    measured = {
        f"{pod.namespace}/{pod.name}": (settings.amounts(pod.pod_usage.resources), pod.priority)
        for pod in status.pods_metric
        if pod.pod_usage.resources
    }
    return Report(
        updated=updated,
        expires_from=told,
        interval=float(interval) if interval is not None else _DEFAULT_REPORT_SECONDS,
        measured=info is not None,
        usage=settings.amounts(info.node_usage.resources if info else {}),
        system=settings.amounts(info.system_usage.resources if info else {}),
        aggregated=_aggregated(metric, settings),
        pods={key: usage for key, (usage, _) in measured.items()},
        prod_pods=frozenset(key for key, (_, priority) in measured.items() if priority == PriorityClass.PROD.value),
    )


def _aggregated(metric: NodeMetric, settings: Settings) -> dict[AggregatedKey, Vector]:
    found: dict[AggregatedKey, Vector] = {}
    info = metric.status.node_metric
    for entry in sorted(info.aggregated_node_usages if info else [], key=lambda each: each.duration):
        for aggregation, usage in entry.usage.items():
            if usage.resources:
                vector = settings.amounts(usage.resources)
                found[aggregation, entry.duration] = vector
                found[aggregation, LONGEST_WINDOW] = vector
    return found


def _accumulate(total: list[int], vector: Sequence[int], sign: int) -> None:
    for index, amount in enumerate(vector):
        total[index] += sign * amount


def _excess(estimate: Vector, usage: Vector | None) -> Vector:
    if usage is None:
        return estimate
    return tuple([max(0, expected - used) for expected, used in zip(estimate, usage, strict=True)])
