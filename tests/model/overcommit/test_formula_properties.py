"""The formulas written down a second time, as the original's documentation gives them, beside what is decided.

Nothing here is shared with what is tested but the types: sums are made pod by pod, in exact numbers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.model.overcommit.amounts import ROUNDING, ExplainedAmount
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, PodFacts, TopologyFacts
from koordinator.model.overcommit.plan import Plan
from koordinator.model.overcommit.policies import CapacityPolicy
from tests.examples import examples
from tests.model.overcommit.drawn_nodes import (
    NAMES,
    TOTAL,
    any_zones,
    decided,
    equal_zones,
    metrics,
    nodes,
    policies,
    some_pods,
)
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY

CPU, MEMORY = 0, 1


def percent_of(amount: int, percent: int) -> int:
    """Within the rounding of a float64, which is what the original computes with."""
    return floor(Fraction(amount) * percent / 100)


def expected_batch(node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, of: int) -> int:
    named = policy.cpu_calculate_policy if of == CPU else policy.memory_calculate_policy
    threshold = policy.cpu_reclaim_threshold_percent if of == CPU else policy.memory_reclaim_threshold_percent
    most = policy.batch_cpu_threshold_percent if of == CPU else policy.batch_memory_threshold_percent
    counted = [pod for pod in pods if pod.is_counted]
    high = [pod for pod in counted if pod.is_high]
    left = percent_of(node.capacity[of], threshold)
    if named == "request" and of == MEMORY:
        left -= node.reserved[of] + sum(pod.requests[of] for pod in high)
    else:
        left -= max(metric.system_usage[of] + metric.hosts_above_batch[of], node.reserved[of])
        left -= sum(need(pod, metric, of, by_most=named == "maxUsageRequest") for pod in high)
        listed = {pod.key for pod in counted}
        left -= sum(metric.pods[key][of] for key in metric.high_pods if key not in listed)
    if most is not None:
        left = min(left, percent_of(node.capacity[of], most))
    return max(left, 0)


def need(pod: PodFacts, metric: MetricFacts, of: int, by_most: bool) -> int:
    if pod.key not in metric.pods:
        return pod.requests[of]
    used = metric.pods[pod.key][of]
    if by_most:
        return max(used, pod.requests[of])
    return pod.requests[of] if pod.keeps_cpu and of == CPU else used


def expected_mid(node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, of: int) -> int:
    total = node.capacity[of]
    most = policy.mid_cpu_threshold_percent if of == CPU else policy.mid_memory_threshold_percent
    if policy.mid_reclaim_mode == "static":
        fixed = policy.mid_static_cpu_reserved_percent if of == CPU else policy.mid_static_memory_reserved_percent
        return min(percent_of(total, fixed), percent_of(total, most))
    used = total if metric.node_usage is None else metric.node_usage[of]
    kept = max(metric.system_usage[of] + metric.hosts_above_mid[of], node.reserved[of])
    requested = sum(pod.requests[of] for pod in pods if pod.is_counted and pod.is_prod)
    idle = percent_of(max(total - kept - requested, 0), policy.mid_unallocated_percent)
    return min(max(min(metric.prod_reclaimable[of], total - used), 0) + idle, percent_of(total, most))


@settings(max_examples=examples(60))
@given(nodes(), some_pods(), metrics(), policies)
def test_batch_and_mid_are_what_the_formulas_say(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy
) -> None:
    plan = decided(node, pods, metric, policy)

    mid_cpu, mid_memory, batch_cpu, batch_memory = (amount.value for amount in plan.amounts)
    assert [amount.resource.rpartition("/")[2] for amount in plan.amounts] == [
        *("mid-cpu", "mid-memory"),
        *("batch-cpu", "batch-memory"),
    ]
    # A percentage as a float64 may come out one below or above the exact one.
    assert abs(batch_cpu - expected_batch(node, pods, metric, policy, CPU)) <= 1
    assert abs(batch_memory - expected_batch(node, pods, metric, policy, MEMORY)) <= 1
    assert abs(mid_cpu - expected_mid(node, pods, metric, policy, CPU)) <= 2
    assert abs(mid_memory - expected_mid(node, pods, metric, policy, MEMORY)) <= 2


@settings(max_examples=examples(60))
@given(nodes(st.just(TOTAL)), some_pods(), metrics(), policies, equal_zones())
def test_each_term_of_the_node_is_the_sum_of_those_of_its_zones(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    # A share is rounded once in each zone, for each pod and for what belongs to the node.
    rounding = len(topology.zones) * (len(NAMES) + 4)

    for resource, zones in (
        (BATCH_CPU, [batch.cpu for batch in plan.zones]),
        (BATCH_MEMORY, [batch.memory for batch in plan.zones]),
    ):
        whole = terms([amount for amount in plan.amounts if amount.resource == resource])
        parts = terms(zones)
        assert all(abs(whole[name] - parts[name]) <= rounding for name in whole.keys() | parts.keys())


def terms(amounts: Iterable[ExplainedAmount]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for amount in amounts:
        for term in amount.terms:
            # What is cut off a zone's share to make it whole belongs to no term of the node.
            if term.name != ROUNDING:
                sums[term.name] += term.amount
    return sums


@settings(max_examples=examples(30))
@given(nodes(), some_pods(), metrics(), policies, any_zones())
def test_a_pod_that_is_bound_to_zones_is_taken_from_these_alone(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    pods = [pod._replace(is_counted=True) for pod in pods]
    numbers = {zone.numa_node for zone in topology.zones}
    bound = [pod for pod in pods if not numbers.isdisjoint(pod.numa_nodes)]
    theirs = {number for pod in bound for number in pod.numa_nodes}
    gone = {pod.key for pod in bound}
    known = {key: usage for key, usage in metric.pods.items() if key not in gone}
    without = replace(metric, pods=known, high_pods=tuple(key for key in metric.high_pods if key in known))

    after = decided(node, pods, metric, policy, topology=topology).zones
    before = decided(node, [pod for pod in pods if pod not in bound], without, policy, topology=topology).zones

    for zone, one, other in zip(topology.zones, before, after, strict=True):
        if zone.numa_node not in theirs:
            assert one == other
        else:
            assert one.cpu.value >= other.cpu.value
            assert one.memory.value >= other.memory.value


@settings(max_examples=examples(30))
@given(nodes(), some_pods(), metrics(), policies, any_zones(), st.integers(1, 50))
def test_a_larger_margin_never_leaves_more(
    node: NodeFacts,
    pods: list[PodFacts],
    metric: MetricFacts,
    policy: CapacityPolicy,
    topology: TopologyFacts,
    more: int,
) -> None:
    lower = dataclasses.replace(
        policy,
        cpu_reclaim_threshold_percent=max(policy.cpu_reclaim_threshold_percent - more, 0),
        memory_reclaim_threshold_percent=max(policy.memory_reclaim_threshold_percent - more, 0),
    )

    wide, narrow = (decided(node, pods, metric, each, topology=topology) for each in (policy, lower))

    assert_nowhere_more(narrow, wide)


@settings(max_examples=examples(30))
@given(nodes(), some_pods(), metrics(), policies, any_zones(), nodes())
def test_more_that_is_reserved_or_used_never_leaves_more(
    node: NodeFacts,
    pods: list[PodFacts],
    metric: MetricFacts,
    policy: CapacityPolicy,
    topology: TopologyFacts,
    other: NodeFacts,
) -> None:
    more = other.reserved
    reserved = replace(node, reserved=node.reserved.plus(more))
    hosts = replace(metric, hosts_above_batch=metric.hosts_above_batch.plus(more))
    grown = [pod._replace(requests=pod.requests.plus(more)) for pod in pods]

    before = decided(node, pods, metric, policy, topology=topology)

    assert_nowhere_more(decided(reserved, pods, metric, policy, topology=topology), before)
    assert_nowhere_more(decided(node, pods, hosts, policy, topology=topology), before)
    assert_nowhere_more(decided(node, grown, metric, policy, topology=topology), before)


def assert_nowhere_more(less: Plan, most: Plan) -> None:
    """Neither on the node nor in a zone."""
    pairs = list(zip(less.amounts, most.amounts, strict=True))
    for one, other in zip(less.zones, most.zones, strict=True):
        pairs += [(one.cpu, other.cpu), (one.memory, other.memory)]
    for fewer, more in pairs:
        assert fewer.value <= more.value
