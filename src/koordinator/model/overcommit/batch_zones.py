"""Batch capacity of each NUMA zone.

Agents report no usage by zone, so what belongs to the node as a whole counts in equal shares, and so does a pod over
the zones that it is bound to. Memory is counted in thousandths of a byte meanwhile, as shares are rounded up to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from koordinator.model.overcommit import explained_sum as names
from koordinator.model.overcommit.amounts import NOTHING, Amounts, share
from koordinator.model.overcommit.batch import BatchTerms, PodSums, batch_cpu, batch_memory, capped, safety_margin
from koordinator.model.overcommit.explained_sum import Addend, ExplainedAmount, bounded
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.overcommit.topology_facts import ZoneFacts

_MILLI: Final = 1000


class ZoneBatch(NamedTuple):
    """What one zone offers."""

    zone: str
    cpu: ExplainedAmount
    memory: ExplainedAmount


def zone_batches(
    node: NodeFacts,
    zones: Sequence[ZoneFacts],
    pods: Iterable[PodFacts],
    metric: MetricFacts,
    policy: CapacityPolicy,
) -> tuple[ZoneBatch, ...]:
    count = len(zones)
    if not count:
        return ()
    sums = _sums_by_zone({zone.numa_node for zone in zones}, pods, metric)
    shares = _node_shares(node, metric, count)
    return tuple(_zone_batch(zone, shares, sums[zone.numa_node], policy, metric.update_time) for zone in zones)


class _NodeShares(NamedTuple):
    """What belongs to the node as a whole, for one zone."""

    system: Amounts
    hosts: Amounts
    reserved: Amounts


def _node_shares(node: NodeFacts, metric: MetricFacts, count: int) -> _NodeShares:
    """System usage and that of host applications are divided together, so that rounding happens once."""
    system = _share(metric.system_usage, count)
    both = _share(metric.system_usage.plus(metric.hosts_above_batch), count)
    hosts = Amounts(both.cpu - system.cpu, both.memory - system.memory)
    return _NodeShares(system, hosts, _share(node.reserved, count))


def _zone_batch(
    zone: ZoneFacts, shares: _NodeShares, pods: PodSums, policy: CapacityPolicy, when: datetime | None
) -> ZoneBatch:
    memory_cap = capped(zone.allocatable.memory, policy.batch_memory_threshold_percent)
    terms = BatchTerms(
        capacity=_exact(zone.allocatable),
        margin=_exact(safety_margin(zone.allocatable, policy)),
        system=shares.system,
        hosts=shares.hosts,
        reserved=shares.reserved,
        pods=pods,
        cpu_cap=capped(zone.allocatable.cpu, policy.batch_cpu_threshold_percent),
        memory_cap=None if memory_cap is None else memory_cap * _MILLI,
    )
    return ZoneBatch(
        zone.name,
        msgspec.structs.replace(batch_cpu(terms, policy, when), zone=zone.name),
        _in_bytes(batch_memory(terms, policy, when), zone.name),
    )


def _sums_by_zone(numa_nodes: set[int], pods: Iterable[PodFacts], metric: MetricFacts) -> Mapping[int, PodSums]:
    """Pods in shares over the zones that they are bound to; those that are bound to none of them, over all."""
    count = len(numa_nodes)
    spread, bound = _Sums(), {number: _Sums() for number in numa_nodes}
    listed: set[tuple[str, str]] = set()
    for pod in pods:
        if not pod.is_counted:
            continue
        listed.add(pod.key)
        if not pod.is_high:
            continue
        usage = metric.pods.get(pod.key)
        places = [number for number in pod.numa_nodes if number in numa_nodes] if pod.numa_nodes else ()
        if not places:
            spread.add(pod, usage, count)
        for number in places:
            bound[number].add(pod, usage, len(places))
    dangling = NOTHING
    for key in metric.high_pods:
        if key not in listed:
            dangling = dangling.plus(_share(metric.pods[key], count))
    return {number: own.with_spread(spread, dangling) for number, own in bound.items()}


class _Sums:
    """``PodSums`` in the making, in plain numbers: this runs for each pod of each node."""

    __slots__ = ("larger_cpu", "larger_memory", "requests", "unmeasured", "used_cpu", "used_memory")

    def __init__(self) -> None:
        self.requests = self.unmeasured = NOTHING
        self.used_cpu = self.used_memory = self.larger_cpu = self.larger_memory = 0

    def add(self, pod: PodFacts, usage: Amounts | None, parts: int) -> None:
        requests = _share(pod.requests, parts)
        self.requests = self.requests.plus(requests)
        if usage is None:
            self.unmeasured = self.unmeasured.plus(requests)
            return
        cpu, memory = _share(usage, parts)
        self.used_cpu += requests.cpu if pod.keeps_cpu else cpu
        self.used_memory += memory
        self.larger_cpu += max(requests.cpu, cpu)
        self.larger_memory += max(requests.memory, memory)

    def with_spread(self, spread: _Sums, dangling: Amounts) -> PodSums:
        return PodSums(
            requests=self.requests.plus(spread.requests),
            used=Amounts(self.used_cpu + spread.used_cpu, self.used_memory + spread.used_memory),
            larger=Amounts(self.larger_cpu + spread.larger_cpu, self.larger_memory + spread.larger_memory),
            unmeasured=self.unmeasured.plus(spread.unmeasured),
            dangling=dangling,
        )


def _share(whole: Amounts, parts: int) -> Amounts:
    return Amounts(share(whole.cpu, parts), share(whole.memory * _MILLI, parts))


def _exact(whole: Amounts) -> Amounts:
    return Amounts(whole.cpu, whole.memory * _MILLI)


def _in_bytes(amount: ExplainedAmount, zone: str) -> ExplainedAmount:
    """The same in bytes, rounded as everybody who reads a fraction of a byte rounds it: up. What rounding the addends
    one by one leaves over is an addend of its own."""
    addends = tuple(Addend(each.name, _up(each.amount)) for each in amount.addends)
    cap = None if amount.cap is None else _up(amount.cap)
    exact = sum(each.amount for each in amount.addends)
    rounding = _up(exact) - sum(each.amount for each in addends)
    if rounding:
        addends = (*addends, Addend(names.ROUNDING, rounding))
    return msgspec.structs.replace(
        amount,
        zone=zone,
        value=bounded(_up(exact), cap),
        addends=addends,
        cap=cap,
        terms={name: _up(term) for name, term in amount.terms.items()},
    )


def _up(millis: int) -> int:
    return -(-millis // _MILLI)
