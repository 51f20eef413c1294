"""Batch capacity: what online pods leave idle, less a margin and what the system needs.

By usage:    capacity - margin - max(system usage, reserved) - usage of pods above batch.
By request:  capacity - margin - reserved - requests of pods above batch.
By the most: capacity - margin - max(system usage, reserved) - the larger of usage and request of each such pod.
(Original: pkg/slo-controller/noderesource/plugins/batchresource.)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from koordinator.api.colocation_strategy import (
    CALCULATE_BY_MAX_USAGE_REQUEST,
    CALCULATE_BY_REQUEST,
    CALCULATE_BY_USAGE,
)
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.model.overcommit import explained_sum as names
from koordinator.model.overcommit.amounts import Amounts, fraction, scaled
from koordinator.model.overcommit.explained_sum import Addend, ExplainedAmount, explained
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.policies import CapacityPolicy

BATCH_RESOURCES: Final = (BATCH_CPU, BATCH_MEMORY)


class PodSums(NamedTuple):
    """Sums over the pods whose needs go before those of batch pods."""

    requests: Amounts
    """Of all of them."""
    used: Amounts
    """Of those with a metric; of those that keep their CPU, its request."""
    larger: Amounts
    """Of those with a metric: the larger of usage and request of each."""
    unmeasured: Amounts
    """Requests of those without a metric."""
    dangling: Amounts
    """Usage of those that have a metric and are no longer listed."""


class BatchTerms(NamedTuple):
    """The same for a node and for one of its zones."""

    capacity: Amounts
    margin: Amounts
    system: Amounts
    hosts: Amounts
    reserved: Amounts
    pods: PodSums
    cpu_cap: int | None
    memory_cap: int | None


def sum_pods(pods: Iterable[PodFacts], metric: MetricFacts) -> PodSums:
    usages = metric.pods
    listed: set[tuple[str, str]] = set()
    requested_cpu = requested_memory = used_cpu = used_memory = larger_cpu = larger_memory = 0
    unmeasured_cpu = unmeasured_memory = 0
    for key, is_counted, is_high, _, keeps_cpu, (cpu, memory), _ in pods:
        if not is_counted:
            continue
        listed.add(key)
        if not is_high:
            continue
        requested_cpu += cpu
        requested_memory += memory
        usage = usages.get(key)
        if usage is None:
            unmeasured_cpu += cpu
            unmeasured_memory += memory
            continue
        usage_cpu, usage_memory = usage
        used_cpu += cpu if keeps_cpu else usage_cpu
        used_memory += usage_memory
        larger_cpu += usage_cpu if usage_cpu > cpu else cpu
        larger_memory += usage_memory if usage_memory > memory else memory
    dangling = [usages[key] for key in metric.high_pods if key not in listed]
    return PodSums(
        requests=Amounts(requested_cpu, requested_memory),
        used=Amounts(used_cpu, used_memory),
        larger=Amounts(larger_cpu, larger_memory),
        unmeasured=Amounts(unmeasured_cpu, unmeasured_memory),
        dangling=Amounts(sum(each.cpu for each in dangling), sum(each.memory for each in dangling)),
    )


def safety_margin(capacity: Amounts, policy: CapacityPolicy) -> Amounts:
    """What nobody may count on; negative where more than all may be used."""
    return Amounts(
        scaled(capacity.cpu, fraction(100 - policy.cpu_reclaim_threshold_percent)),
        scaled(capacity.memory, fraction(100 - policy.memory_reclaim_threshold_percent)),
    )


def capped(capacity: int, percent: int | None) -> int | None:
    """The most that may be offered of a capacity; None: no limit."""
    return None if percent is None else scaled(capacity, fraction(percent))


def batch_amounts(
    node: NodeFacts, pods: Iterable[PodFacts], metric: MetricFacts, policy: CapacityPolicy
) -> tuple[ExplainedAmount, ExplainedAmount]:
    """Batch CPU and batch memory of a node."""
    terms = BatchTerms(
        capacity=node.capacity,
        margin=safety_margin(node.capacity, policy),
        system=metric.system_usage,
        hosts=metric.hosts_above_batch,
        reserved=node.reserved,
        pods=sum_pods(pods, metric),
        cpu_cap=capped(node.capacity.cpu, policy.batch_cpu_threshold_percent),
        memory_cap=capped(node.capacity.memory, policy.batch_memory_threshold_percent),
    )
    return batch_cpu(terms, policy, metric.update_time), batch_memory(terms, policy, metric.update_time)


def batch_cpu(terms: BatchTerms, policy: CapacityPolicy, metric_time: datetime | None) -> ExplainedAmount:
    """CPU is never counted by request alone: that policy counts as usage."""
    by = (
        CALCULATE_BY_MAX_USAGE_REQUEST
        if policy.cpu_calculate_policy == CALCULATE_BY_MAX_USAGE_REQUEST
        else CALCULATE_BY_USAGE
    )
    addends, details = _addends(terms, by, 0)
    return explained(BATCH_CPU, by, metric_time, addends, terms.cpu_cap, details)


def batch_memory(terms: BatchTerms, policy: CapacityPolicy, metric_time: datetime | None) -> ExplainedAmount:
    by = policy.memory_calculate_policy
    if by not in (CALCULATE_BY_REQUEST, CALCULATE_BY_MAX_USAGE_REQUEST):
        by = CALCULATE_BY_USAGE
    addends, details = _addends(terms, by, 1)
    return explained(BATCH_MEMORY, by, metric_time, addends, terms.memory_cap, details)


def _addends(terms: BatchTerms, by: str, index: int) -> tuple[tuple[Addend, ...], dict[str, int]]:
    """The sum by one policy for CPU (index 0) or memory (1), and where its parts come from."""
    system, hosts, reserved = terms.system[index], terms.hosts[index], terms.reserved[index]
    details = {names.SYSTEM_USAGE: system, names.HOST_APPLICATIONS: hosts, names.RESERVED: reserved}
    first = (Addend(names.CAPACITY, terms.capacity[index]), Addend(names.SAFETY_MARGIN, -terms.margin[index]))
    pods = terms.pods
    if by == CALCULATE_BY_REQUEST:
        return (
            *first,
            Addend(names.RESERVED, -reserved),
            Addend(names.POD_REQUESTS, -pods.requests[index]),
        ), details
    by_usage = by == CALCULATE_BY_USAGE
    return (
        *first,
        Addend(names.SYSTEM_USAGE, -system),
        Addend(names.HOST_APPLICATIONS, -hosts),
        Addend(names.RESERVED_ABOVE_SYSTEM_USAGE, -max(reserved - system - hosts, 0)),
        Addend(
            names.POD_USAGE if by_usage else names.POD_MAX_USAGE_REQUEST,
            -(pods.used if by_usage else pods.larger)[index],
        ),
        Addend(names.PODS_WITHOUT_METRIC, -pods.unmeasured[index]),
        Addend(names.DANGLING_PODS, -pods.dangling[index]),
    ), details
