"""Nodes, pods, reports and policies by chance, for what has to hold for all of them.

Amounts are drawn near to the limits of a node as well as far beyond them, so that sums fall on both sides of zero.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from koordinator.model.overcommit.amounts import Amounts
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, NodePods, PodFacts, TopologyFacts, ZoneFacts
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from tests.model.overcommit.node_objects import NOW

TOTAL: Final = Amounts(96_000, 384 * 2**30)
NAMES: Final = [("test", f"p{number}") for number in range(6)]
GONE: Final = [("test", f"gone{number}") for number in range(2)]

percents = st.integers(0, 150)
caps = st.none() | percents
calculations = st.sampled_from(["usage", "request", "maxUsageRequest", ""])
amounts = st.builds(Amounts, st.integers(0, 120_000), st.integers(0, 2**39))
small = st.builds(Amounts, st.integers(0, 20_000), st.integers(0, 2**36))
capacities = st.just(TOTAL) | st.builds(Amounts, st.integers(0, 200_000), st.integers(0, 2**42))
policies = st.builds(
    CapacityPolicy,
    enable=st.just(True),
    cpu_reclaim_threshold_percent=percents,
    memory_reclaim_threshold_percent=percents,
    cpu_calculate_policy=calculations,
    memory_calculate_policy=calculations,
    batch_cpu_threshold_percent=caps,
    batch_memory_threshold_percent=caps,
    mid_reclaim_mode=st.sampled_from(["", "other", "static"]),
    mid_cpu_threshold_percent=percents,
    mid_memory_threshold_percent=percents,
    mid_unallocated_percent=percents,
    mid_static_cpu_reserved_percent=percents,
    mid_static_memory_reserved_percent=percents,
)


@st.composite
def nodes(draw: st.DrawFn, capacity: st.SearchStrategy[Amounts] = capacities) -> NodeFacts:
    return NodeFacts("n", draw(capacity), draw(small), labels={}, annotations={})


@st.composite
def some_pods(draw: st.DrawFn, numa: bool = True) -> list[PodFacts]:
    found = []
    for key in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        is_high, is_prod = draw(st.sampled_from([(True, True), (True, False), (False, False)]))
        bound = tuple(draw(st.sets(st.integers(0, 5)))) if numa else ()
        found.append(
            PodFacts(key, draw(st.booleans()), is_high, is_prod, draw(st.booleans()), draw(small), tuple(sorted(bound)))
        )
    return found


@st.composite
def metrics(draw: st.DrawFn) -> MetricFacts:
    usages = draw(st.dictionaries(st.sampled_from([*NAMES, *GONE]), small))
    return MetricFacts(
        update_time=NOW,
        has_usage=True,
        node_usage=draw(st.none() | amounts),
        system_usage=draw(small),
        hosts_above_batch=draw(small),
        hosts_above_mid=draw(small),
        pods=usages,
        high_pods=tuple(sorted(draw(st.sets(st.sampled_from(sorted(usages)))))) if usages else (),
        prod_reclaimable=draw(amounts),
    )


@st.composite
def equal_zones(draw: st.DrawFn) -> TopologyFacts:
    """A node of ``TOTAL`` in equal zones."""
    count = draw(st.sampled_from([1, 2, 3, 4]))
    part = Amounts(TOTAL.cpu // count, TOTAL.memory // count)
    return TopologyFacts(tuple(ZoneFacts(f"node-{number}", number, part) for number in range(count)))


@st.composite
def any_zones(draw: st.DrawFn) -> TopologyFacts:
    """Zones of any size, in any order."""
    numbers = draw(st.permutations(range(draw(st.integers(1, 4)))))
    return TopologyFacts(tuple(ZoneFacts(f"node-{number}", number, draw(capacities)) for number in numbers))


def decided(node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, policy: CapacityPolicy, **given: Any) -> Plan:
    return decide(NodeSnapshot(node, NodePods(pods), metric, **given), Policies(policy), NOW)
