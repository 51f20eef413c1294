"""Mid capacity: what prod pods ask for and will not use, and a share of what nobody has asked for.

(Original: pkg/slo-controller/noderesource/plugins/midresource.)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from koordinator.api.colocation_strategy import MID_RECLAIM_STATIC
from koordinator.api.resource_names import MID_CPU, MID_MEMORY
from koordinator.model.overcommit import explained_sum as names
from koordinator.model.overcommit.amounts import NOTHING, Amounts, fraction, scaled
from koordinator.model.overcommit.explained_sum import Addend, ExplainedAmount, explained
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.policies import CapacityPolicy

MID_RESOURCES: Final = (MID_CPU, MID_MEMORY)
_RECLAIM: Final = "reclaim"


class MidTerms(NamedTuple):
    capacity: Amounts
    usage: Amounts
    system: Amounts
    hosts: Amounts
    reserved: Amounts
    requested: Amounts
    """By prod pods."""
    reclaimable: Amounts
    caps: Amounts


def mid_amounts(
    node: NodeFacts, pods: Iterable[PodFacts], metric: MetricFacts, policy: CapacityPolicy
) -> tuple[ExplainedAmount, ExplainedAmount]:
    """Mid CPU and mid memory of a node."""
    caps = Amounts(
        scaled(node.capacity.cpu, fraction(policy.mid_cpu_threshold_percent)),
        scaled(node.capacity.memory, fraction(policy.mid_memory_threshold_percent)),
    )
    if policy.mid_reclaim_mode == MID_RECLAIM_STATIC:
        return _static(node, metric, policy, caps)
    return _reclaimed(node, pods, metric, policy, caps)


def _static(
    node: NodeFacts, metric: MetricFacts, policy: CapacityPolicy, caps: Amounts
) -> tuple[ExplainedAmount, ExplainedAmount]:
    """A fixed part of the node, whatever is used."""
    cpu = scaled(node.capacity.cpu, fraction(policy.mid_static_cpu_reserved_percent))
    memory = scaled(node.capacity.memory, fraction(policy.mid_static_memory_reserved_percent))
    return (
        _static_amount(MID_CPU, cpu, caps.cpu, node.capacity.cpu, metric.update_time),
        _static_amount(MID_MEMORY, memory, caps.memory, node.capacity.memory, metric.update_time),
    )


def _static_amount(resource: str, amount: int, cap: int, capacity: int, when: datetime | None) -> ExplainedAmount:
    addends = (Addend(names.STATIC_RESERVED, amount),)
    return explained(resource, MID_RECLAIM_STATIC, when, addends, cap, {names.CAPACITY: capacity})


def _reclaimed(
    node: NodeFacts, pods: Iterable[PodFacts], metric: MetricFacts, policy: CapacityPolicy, caps: Amounts
) -> tuple[ExplainedAmount, ExplainedAmount]:
    cpu = memory = 0
    for pod in pods:
        if pod.is_prod and pod.is_counted:
            cpu += pod.requests.cpu
            memory += pod.requests.memory
    terms = MidTerms(
        capacity=node.capacity,
        # A node that does not say what it uses is taken to use everything.
        usage=node.capacity if metric.node_usage is None else metric.node_usage,
        system=metric.system_usage,
        hosts=metric.hosts_above_mid,
        reserved=node.reserved,
        requested=Amounts(cpu, memory),
        reclaimable=metric.prod_reclaimable.at_least(NOTHING),
        caps=caps,
    )
    share, when = fraction(policy.mid_unallocated_percent), metric.update_time
    return _amount(MID_CPU, terms, 0, share, when), _amount(MID_MEMORY, terms, 1, share, when)


def _amount(
    resource: str, terms: MidTerms, index: int, unallocated_share: float, when: datetime | None
) -> ExplainedAmount:
    """One resource: CPU has index 0, memory 1."""
    capacity, usage, system, hosts, reserved, requested, reclaimable, cap = (each[index] for each in terms)
    kept = max(system + hosts, reserved)
    unused = max(capacity - usage, 0)
    unallocated = max(capacity - kept - requested, 0)
    addends = (
        Addend(names.PROD_RECLAIMABLE, reclaimable),
        Addend(names.NOT_UNUSED, -max(reclaimable - unused, 0)),
        Addend(names.UNALLOCATED_SHARE, scaled(unallocated, unallocated_share)),
    )
    details = {
        names.CAPACITY: capacity,
        names.NODE_USAGE: usage,
        names.UNUSED: unused,
        names.SYSTEM_USAGE: system,
        names.HOST_APPLICATIONS: hosts,
        names.RESERVED: reserved,
        names.KEPT: kept,
        names.PROD_REQUESTS: requested,
        names.UNALLOCATED: unallocated,
    }
    return explained(resource, _RECLAIM, when, addends, cap, details)
