"""What overcommitment needs to know of a NodeMetric, worked out once for each report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from koordinator.api.nodemetric import HostApplicationMetricInfo, NodeMetric, NodeMetricStatus
from koordinator.api.priority import DEFAULT_PRIORITIES, PriorityClass, priority_class_of_name
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.model.overcommit.amounts import NOTHING, Amounts, cpu_and_memory, usage_of
from koordinator.model.overcommit.pod_facts import LOW_PRIORITIES

_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_LOW_NAMES: Final = frozenset(each.value for each in LOW_PRIORITIES)


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """One report of a node's agent."""

    update_time: datetime | None = None
    has_usage: bool = False
    """Whether the report has readings of the node at all."""
    node_usage: Amounts | None = None
    """None when CPU or memory is missing."""
    system_usage: Amounts = NOTHING
    """Of what runs beside pods and host applications."""
    hosts_above_batch: Amounts = NOTHING
    """Usage of the host applications of a class above batch."""
    hosts_above_mid: Amounts = NOTHING
    pods: Mapping[tuple[str, str], Amounts] = field(default_factory=dict)
    """Namespace and name -> usage."""
    high_pods: tuple[tuple[str, str], ...] = ()
    """The pods that are of no low class by the report itself."""
    prod_reclaimable: Amounts = NOTHING
    has_negative: bool = False
    """Whether some reading is below zero."""
    fingerprint: int = 0
    """Equal for reports with equal readings; within one process only."""


def metric_facts(metric: NodeMetric) -> MetricFacts:
    status = metric.status
    info = status.node_metric
    node = {} if info is None else info.node_usage.resources
    system = {} if info is None else info.system_usage.resources
    pods = {(each.namespace, each.name): usage_of(each.pod_usage.resources) for each in status.pods_metric}
    priorities = {(each.namespace, each.name): each.priority for each in status.pods_metric}
    hosts = status.host_application_metric
    reclaimable = status.prod_reclaimable_metric
    return MetricFacts(
        update_time=_in_calendar(status.update_time),
        has_usage=info is not None,
        node_usage=usage_of(node) if CPU in node and MEMORY in node else None,
        system_usage=usage_of(system),
        hosts_above_batch=_hosts_above(hosts, PriorityClass.BATCH),
        hosts_above_mid=_hosts_above(hosts, PriorityClass.MID),
        pods=pods,
        high_pods=tuple([key for key, priority in priorities.items() if priority not in _LOW_NAMES]),
        prod_reclaimable=NOTHING if reclaimable is None else cpu_and_memory(reclaimable.resource.resources),
        has_negative=any(quantity.nanos < 0 for quantity in _readings(status)),
        fingerprint=hash(
            (cpu_and_memory(node), cpu_and_memory(system), tuple(pods.items()), tuple(_percentiles(status)))
        ),
    )


def _in_calendar(time: datetime | None) -> datetime | None:
    """In UTC, and so far from the ends of the calendar that a century can be added to it, whatever a report says."""
    return None if time is None else min(max(time, _FIRST), _LAST).astimezone(UTC)


def _hosts_above(hosts: Iterable[HostApplicationMetricInfo], tier: PriorityClass) -> Amounts:
    total = NOTHING
    for host in hosts:
        if DEFAULT_PRIORITIES[priority_class_of_name(host.priority)] > DEFAULT_PRIORITIES[tier]:
            total = total.plus(usage_of(host.usage.resources))
    return total


def _percentiles(status: NodeMetricStatus) -> Iterator[Amounts]:
    """Several windows and ranks: where all of them agree as well, nothing has been measured."""
    for window in [] if status.node_metric is None else status.node_metric.aggregated_node_usages:
        yield from (cpu_and_memory(usage.resources) for usage in window.usage.values())


def _readings(status: NodeMetricStatus) -> Iterator[Quantity]:
    maps = [each.pod_usage for each in status.pods_metric]
    maps += [each.usage for each in status.host_application_metric]
    if status.node_metric is not None:
        maps += [status.node_metric.node_usage, status.node_metric.system_usage]
    for each in maps:
        yield from (quantity for name, quantity in each.resources.items() if name in (CPU, MEMORY))
