"""What nodes and their pods use, as columns: nodes x resources, from the NodeMetrics of a snapshot."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np

from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, PodMetricInfo
from koordinator.api.pod import Pod, ResourceList
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.descheduler.framework import Snapshot
from koordinator.descheduler.plugins.low_node_load.expected_usage import (
    Contingencies,
    Ints,
    PodKey,
    Raise,
    expected_name,
    expected_raises,
    is_expected,
    measured_name,
    pod_key,
)
from koordinator.descheduler.pod_facts import is_leaving
from koordinator.descheduler.requests import amount
from koordinator.model.huge_pages import huge_page_pool, without_pool
from koordinator.model.raw_allocatable import raw_allocatable

NANOS_OF_MILLI: Final = 10**6
MOST: Final = 2**53
"""In units of the usage columns, beyond what any node has or uses: 9 million cores, 9 PB. It is what float64, in which
thresholds are computed, holds exactly; sums over a thousand such nodes still fit in 64 bits."""


def scale(name: str) -> int:
    """Usage is held in nano-CPU, since it is compared exactly, and thresholds are in whole milli-CPU; all else is in
    whole units."""
    return NANOS_OF_MILLI if measured_name(name) == CPU else 1


def scaled(name: str, quantity: Quantity) -> int:
    """In the unit of the usage columns, what was measured of a resource."""
    return bounded(quantity.nanos if name == CPU else quantity.value)


def bounded(used: int) -> int:
    """What one object says beyond all reason must not make the columns of all others overflow; nothing uses less than
    nothing."""
    return max(0, min(used, MOST))


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """``resources`` names the columns: those that are measured, those of what is expected, and last ``pods``. Rows are
    the nodes that have been measured."""

    resources: Sequence[str]
    nodes: Sequence[Node]
    usage: Ints
    """Nodes x resources: of the system and all pods, scaled."""
    prod_usage: Ints
    """Of the pods of class prod alone; what is expected is of all, here too."""
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
    raises: Sequence[Mapping[PodKey, Raise]]
    """Of pods of which more is expected than was measured."""
    contingencies: Sequence[Contingencies]
    """The part of ``usage`` that is expected and not measured."""

    @property
    def scales(self) -> Ints:
        return np.array([scale(name) for name in self.resources], dtype=np.int64)

    def pod_usages(self, row: int) -> Mapping[PodKey, ResourceList]:
        """Namespace and name -> usage, of the pods that the node has reported."""
        reported = self.metrics[row].status.pods_metric
        return {(each.namespace, each.name): each.pod_usage.resources for each in reported}

    def vector(self, usage: ResourceList) -> Ints:
        """The usage of one pod as a row; it is one pod. What is expected is no more than what was measured."""
        named = [(name, usage.get(measured_name(name))) for name in self.resources]
        amounts = [scaled(measured_name(name), used) if used is not None else 0 for name, used in named]
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


def measure(
    snapshot: Snapshot, nodes: Sequence[Node], names: Sequence[str], expiration: timedelta, expected: Sequence[str] = ()
) -> LoadColumns:
    """The columns of ``names``, and of what is ``expected`` of these resources, for the nodes whose NodeMetric is not
    older than ``expiration``."""
    resources = (*(name for name in names if name != PODS), *map(expected_name, expected), PODS)
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
        [row.raises for row in rows],
        [row.contingencies for row in rows],
    )


class _Row:
    """What one node uses."""

    def __init__(self, snapshot: Snapshot, node: Node, metric: NodeMetric, resources: Sequence[str]) -> None:
        self.pods = snapshot.pods_on(node.metadata.name)
        self.prod_pods = [pod for pod in self.pods if priority_class_with_default(pod) is PriorityClass.PROD]
        prod = {pod_key(pod) for pod in self.prod_pods}
        info = metric.status.node_metric
        system = info.system_usage.resources if info is not None else {}
        reported = [(each, (each.namespace, each.name) in prod) for each in metric.status.pods_metric]
        leaving = {pod_key(pod) for pod in self.pods if is_leaving(pod, snapshot.now)}
        staying = {pod_key(pod) for pod in self.pods} - leaving
        going = [(each, is_prod) for each, is_prod in reported if (each.namespace, each.name) not in staying]
        measured = [name for name in resources[:-1] if not is_expected(name)]
        self.usage: list[int] = []
        self.prod_usage: list[int] = []
        self.leaving = [bounded(_used(going, name, prod=False)) for name in measured]
        self.prod_leaving = [bounded(_used(going, name, prod=True)) for name in measured]
        for name in measured:
            total = scaled(name, system[name]) if name in system else 0
            if name == MEMORY:
                # It is compared with the allocatable, which does not contain the pool.
                total = without_pool(total, huge_page_pool(node))
            self.usage.append(bounded(total + _used(reported, name, prod=False)))
            self.prod_usage.append(bounded(_used(reported, name, prod=True)))
        self._expect(snapshot, metric, resources, staying)
        self.usage.append(len(self.pods))
        self.prod_usage.append(len(self.prod_pods))
        self.leaving.append(len(leaving))
        self.prod_leaving.append(len(leaving & prod))

    def _expect(
        self, snapshot: Snapshot, metric: NodeMetric, resources: Sequence[str], staying: Container[PodKey]
    ) -> None:
        """Add the columns of what is expected. Of pods that are leaving nothing more is."""
        self.raises: Mapping[PodKey, Raise] = {}
        expected = [(column, name) for column, name in enumerate(resources) if is_expected(name)]
        if expected:
            measured = {(each.namespace, each.name): each.pod_usage.resources for each in metric.status.pods_metric}
            pods = [pod for pod in self.pods if pod_key(pod) in staying]
            self.raises = expected_raises(measured, pods, snapshot.recommendations, snapshot.now)
        more = {key: (each.source, _more(each, resources)) for key, each in self.raises.items()}
        self.contingencies = Contingencies(more, len(resources))
        for column, name in expected:
            of_measured = resources.index(measured_name(name))
            amount = bounded(self.usage[of_measured] + int(self.contingencies.most[column]))
            self.usage.append(amount)
            self.prod_usage.append(amount)
            self.leaving.append(self.leaving[of_measured])
            self.prod_leaving.append(self.leaving[of_measured])


def _more(raised: Raise, resources: Sequence[str]) -> Ints:
    """What is expected of a pod beyond what was measured, in the columns for that."""
    expected = {expected_name(name): scaled(name, quantity) for name, quantity in raised.more.items()}
    return np.array([expected.get(name, 0) for name in resources], dtype=np.int64)


def _used(reported: Sequence[tuple[PodMetricInfo, bool]], name: str, *, prod: bool) -> int:
    """Of one resource by all these pods, or by those of class prod alone."""
    total = 0
    for each, is_prod in reported:
        quantity = each.pod_usage.resources.get(name)
        if quantity is not None and (is_prod or not prod):
            total += scaled(name, quantity)
    return total


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
        for name in map(measured_name, resources)
    ]
