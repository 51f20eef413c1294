"""Which pods leave the hot nodes of a pool, as long as the others have free capacity for their usage.

Stage A relieves nodes that are hot as a whole, stage B those on which the pods of class prod use too much. The free
capacity is counted twice: as the sum over all targets, which stops a stage, and, with node fit, on one target for each
pod: the usage of every candidate is booked there, and the requests of those that are evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koordinator.api.pod import Pod, ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU
from koordinator.descheduler.framework import Eviction, Plan, Remark, Snapshot
from koordinator.descheduler.node_fit import TargetNodes
from koordinator.descheduler.plugins.low_node_load.expected_usage import (
    Ints,
    PodKey,
    is_expected,
    measured_name,
    pod_key,
    raised_text,
)
from koordinator.descheduler.plugins.low_node_load.load_columns import LoadColumns
from koordinator.descheduler.plugins.low_node_load.thresholds import Groups, Mask, Percentages, Thresholds
from koordinator.descheduler.pod_facts import eviction_order
from koordinator.descheduler.requests import amount
from koordinator.model.pod_requests import pod_requests

_ANYWHERE: Final = -1
OnRelieved = Callable[[int], None]
"""Called with the row of a node that is not over its thresholds any more."""


@dataclass(frozen=True, slots=True)
class Rules:
    dry_run: bool
    node_fit: bool
    weights: Mapping[str, int]
    allow: Callable[[Pod], bool]


class _Stage:
    """One way to look at nodes: as a whole, or by their pods of class prod."""

    def __init__(
        self,
        prod: bool,
        columns: LoadColumns,
        thresholds: Thresholds,
        high: Mapping[str, float],
        targets: Sequence[int],
        order: Sequence[int],
        limited: Sequence[int],
    ) -> None:
        self.prod = prod
        self.high = high
        self.usage = columns.prod_usage if prod else columns.usage
        self.limits = thresholds.prod_high if prod else thresholds.high
        self.pods = columns.prod_pods if prod else columns.pods
        self.order = np.array(order, dtype=np.intp)
        """Which of the pool's targets are this stage's, in the order in which they are tried."""
        rows = list(targets)
        self._headroom = {column: self.limits[rows, column] - self.usage[rows, column] for column in limited}
        """Resource -> targets: what each can take before it is over its own thresholds."""

    def first_fit(self, fitting: Mask, needed: Ints) -> int | None:
        """The first target that fits a pod and can take what it uses; that is booked there. ``fitting`` is by the
        pool's targets."""
        fits = fitting[self.order]
        for column, headroom in self._headroom.items():
            fits &= headroom >= needed[column]
        first = int(fits.argmax()) if len(fits) else 0
        if not len(fits) or not fits[first]:
            return None
        for column, headroom in self._headroom.items():
            headroom[first] -= needed[column]
        return first


class PoolBalance:
    """The evictions of one pool in one cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: LoadColumns,
        thresholds: Thresholds,
        percentages: Percentages,
        groups: Groups,
        rules: Rules,
    ) -> None:
        self._columns = columns
        self._rules = rules
        self._groups = groups
        self._thresholds = thresholds
        limited_names = percentages.low.keys() | percentages.expected_high.keys()
        self._limited = np.array([name in limited_names for name in columns.resources], dtype=np.bool_)
        targets = [*groups.low, *groups.both_low, *groups.prod_low]
        self._target_nodes = TargetNodes(snapshot, [columns.nodes[row] for row in targets]) if rules.node_fit else None
        low, both, prod_low = len(groups.low), len(groups.both_low), len(groups.prod_low)
        both_indices = range(low, low + both)
        limited = [int(column) for column in np.flatnonzero(self._limited)]
        self._node_stage = _Stage(
            False,
            columns,
            thresholds,
            percentages.all_high,
            (*groups.low, *groups.both_low),
            range(low + both),
            limited,
        )
        self._prod_stage = _Stage(
            True,
            columns,
            thresholds,
            percentages.prod_high,
            (*groups.prod_low, *groups.both_low),
            (*range(low + both, low + both + prod_low), *both_indices),
            limited,
        )

    def run(
        self, abnormal: Sequence[int], abnormal_prod: Sequence[int], relieved: OnRelieved, relieved_prod: OnRelieved
    ) -> Plan:
        """Evictions from the rows that have been hot for long enough."""
        for row in {*abnormal, *abnormal_prod}:
            self._columns.usage[row] -= self._columns.leaving[row]
            self._columns.prod_usage[row] -= self._columns.prod_leaving[row]
        both = self._groups.both_low
        low = self._capacity(self._groups.low, prod=False)
        both_capacity = self._capacity(both, prod=False)
        prod_capacity = self._capacity(self._groups.prod_low, prod=True)
        both_prod_capacity = self._capacity(both, prod=True)
        available = low + both_capacity
        yield from self._relieve(self._node_stage, self._by_load(abnormal, prod=False), available, relieved)
        # Nodes that are low in both ways have taken part in stage A: only what it has left of their capacity is free.
        left = np.minimum(both_capacity, available)
        available = prod_capacity + np.minimum(both_prod_capacity, left)
        yield from self._relieve(self._prod_stage, self._by_load(abnormal_prod, prod=True), available, relieved_prod)

    def _capacity(self, rows: Sequence[int], *, prod: bool) -> Ints:
        """Resources: the sum of what the rows can take; 0 for resources without thresholds."""
        limits = self._thresholds.prod_high if prod else self._thresholds.high
        usage = self._columns.prod_usage if prod else self._columns.usage
        chosen = list(rows)
        free = np.where(self._limited, limits[chosen] - usage[chosen], 0)
        total: Ints = free.sum(axis=0, dtype=np.int64)
        return total

    def _by_load(self, rows: Sequence[int], *, prod: bool) -> list[int]:
        """The most loaded first: weighted thousandths of what is allocatable."""
        columns = self._columns
        usage = columns.prod_usage if prod else columns.usage
        weights = [self._rules.weights.get(name, 0) for name in columns.resources]
        total = sum(weights)

        def score(row: int) -> int:
            if not total:
                return 0
            found = 0
            for column, weight in enumerate(weights):
                allocatable = int(columns.allocatable[row, column])
                used = -(-int(usage[row, column]) // int(columns.scales[column]))
                found += (min(used, allocatable) * 1000 // allocatable if allocatable else 0) * weight
            return found // total

        return sorted(rows, key=lambda row: -score(row))

    def _relieve(self, stage: _Stage, sources: Sequence[int], available: Ints, relieved: OnRelieved) -> Plan:
        if not len(stage.order):
            return
        for row in sources:
            name = self._columns.nodes[row].metadata.name
            usages = self._columns.pod_usages(row)
            candidates = [pod for pod in stage.pods[row] if self._rules.allow(pod)]
            ordered = self._ordered(stage, row, candidates, usages)
            targets = [(pod, self._target(stage, row, pod, usages)) for pod in ordered]
            removable = [(pod, target) for pod, target in targets if target is not None]
            yield Remark(f"node {name}: {len(removable)} of {len(stage.pods[row])} pods can be removed")
            yield from self._evict(stage, row, removable, usages, available, relieved)

    def _target(self, stage: _Stage, row: int, pod: Pod, usages: Mapping[PodKey, ResourceList]) -> int | None:
        """The first target that fits the pod; what the pod uses, and is expected to use, is booked there, whether it is
        evicted or not. Without node fit, any."""
        if self._target_nodes is None:
            return _ANYWHERE
        usage = usages.get(pod_key(pod))
        if usage is None:
            return None
        needed = self._columns.vector(usage) + self._columns.contingencies[row].of(pod_key(pod))
        needed[-1] = 0  # the number of pods is the business of node fit
        return stage.first_fit(self._target_nodes.fitting(pod), needed)

    def _still_fits(self, stage: _Stage, pod: Pod, target: int) -> int | None:
        """Where the requests of the pod fit beside those of the pods that have been evicted so far; at best, where
        they did before."""
        if self._target_nodes is None:
            return _ANYWHERE
        fits = self._target_nodes.fitting(pod)[stage.order]
        found = target if fits[target] else int(fits.argmax())
        return found if fits[found] else None

    def _ordered(
        self, stage: _Stage, row: int, pods: Sequence[Pod], usages: Mapping[PodKey, ResourceList]
    ) -> list[Pod]:
        """The least important first; of equals, the one that just relieves the node of what it is over by."""
        columns = self._columns
        beyond = stage.usage[row] - stage.limits[row]
        excess = {
            name: -(-int(beyond[column]) // int(columns.scales[column]))
            for column, name in enumerate(columns.resources)
            if beyond[column] > 0
        }

        def key(pod: Pod) -> tuple[object, ...]:
            usage = usages.get(pod_key(pod))
            score = 0.0 if usage is None else _cover(self._relief(row, pod, usage), excess, self._rules.weights)
            return eviction_order(pod, usage is None, -score)

        return sorted(pods, key=key)

    def _relief(self, row: int, pod: Pod, usage: ResourceList) -> ResourceList:
        """What of the usage of the node goes with the pod."""
        resources = self._columns.resources
        if not any(map(is_expected, resources)):
            return usage
        less = self._columns.vector(usage) + self._columns.contingencies[row].relief(pod_key(pod))
        units = (1 if measured_name(name) == CPU else 10**9 for name in resources)
        named = zip(resources, less.tolist(), units, strict=True)
        return {**usage, **{name: Quantity(amount * unit) for name, amount, unit in named if is_expected(name)}}

    def _evict(
        self,
        stage: _Stage,
        row: int,
        removable: Sequence[tuple[Pod, int]],
        usages: Mapping[PodKey, ResourceList],
        available: Ints,
        relieved: OnRelieved,
    ) -> Plan:
        for pod, target in removable:
            if not (stage.usage[row] > stage.limits[row]).any():
                relieved(row)
                return
            if (available[self._limited] <= 0).any():
                return
            place = self._still_fits(stage, pod, target)
            if place is None:
                continue
            key = pod_key(pod)
            usage = usages.get(key)
            reason, raised = self._reason(stage, row), self._columns.raises[row].get(key)
            if raised is not None and usage is not None:
                reason = f"{reason}; {raised_text(usage, raised)}"
            taken = yield Eviction(pod, reason, dry_run=self._rules.dry_run)
            if not taken:
                continue
            if self._target_nodes is not None:
                self._target_nodes.book(pod, int(stage.order[place]))
            contingencies = self._columns.contingencies[row]
            moved = self._columns.vector(_estimated(pod) if usage is None else usage)
            available -= moved + contingencies.of(key)
            self._columns.usage[row] -= moved + contingencies.take(key)
            if stage.prod:
                self._columns.prod_usage[row] -= moved

    def _reason(self, stage: _Stage, row: int) -> str:
        """As the original writes it, since people look for it in events and jobs."""
        percentages = self._columns.percentages(row, stage.usage)
        over = stage.usage[row] > stage.limits[row]
        what = "prod" if stage.prod else "node"
        texts = [
            f"{what} {name} usage({percentages[name]:.2f}%)>threshold({stage.high[name]:.2f}%)"
            for name, is_over in sorted(zip(self._columns.resources, over, strict=True))
            if is_over and name in stage.high
        ]
        return f"node is overutilized, {', '.join(texts)}"


def _estimated(pod: Pod) -> ResourceList:
    """The requests of a pod that has not been measured."""
    return {name: Quantity(nanos) for name, nanos in pod_requests(pod, resized=False).items()}


def _cover(usage: ResourceList, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """How well a pod's usage covers what a node is over by: best (2) when it is just as much, and more than 1 for every
    pod that covers it, less than 1 for those that do not."""
    score, total = 0.0, 0
    for name, quantity in usage.items():
        if name not in excess:
            continue
        weight = weights.get(name, 0)
        total += weight
        if excess[name]:
            ratio = amount(measured_name(name), quantity) / excess[name]
            score += (1 / ratio + 1 if ratio >= 1 else ratio) * weight
    return score / total if total else 0.0
