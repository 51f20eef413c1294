"""What holds for any node, pods, readings and policy."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit.amounts import NOTHING, Amounts, bounded
from koordinator.model.overcommit.batch import safety_margin
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, NodePods, PodFacts, TopologyFacts
from koordinator.model.overcommit.node_diff import diff_node
from koordinator.model.overcommit.plan import NodeSnapshot, decide
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from tests.examples import examples
from tests.model.overcommit.drawn_nodes import (
    GONE,
    NAMES,
    TOTAL,
    any_zones,
    decided,
    equal_zones,
    metrics,
    nodes,
    policies,
    small,
    some_pods,
)
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY, NOW, a_node
from tests.model.overcommit.patching import patched_node

BATCH: Final = {BATCH_CPU: 0, BATCH_MEMORY: 1}


@settings(max_examples=examples(60))
@given(nodes(), some_pods(), metrics(), policies, any_zones())
def test_amounts_are_never_negative_nor_above_what_the_inputs_allow(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    margin = safety_margin(node.capacity, policy)

    for amount in plan.amounts:
        assert amount.value >= 0
        if amount.resource in BATCH:
            index = BATCH[amount.resource]
            reserved = node.reserved[index]
            assert amount.value <= max(node.capacity[index] - margin[index] - reserved, 0)
        assert amount.cap is None or amount.value <= max(amount.cap, 0)
    for zone, batch in zip(topology.zones, plan.zones, strict=True):
        margin = safety_margin(zone.allocatable, policy)
        for amount, left in zip((batch.cpu, batch.memory), zip(zone.allocatable, margin, strict=True), strict=True):
            assert 0 <= amount.value <= max(left[0] - left[1], 0)


@settings(max_examples=examples(60))
@given(nodes(), some_pods(), metrics(), policies, any_zones())
def test_terms_kept_within_their_bounds_are_the_value(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    zones = [amount for batch in plan.zones for amount in (batch.cpu, batch.memory)]

    for amount in (*plan.amounts, *zones):
        total = sum(term.amount for term in amount.terms)
        assert bounded(total, amount.cap) == amount.value


@settings(max_examples=examples(60))
@given(nodes(), some_pods(), metrics(), policies, any_zones(), st.sampled_from([*NAMES, *GONE]), small)
def test_more_usage_never_makes_more_capacity(
    node: NodeFacts,
    pods: list[PodFacts],
    metric: MetricFacts,
    policy: CapacityPolicy,
    topology: TopologyFacts,
    key: tuple[str, str],
    more: Amounts,
) -> None:
    usages = {**metric.pods, **({key: metric.pods[key].plus(more)} if key in metric.pods else {})}
    usage = None if metric.node_usage is None else metric.node_usage.plus(more)
    busier = replace(metric, pods=usages, system_usage=metric.system_usage.plus(more), node_usage=usage)

    before, after = (decided(node, pods, each, policy, topology=topology) for each in (metric, busier))

    for less, most in zip(after.amounts, before.amounts, strict=True):
        assert less.value <= most.value
    for one, other in zip(after.zones, before.zones, strict=True):
        assert one.cpu.value <= other.cpu.value
        assert one.memory.value <= other.memory.value


@settings(max_examples=examples(60))
@given(nodes(st.just(TOTAL)), some_pods(numa=False), metrics(), policies, equal_zones())
def test_the_node_is_the_sum_of_its_zones(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    count = len(topology.zones)
    # Each share may have been rounded by one, in each zone: of the pods, the system and what is reserved.
    rounding = count * (2 * len(NAMES) + 6)

    whole = {amount.resource: amount.value for amount in plan.amounts}
    assert abs(sum(batch.cpu.value for batch in plan.zones) - whole[BATCH_CPU]) <= rounding
    assert abs(sum(batch.memory.value for batch in plan.zones) - whole[BATCH_MEMORY]) <= rounding


def given_away(milli: int) -> str:
    """To another scheduler, of batch CPU."""
    amounts = {"kubernetes.io/batch-cpu": str(milli)}
    return json.dumps({"allocations": [{"priority": "koord-batch", "resources": amounts}]})


@settings(max_examples=examples(60))
@given(
    some_pods(),
    metrics(),
    policies,
    st.none() | st.sampled_from([1.0, 1.11, 1.337, 5.0]),
    st.sampled_from(["", "{]", given_away(7), given_away(10**9)]),
    st.booleans(),
)
def test_what_has_been_written_is_not_written_again(
    pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, ratio: float | None, third: str, stale: bool
) -> None:
    annotations = {"node.koordinator.sh/thirdPartyAllocations": third} if third else {}
    node = a_node(("96", "384Gi"), annotations=annotations)
    facts = NodeFacts("n", TOTAL, NOTHING, node.metadata.labels, node.metadata.annotations)
    given_policies = Policies(
        policy,
        CPUNormalizationStrategy(enable=ratio is not None, default_ratio=ratio),
        ResourceAmplificationStrategy(enable=True, resource_amplification_ratio={"memory": 1.5}),
    )
    plan = decide(NodeSnapshot(facts, NodePods(pods), metric), given_policies, NOW + timedelta(hours=stale))

    first = diff_node(node, plan, policy, NOW, None)
    after = patched_node(node, first.status_patch())
    second = diff_node(after, plan, policy, NOW, NOW)

    assert (second.status_due, second.metadata_due) == ("", "")
    assert (second.allocatable, second.capacity, second.annotations, second.labels) == ({}, {}, {}, {})
    assert diff_node(after, plan, policy, NOW, None).status_patch() is None
    for amount in plan.amounts:
        if not amount.is_reset:
            written = after.status.allocatable[amount.resource].value
            assert written == amount.published
            assert written >= 0
            assert written == amount.value + sum(each.amount for each in amount.adjustments)
