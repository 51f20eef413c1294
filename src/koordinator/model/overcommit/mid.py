"""Mid capacity: what prod pods request and will not use, and a share of what no pod has requested.

(Original: pkg/slo-controller/noderesource/plugins/midresource.)
"""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple

from koordinator.api.colocation_strategy import MID_RECLAIM_STATIC
from koordinator.api.resource_names import MID_CPU, MID_MEMORY
from koordinator.model.huge_pages import without_pool
from koordinator.model.overcommit import amounts
from koordinator.model.overcommit.amounts import NOTHING, Amounts, ExplainedAmount, Term, explained, fraction, scaled
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, NodePods
from koordinator.model.overcommit.policies import CapacityPolicy

MID_RESOURCES: Final = (MID_CPU, MID_MEMORY)
_RECLAIM: Final = "reclaim"


class MidInputs(NamedTuple):
    capacity: Amounts
    usable: Amounts
    """The capacity without the pool of huge pages, as is the usage."""
    usage: Amounts
    system: Amounts
    hosts: Amounts
    reserved: Amounts
    requested: Amounts
    """By prod pods."""
    reclaimable: Amounts
    caps: Amounts


def mid_amounts(
    node: NodeFacts, pods: NodePods, metric: MetricFacts, policy: CapacityPolicy
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
    terms = (Term(amounts.STATIC_RESERVED, amount),)
    return explained(resource, MID_RECLAIM_STATIC, when, terms, cap, {amounts.CAPACITY: capacity})


def _reclaimed(
    node: NodeFacts, pods: NodePods, metric: MetricFacts, policy: CapacityPolicy, caps: Amounts
) -> tuple[ExplainedAmount, ExplainedAmount]:
    inputs = MidInputs(
        capacity=node.capacity,
        usable=Amounts(node.capacity.cpu, without_pool(node.capacity.memory, node.huge_pages)),
        # A node that does not report its usage is assumed to use everything.
        usage=node.capacity if metric.node_usage is None else metric.node_usage,
        system=metric.system_usage,
        hosts=metric.hosts_above_mid,
        reserved=node.reserved,
        requested=pods.prod_requests,
        reclaimable=metric.prod_reclaimable.at_least(NOTHING),
        caps=caps,
    )
    share, when = fraction(policy.mid_unallocated_percent), metric.update_time
    return _amount(MID_CPU, inputs, 0, share, when), _amount(MID_MEMORY, inputs, 1, share, when)


def _amount(
    resource: str, inputs: MidInputs, index: int, unallocated_share: float, when: datetime | None
) -> ExplainedAmount:
    """One resource: CPU has index 0, memory 1."""
    capacity, usable, usage, system, hosts, reserved, requested, reclaimable, cap = map(itemgetter(index), inputs)
    kept = max(system + hosts, reserved)
    unused = max(usable - usage, 0)
    unallocated = max(capacity - kept - requested, 0)
    terms = (
        Term(amounts.PROD_RECLAIMABLE, reclaimable),
        Term(amounts.NOT_UNUSED, -max(reclaimable - unused, 0)),
        Term(amounts.UNALLOCATED_SHARE, scaled(unallocated, unallocated_share)),
    )
    details = {
        amounts.CAPACITY: capacity,
        amounts.NODE_USAGE: usage,
        amounts.UNUSED: unused,
        amounts.SYSTEM_USAGE: system,
        amounts.HOST_APPLICATIONS: hosts,
        amounts.RESERVED: reserved,
        amounts.KEPT: kept,
        amounts.PROD_REQUESTS: requested,
        amounts.UNALLOCATED: unallocated,
    }
    return explained(resource, _RECLAIM, when, terms, cap, details)
