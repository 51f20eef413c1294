"""What nodes and their pods use, as columns: nodes x resources, from the NodeMetrics of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, PodMetricInfo
from koordinator.api.pod import Pod, ResourceList
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.descheduler.framework import Snapshot
from koordinator.descheduler.pod_facts import is_leaving
from koordinator.descheduler.requests import amount
from koordinator.model.huge_pages import huge_page_pool, without_pool
from koordinator.model.raw_allocatable import raw_allocatable

Ints = npt.NDArray[np.int64]
NANOS_OF_MILLI: Final = 10**6
MOST: Final = 2**53
"""In units of the usage columns, beyond what any node has or uses: 9 million cores, 9 PB. It is what float64, in which
thresholds are computed, holds exactly; sums over a thousand such nodes still fit in 64 bits."""


def scale(name: str) -> int:
    """Usage is held in nano-CPU, since it is compared exactly, and thresholds are in whole milli-CPU; all else is in
    whole units."""
    return NANOS_OF_MILLI if name == CPU else 1


def scaled(name: str, quantity: Quantity) -> int:
    """In the unit of the usage columns."""
    return bounded(quantity.nanos if name == CPU else quantity.value)


def bounded(used: int) -> int:
    """What one object says beyond all reason must not make the columns of all others overflow; nothing uses less than
    nothing."""
    return max(0, min(used, MOST))


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """``resources`` names the columns; the last one is ``pods``. Rows are the nodes that have been measured."""

    resources: Sequence[str]
    nodes: Sequence[Node]
    usage: Ints
    """Nodes x resources: of the system and all pods, scaled."""
    prod_usage: Ints
    """Of the pods of class prod alone."""
    leaving: Ints
    """Nodes x resources: the part of ``usage`` that terminating pods are about to give back, and that pods have given
    back that have gone since the report."""
    prod_leaving: Ints
    allocatable: Ints
    """Nodes x resources, in milli-CPU and whole units, before amplification."""
    pods: Sequence[Sequence[Pod]]
    prod_pods: Sequence[Sequence[Pod]]
    metrics: Sequence[NodeMetric]
    unmeasured: Mapping[str, str]
    """Node -> why it counts neither as hot nor as a target."""

    @property
    def scales(self) -> Ints:
        return np.array([scale(name) for name in self.resources], dtype=np.int64)

    def pod_usages(self, row: int) -> Mapping[tuple[str, str], ResourceList]:
        """Namespace and name -> usage, of the pods that the node has reported."""
        reported = self.metrics[row].status.pods_metric
        return {(each.namespace, each.name): each.pod_usage.resources for each in reported}

    def vector(self, usage: ResourceList) -> Ints:
        """The usage of one pod as a row; it is one pod."""
        amounts = [scaled(name, usage[name]) if name in usage else 0 for name in self.resources]
        amounts[-1] = 1
        return np.array(amounts, dtype=np.int64)

    def percentages(self, row: int, used: Ints) -> dict[str, float]:
        """Of the allocatable amount, of nodes x resources such as ``usage``; a resource that the node does not have
        is 0."""
        found = {}
        for column, name in enumerate(self.resources):
            factor = scale(name)
            milli = 1 if factor > 1 else 1000
            total = int(self.allocatable[row, column]) * milli
            found[name] = 100 * float(-(-int(used[row, column]) // factor) * milli) / float(total) if total else 0.0
        return found


def measure(snapshot: Snapshot, nodes: Sequence[Node], names: Sequence[str], expiration: timedelta) -> LoadColumns:
    """The columns of ``names`` for the nodes whose NodeMetric is not older than ``expiration``."""
    resources = (*(name for name in names if name != PODS), PODS)
    unmeasured: dict[str, str] = {}
    measured: list[tuple[Node, NodeMetric]] = []
    for node in nodes:
        metric = snapshot.node_metrics.get(node.metadata.name)
        lack = _lack(metric, snapshot, expiration)
        if metric is None or lack:
            unmeasured[node.metadata.name] = lack
        else:
            measured.append((node, metric))
    rows = [_Row(snapshot, node, metric, resources) for node, metric in measured]
    shape = (len(rows), len(resources))
    return LoadColumns(
        resources,
        [node for node, _ in measured],
        np.array([row.usage for row in rows], dtype=np.int64).reshape(shape),
        np.array([row.prod_usage for row in rows], dtype=np.int64).reshape(shape),
        np.array([row.leaving for row in rows], dtype=np.int64).reshape(shape),
        np.array([row.prod_leaving for row in rows], dtype=np.int64).reshape(shape),
        np.array([_allocatable(node, resources) for node, _ in measured], dtype=np.int64).reshape(shape),
        [row.pods for row in rows],
        [row.prod_pods for row in rows],
        [metric for _, metric in measured],
        unmeasured,
    )


class _Row:
    """What one node uses."""

    def __init__(self, snapshot: Snapshot, node: Node, metric: NodeMetric, resources: Sequence[str]) -> None:
        self.pods = snapshot.pods_on(node.metadata.name)
        self.prod_pods = [pod for pod in self.pods if priority_class_with_default(pod) is PriorityClass.PROD]
        prod = {_key(pod) for pod in self.prod_pods}
        info = metric.status.node_metric
        system = info.system_usage.resources if info is not None else {}
        reported = [(each, (each.namespace, each.name) in prod) for each in metric.status.pods_metric]
        leaving = {_key(pod) for pod in self.pods if is_leaving(pod, snapshot.now)}
        staying = {_key(pod) for pod in self.pods} - leaving
        going = [(each, is_prod) for each, is_prod in reported if (each.namespace, each.name) not in staying]
        self.usage: list[int] = []
        self.prod_usage: list[int] = []
        self.leaving = [bounded(_used(going, name, prod=False)) for name in resources[:-1]]
        self.prod_leaving = [bounded(_used(going, name, prod=True)) for name in resources[:-1]]
        for name in resources[:-1]:
            total = scaled(name, system[name]) if name in system else 0
            if name == MEMORY:
                # It is compared with the allocatable, which does not contain the pool.
                total = without_pool(total, huge_page_pool(node))
            self.usage.append(bounded(total + _used(reported, name, prod=False)))
            self.prod_usage.append(bounded(_used(reported, name, prod=True)))
        self.usage.append(len(self.pods))
        self.prod_usage.append(len(self.prod_pods))
        self.leaving.append(len(leaving))
        self.prod_leaving.append(len(leaving & prod))


def _used(reported: Sequence[tuple[PodMetricInfo, bool]], name: str, *, prod: bool) -> int:
    """Of one resource by all these pods, or by those of class prod alone."""
    total = 0
    for each, is_prod in reported:
        quantity = each.pod_usage.resources.get(name)
        if quantity is not None and (is_prod or not prod):
            total += scaled(name, quantity)
    return total


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _lack(metric: NodeMetric | None, snapshot: Snapshot, expiration: timedelta) -> str:
    """Why a node counts as not measured; "" when it has been."""
    if metric is None:
        return "it has no NodeMetric"
    if metric.status.node_metric is None or metric.status.update_time is None:
        return "its NodeMetric has not been reported yet"
    age = snapshot.now - metric.status.update_time
    if age <= -expiration:
        # Taken for fresh, it would count for as long as the clock of its node was ahead, whether koordlet runs or not.
        return f"its NodeMetric is {-age.total_seconds():.0f}s ahead of the clock here"
    return f"its NodeMetric is {age.total_seconds():.0f}s old" if age >= expiration else ""


def _allocatable(node: Node, resources: Sequence[str]) -> list[int]:
    allocatable = raw_allocatable(node)
    return [
        min(max(amount(name, allocatable[name]), 0), MOST // scale(name)) if name in allocatable else 0
        for name in resources
    ]
