"""Gangs that request a place in the network. In the scenarios of SAME all pods go where the original puts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from tests.real.gangs.stage import names
from tests.real.network_topology.stage import NetworkStage, rules

Scenario = Callable[[NetworkStage], Awaitable[None]]
BLOCK: Final = rules(("BlockLayer", "MustGather"))
SPINE: Final = rules(("SpineLayer", "MustGather"), ("BlockLayer", "PreferGather"))
NO_CAPACITY: Final = "no candidate topology nodes"


async def one_node(stage: NetworkStage) -> None:
    await stage.gang(3, rules(("NodeTopologyLayer", "MustGather")))
    await stage.until_placed(3)


async def one_block(stage: NetworkStage) -> None:
    await stage.gang(4, BLOCK)
    await stage.until_placed(4)


async def one_block_of_two_nodes(stage: NetworkStage) -> None:
    await stage.gang(2, BLOCK)
    await stage.until_placed(2)


async def one_spine(stage: NetworkStage) -> None:
    await stage.gang(5, SPINE)
    await stage.until_placed(5)


async def the_deepest_rule_counts(stage: NetworkStage) -> None:
    await stage.gang(4, rules(("BlockLayer", "MustGather"), ("SpineLayer", "MustGather")))
    await stage.until_placed(4)


async def whole_cluster(stage: NetworkStage) -> None:
    await stage.gang(13, rules(("ClusterTopologyLayer", "MustGather")))
    await stage.until_placed(13)


async def prefer_alone(stage: NetworkStage) -> None:
    await stage.gang(6, rules(("BlockLayer", "PreferGather")))
    await stage.until_placed(6)


async def no_rules(stage: NetworkStage) -> None:
    await stage.gang(3, "{}")
    await stage.until_placed(3)


async def multiples_of_blocks(stage: NetworkStage) -> None:
    await stage.gang(6, rules(("SpineLayer", "MustGather"), ("BlockLayer", "PreferGather", 2)))
    await stage.until_placed(6)


async def multiples_of_nodes(stage: NetworkStage) -> None:
    await stage.gang(6, rules(("NodeTopologyLayer", "PreferGather", 2)))
    await stage.until_placed(6)


async def multiples_leave_too_little(stage: NetworkStage) -> None:
    await stage.gang(16, rules(("BlockLayer", "PreferGather", 2)))
    await stage.until_reported(NO_CAPACITY)


async def indices_as_the_names(stage: NetworkStage) -> None:
    await stage.group(stage.named(), 4, network_topology_spec=BLOCK)
    for number in range(4):
        await stage.pod(stage.named(), number, annotations={"network_topology_index": str(number)})
    await stage.until_placed(4)


async def one_pod_goes_to_its_kind(stage: NetworkStage) -> None:
    await stage.kind_of_pods("runs", "llm", "n07")
    await stage.gang_of_kind(1, SPINE, "llm")
    await stage.until_placed(1)


async def one_pod_does_not_go_to_another_kind(stage: NetworkStage) -> None:
    await stage.kind_of_pods("runs", "other", "n07")
    await stage.gang_of_kind(1, SPINE, "llm")
    await stage.until_placed(1)


async def a_node_without_a_block(stage: NetworkStage) -> None:
    await stage.kind_of_pods("runs", "llm", "n06")
    await stage.gang_of_kind(1, BLOCK, "llm")
    await stage.until_placed(1)


async def too_many_for_a_block(stage: NetworkStage) -> None:
    await stage.gang(5, BLOCK)
    await stage.until_reported(NO_CAPACITY)


async def too_many_for_a_spine(stage: NetworkStage) -> None:
    await stage.gang(7, SPINE)
    await stage.until_reported(NO_CAPACITY)


async def too_many_for_the_network(stage: NetworkStage) -> None:
    # The node that is in no domain would have free capacity for them.
    await stage.gang(16, "{}")
    await stage.until_reported(NO_CAPACITY)


async def a_layer_that_is_not_there(stage: NetworkStage) -> None:
    await stage.gang(2, rules(("RackLayer", "MustGather")))
    await stage.until_reported(NO_CAPACITY)


async def two_gangs_one_after_another(stage: NetworkStage) -> None:
    await stage.gang(4, BLOCK, "a")
    await stage.until_placed(4)
    await stage.gang(4, BLOCK, "b")
    await stage.until_placed(8)


async def a_group_of_gangs(stage: NetworkStage) -> None:
    gangs = [stage.named("a"), stage.named("b")]
    for gang in gangs:
        await stage.group(gang, 2, groups=names(gangs), network_topology_spec=BLOCK)
    for gang in gangs:
        await stage.pods_of(gang, 2)
    await stage.until_placed(4)


async def nodes_that_members_may_not_go_to(stage: NetworkStage) -> None:
    await stage.gang(2, BLOCK, nodeSelector={"example.com/spine": "s2"})
    await stage.until_placed(2)


async def nothing_is_requested_of_the_network(stage: NetworkStage) -> None:
    await stage.group(stage.named(), 9)
    await stage.pods_of(stage.named(), 9, nodeSelector={"kubernetes.io/hostname": "nowhere"})
    await stage.until_reported("didn't match")


SAME: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            one_node,
            one_block,
            one_block_of_two_nodes,
            one_spine,
            the_deepest_rule_counts,
            whole_cluster,
            prefer_alone,
            no_rules,
            multiples_of_blocks,
            multiples_of_nodes,
            multiples_leave_too_little,
            indices_as_the_names,
            one_pod_goes_to_its_kind,
            one_pod_does_not_go_to_another_kind,
            a_node_without_a_block,
            too_many_for_a_block,
            too_many_for_a_spine,
            too_many_for_the_network,
            a_layer_that_is_not_there,
            two_gangs_one_after_another,
            a_group_of_gangs,
            nodes_that_members_may_not_go_to,
            nothing_is_requested_of_the_network,
        )
    }
)


async def indices_against_the_names(stage: NetworkStage) -> None:
    await stage.group(stage.named(), 4, network_topology_spec=BLOCK)
    for number in range(4):
        await stage.pod(stage.named(), number, annotations={"network_topology_index": str(3 - number)})
    await stage.until_placed(4)


async def no_multiple_of_a_block(stage: NetworkStage) -> None:
    await stage.gang(3, rules(("BlockLayer", "PreferGather", 2)))
    await stage.until_reported(NO_CAPACITY)


async def two_pods_go_to_their_kind(stage: NetworkStage) -> None:
    await stage.kind_of_pods("runs", "llm", "n04")
    await stage.gang_of_kind(2, SPINE, "llm")
    await stage.until_placed(2)


BETTER: Final[Mapping[str, Scenario]] = MappingProxyType(
    {each.__name__: each for each in (indices_against_the_names, no_multiple_of_a_block, two_pods_go_to_their_kind)}
)
"""Those in which ours ends otherwise on purpose, see docs/differences.md."""


async def capacity_is_freed_in_a_block(stage: NetworkStage) -> None:
    await stage.fill()
    await stage.gang(4, BLOCK, priorityClassName="priority-100")
    await stage.until_placed(4)


async def no_block_can_be_freed(stage: NetworkStage) -> None:
    await stage.fill()
    await stage.gang(5, BLOCK, priorityClassName="priority-100")
    await stage.until_reported(NO_CAPACITY)


async def others_are_as_important(stage: NetworkStage) -> None:
    await stage.fill()
    await stage.gang(2, BLOCK, priorityClassName="priority-0")
    await stage.until_reported(NO_CAPACITY)


PREEMPTING: Final[Mapping[str, Scenario]] = MappingProxyType(
    {each.__name__: each for each in (capacity_is_freed_in_a_block, no_block_can_be_freed, others_are_as_important)}
)
"""For a profile with ``enablePreemption``."""


async def the_least_important_leave(stage: NetworkStage) -> None:
    await stage.fill(b0=10)
    await stage.gang(4, BLOCK, priorityClassName="priority-100")
    await stage.until_placed(4)
