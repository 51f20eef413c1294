"""What holds for any node, pods, readings and policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit import explained_sum
from koordinator.model.overcommit.amounts import NOTHING, Amounts
from koordinator.model.overcommit.batch import safety_margin
from koordinator.model.overcommit.decision import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from koordinator.model.overcommit.preparation import prepare
from koordinator.model.overcommit.topology_facts import TopologyFacts, ZoneFacts
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY, NOW, a_node
from tests.model.overcommit.patching import patched_node

TOTAL: Final = Amounts(96_000, 384 * 2**30)
NAMES: Final = [("test", f"p{number}") for number in range(6)]
BATCH: Final = {BATCH_CPU: 0, BATCH_MEMORY: 1}

percents = st.integers(0, 150)
caps = st.none() | percents
calculations = st.sampled_from(["usage", "request", "maxUsageRequest", ""])
amounts = st.builds(Amounts, st.integers(0, 120_000), st.integers(0, 2**39))
small = st.builds(Amounts, st.integers(0, 20_000), st.integers(0, 2**36))
policies = st.builds(
    CapacityPolicy,
    enable=st.just(True),
    cpu_reclaim_threshold_percent=percents,
    memory_reclaim_threshold_percent=percents,
    cpu_calculate_policy=calculations,
    memory_calculate_policy=calculations,
    batch_cpu_threshold_percent=caps,
    batch_memory_threshold_percent=caps,
    mid_reclaim_mode=st.sampled_from(["", "static"]),
    mid_cpu_threshold_percent=percents,
    mid_memory_threshold_percent=percents,
    mid_unallocated_percent=percents,
    mid_static_cpu_reserved_percent=percents,
    mid_static_memory_reserved_percent=percents,
)
nodes = st.builds(NodeFacts, st.just("n"), st.just(TOTAL), reserved=small, labels=st.just({}), annotations=st.just({}))


@st.composite
def some_pods(draw: st.DrawFn, numa: bool = True) -> list[PodFacts]:
    found = []
    for key in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        is_high, is_prod = draw(st.sampled_from([(True, True), (True, False), (False, False)]))
        bound = tuple(draw(st.sets(st.integers(0, 3)))) if numa else ()
        found.append(
            PodFacts(key, draw(st.booleans()), is_high, is_prod, draw(st.booleans()), draw(small), tuple(sorted(bound)))
        )
    return found


@st.composite
def metrics(draw: st.DrawFn) -> MetricFacts:
    usages = draw(st.dictionaries(st.sampled_from(NAMES), small))
    return MetricFacts(
        update_time=NOW,
        has_usage=True,
        node_usage=draw(st.none() | amounts),
        system_usage=draw(small),
        hosts_above_batch=draw(small),
        hosts_above_mid=draw(small),
        pods=usages,
        high_pods=tuple(draw(st.sets(st.sampled_from(sorted(usages))))) if usages else (),
        prod_reclaimable=draw(amounts),
    )


@st.composite
def topologies(draw: st.DrawFn) -> TopologyFacts:
    """The node in equal zones."""
    count = draw(st.sampled_from([1, 2, 3, 4]))
    part = Amounts(TOTAL.cpu // count, TOTAL.memory // count)
    return TopologyFacts(tuple(ZoneFacts(f"node-{number}", number, part) for number in range(count)))


def decided(node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, **given: Any) -> Plan:
    return decide(NodeSnapshot(node, pods, metric, **given), Policies(policy), NOW)


@settings(max_examples=60)
@given(nodes, some_pods(), metrics(), policies, topologies())
def test_amounts_are_never_negative_nor_above_what_the_inputs_allow(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    margin = safety_margin(TOTAL, policy)

    for amount in plan.amounts:
        assert amount.value >= 0
        if amount.resource in BATCH:
            index = BATCH[amount.resource]
            reserved = node.reserved[index]
            assert amount.value <= max(TOTAL[index] - margin[index] - reserved, 0)
        assert amount.cap is None or amount.value <= max(amount.cap, 0)
    for batch in plan.zones:
        assert batch.cpu.value >= 0
        assert batch.memory.value >= 0


@settings(max_examples=60)
@given(nodes, some_pods(), metrics(), policies, topologies())
def test_addends_kept_within_their_bounds_are_the_value(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, topology: TopologyFacts
) -> None:
    plan = decided(node, pods, metric, policy, topology=topology)
    zones = [amount for batch in plan.zones for amount in (batch.cpu, batch.memory)]

    for amount in (*plan.amounts, *zones):
        total = sum(addend.amount for addend in amount.addends)
        assert explained_sum.bounded(total, amount.cap) == amount.value
    document = explained_sum.to_json((*plan.amounts, *zones))
    assert explained_sum.from_json(document) == (*plan.amounts, *zones)


@settings(max_examples=60)
@given(nodes, some_pods(), metrics(), policies, st.sampled_from(NAMES), small)
def test_more_usage_never_makes_more_capacity(
    node: NodeFacts,
    pods: list[PodFacts],
    metric: MetricFacts,
    policy: CapacityPolicy,
    key: tuple[str, str],
    more: Amounts,
) -> None:
    usages = {**metric.pods, **({key: metric.pods[key].plus(more)} if key in metric.pods else {})}
    usage = None if metric.node_usage is None else metric.node_usage.plus(more)
    busier = replace(metric, pods=usages, system_usage=metric.system_usage.plus(more), node_usage=usage)

    before, after = decided(node, pods, metric, policy), decided(node, pods, busier, policy)

    for less, most in zip(after.amounts, before.amounts, strict=True):
        assert less.value <= most.value


@settings(max_examples=60)
@given(nodes, some_pods(numa=False), metrics(), policies, topologies())
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


@settings(max_examples=60)
@given(
    some_pods(),
    metrics(),
    policies,
    st.none() | st.sampled_from([1.0, 1.11, 1.337, 5.0]),
    st.sampled_from(
        ["", "{]", '{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"7"}}]}']
    ),
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
    plan = decide(NodeSnapshot(facts, pods, metric), given_policies, NOW + timedelta(hours=stale))

    first = prepare(node, plan, policy, NOW, None)
    after = patched_node(node, first.status_patch())
    second = prepare(after, plan, policy, NOW, NOW)

    assert (second.status_due, second.metadata_due) == ("", "")
    assert (second.allocatable, second.capacity, second.annotations, second.labels) == ({}, {}, {}, {})
    assert prepare(after, plan, policy, NOW, None).status_patch() is None
    for amount in second.amounts:
        if not amount.is_reset:
            written = after.status.allocatable[amount.resource].value
            assert written == amount.published
            assert written == amount.value + sum(each.amount for each in amount.adjustments)
