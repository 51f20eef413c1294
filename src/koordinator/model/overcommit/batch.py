"""Batch capacity of a node and of each of its NUMA zones: what online pods leave idle, minus a safety margin and what
the system needs.

By usage:    capacity - margin - max(system usage, reserved) - usage of pods above batch.
By request:  capacity - margin - reserved - requests of pods above batch.
By maximum:  capacity - margin - max(system usage, reserved) - the larger of usage and request of each such pod.
(Original: pkg/slo-controller/noderesource/plugins/batchresource.)

Agents report no usage by zone. Therefore what belongs to the node as a whole is divided into equal shares for the
zones, and the usage of a pod into equal shares for the zones that it is bound to. Shares of memory are computed in
thousandths of a byte, since they are rounded up to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from koordinator.api.colocation_strategy import (
    CALCULATE_BY_MAX_USAGE_REQUEST,
    CALCULATE_BY_REQUEST,
    CALCULATE_BY_USAGE,
)
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.model.huge_pages import without_pool
from koordinator.model.overcommit import amounts
from koordinator.model.overcommit.amounts import (
    NOTHING,
    Amounts,
    ExplainedAmount,
    Term,
    bounded,
    columns,
    explained,
    fraction,
    scaled,
    share,
    total,
)
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, NodePods, PodFacts, ZoneFacts
from koordinator.model.overcommit.policies import CapacityPolicy

BATCH_RESOURCES: Final = (BATCH_CPU, BATCH_MEMORY)
_MILLI: Final = 1000


class PodSums(NamedTuple):
    """Sums over the pods whose needs take precedence over those of batch pods."""

    requests: Amounts
    """Of all of them."""
    used: Amounts
    """Of those with a metric; for pods that keep their CPU, their request."""
    larger: Amounts
    """Of those with a metric: the larger of usage and request of each."""
    unmeasured: Amounts
    """Requests of those without a metric."""
    dangling: Amounts
    """Usage of those that have a metric and are no longer listed."""


class BatchInputs(NamedTuple):
    """The inputs of a node or of one of its zones."""

    capacity: Amounts
    margin: Amounts
    system: Amounts
    hosts: Amounts
    reserved: Amounts
    pods: PodSums
    cpu_cap: int | None
    memory_cap: int | None


def sum_pods(pods: NodePods, metric: MetricFacts) -> PodSums:
    """In columns, without a step of our own for each pod: this runs for every report of every node."""
    found = [*map(metric.pods.get, pods.high_keys)]
    requested: Sequence[Amounts] = pods.high_requests
    usages, unmeasured = [each for each in found if each is not None], NOTHING
    if len(usages) < len(found):
        unmeasured = total(each for each, usage in zip(requested, found, strict=True) if usage is None)
        requested = [each for each, usage in zip(requested, found, strict=True) if usage is not None]
    (cpu, memory), (requested_cpu, requested_memory) = columns(usages), columns(requested)
    kept = [(pod.requests, metric.pods[pod.key]) for pod in pods.keep_cpu if pod.key in metric.pods]
    unlisted = metric.pods.keys() - pods.listed
    dangling = [metric.pods[key] for key in metric.high_pods if key in unlisted] if unlisted else ()
    return PodSums(
        requests=pods.requests,
        used=Amounts(sum(cpu) + sum(own.cpu - used.cpu for own, used in kept), sum(memory)),
        larger=Amounts(sum(map(max, cpu, requested_cpu)), sum(map(max, memory, requested_memory))),
        unmeasured=unmeasured,
        dangling=total(dangling),
    )


def safety_margin(capacity: Amounts, policy: CapacityPolicy) -> Amounts:
    """The part of the capacity that is not used for batch; negative where more than 100 percent may be used."""
    return Amounts(
        scaled(capacity.cpu, fraction(100 - policy.cpu_reclaim_threshold_percent)),
        scaled(capacity.memory, fraction(100 - policy.memory_reclaim_threshold_percent)),
    )


def capped(capacity: int, percent: int | None) -> int | None:
    """The upper limit of batch capacity, from a percentage of the capacity; None: no limit."""
    return None if percent is None else scaled(capacity, fraction(percent))


def node_inputs(node: NodeFacts, pods: NodePods, metric: MetricFacts, policy: CapacityPolicy) -> BatchInputs:
    """The inputs of batch CPU and batch memory of a node."""
    return BatchInputs(
        capacity=node.capacity,
        margin=safety_margin(node.capacity, policy),
        system=metric.system_usage,
        hosts=metric.hosts_above_batch,
        reserved=node.reserved,
        pods=sum_pods(pods, metric),
        cpu_cap=capped(node.capacity.cpu, policy.batch_cpu_threshold_percent),
        memory_cap=capped(node.capacity.memory, policy.batch_memory_threshold_percent),
    )


def batch_cpu(inputs: BatchInputs, policy: CapacityPolicy, metric_time: datetime | None) -> ExplainedAmount:
    """Batch CPU. CPU is never counted by request alone: that policy counts as usage."""
    by = (
        CALCULATE_BY_MAX_USAGE_REQUEST
        if policy.cpu_calculate_policy == CALCULATE_BY_MAX_USAGE_REQUEST
        else CALCULATE_BY_USAGE
    )
    terms, details = batch_terms(inputs, by, 0)
    return explained(BATCH_CPU, by, metric_time, terms, inputs.cpu_cap, details)


def batch_memory(inputs: BatchInputs, policy: CapacityPolicy, metric_time: datetime | None) -> ExplainedAmount:
    by = policy.memory_calculate_policy
    if by not in (CALCULATE_BY_REQUEST, CALCULATE_BY_MAX_USAGE_REQUEST):
        by = CALCULATE_BY_USAGE
    terms, details = batch_terms(inputs, by, 1)
    return explained(BATCH_MEMORY, by, metric_time, terms, inputs.memory_cap, details)


def batch_terms(inputs: BatchInputs, by: str, index: int) -> tuple[tuple[Term, ...], dict[str, int]]:
    """The terms by one policy for CPU (index 0) or memory (1), and their inputs."""
    system, hosts, reserved = inputs.system[index], inputs.hosts[index], inputs.reserved[index]
    details = {amounts.SYSTEM_USAGE: system, amounts.HOST_APPLICATIONS: hosts, amounts.RESERVED: reserved}
    first = (Term(amounts.CAPACITY, inputs.capacity[index]), Term(amounts.SAFETY_MARGIN, -inputs.margin[index]))
    pods = inputs.pods
    if by == CALCULATE_BY_REQUEST:
        return (
            *first,
            Term(amounts.RESERVED, -reserved),
            Term(amounts.POD_REQUESTS, -pods.requests[index]),
        ), details
    by_usage = by == CALCULATE_BY_USAGE
    return (
        *first,
        Term(amounts.SYSTEM_USAGE, -system),
        Term(amounts.HOST_APPLICATIONS, -hosts),
        Term(amounts.RESERVED_ABOVE_SYSTEM_USAGE, -max(reserved - system - hosts, 0)),
        Term(
            amounts.POD_USAGE if by_usage else amounts.POD_MAX_USAGE_REQUEST,
            -(pods.used if by_usage else pods.larger)[index],
        ),
        Term(amounts.PODS_WITHOUT_METRIC, -pods.unmeasured[index]),
        Term(amounts.DANGLING_PODS, -pods.dangling[index]),
    ), details


class ZoneBatch(NamedTuple):
    """The batch capacity of one zone."""

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
    tell_huge_pages = any(zone.huge_pages for zone in zones)
    shares = _node_shares(node, metric, count, without_huge_pages=tell_huge_pages)
    return tuple(_zone_batch(zone, shares, sums[zone.numa_node], policy, metric.update_time) for zone in zones)


class _NodeShares(NamedTuple):
    """One zone's share of what belongs to the node as a whole."""

    system: Amounts
    hosts: Amounts
    reserved: Amounts


def _node_shares(node: NodeFacts, metric: MetricFacts, count: int, *, without_huge_pages: bool) -> _NodeShares:
    """System usage and that of host applications are divided together, so that rounding happens once.

    ``without_huge_pages``: the memory of the zones does not contain the pool, so that it is not subtracted from it.
    """
    used, reserved = metric.system_usage, node.reserved
    if without_huge_pages:
        used = Amounts(used.cpu, without_pool(used.memory, node.huge_pages))
        reserved = node.reserved_beside_huge_pages
    system = _share(used, count)
    both = _share(used.plus(metric.hosts_above_batch), count)
    hosts = Amounts(both.cpu - system.cpu, both.memory - system.memory)
    return _NodeShares(system, hosts, _share(reserved, count))


def _zone_batch(
    zone: ZoneFacts, shares: _NodeShares, pods: PodSums, policy: CapacityPolicy, when: datetime | None
) -> ZoneBatch:
    memory_cap = capped(zone.allocatable.memory, policy.batch_memory_threshold_percent)
    inputs = BatchInputs(
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
        msgspec.structs.replace(batch_cpu(inputs, policy, when), zone=zone.name),
        _in_bytes(batch_memory(inputs, policy, when), zone.name),
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
    """``PodSums`` under construction, in plain numbers: this runs for each pod of each node."""

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
    """The same in bytes, rounded up as every reader of a fraction of a byte does. The remainder from rounding the terms
    one by one is a term of its own."""
    terms = tuple(Term(each.name, _up(each.amount)) for each in amount.terms)
    cap = None if amount.cap is None else _up(amount.cap)
    exact = sum(each.amount for each in amount.terms)
    rounding = _up(exact) - sum(each.amount for each in terms)
    if rounding:
        terms = (*terms, Term(amounts.ROUNDING, rounding))
    return msgspec.structs.replace(
        amount,
        zone=zone,
        value=bounded(_up(exact), cap),
        terms=terms,
        cap=cap,
        inputs={name: _up(each) for name, each in amount.inputs.items()},
    )


def _up(millis: int) -> int:
    return -(-millis // _MILLI)
