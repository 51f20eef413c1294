"""Which nodes a DrainNodeGroup plans: as many as it may, and never more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.drain_node import DrainNode
from koordinator.api.drain_node_group import TerminationPolicy
from koordinator.api.node import Node
from koordinator.api.reservation import Reservation
from koordinator.descheduler.drain_group.planning import GroupFacts, NodeCapacity, capacity_of, next_node
from tests.descheduler.clusters import make_node, make_pod

RESOURCES = ("cpu", "memory")


def capacities() -> st.SearchStrategy[NodeCapacity]:
    amounts = st.integers(0, 100)
    return st.builds(
        lambda cpu, memory, used_cpu, used_memory: NodeCapacity(
            {"cpu": cpu, "memory": memory}, {"cpu": cpu - used_cpu, "memory": memory - used_memory}
        ),
        *[amounts] * 4,
    )


def available(node: str) -> DrainNode:
    status = {"phase": "Running", "conditions": [{"type": "OnceAvailable", "status": "True"}]}
    spec = {"nodeName": node, "confirmState": "WaitForConfirm"}
    return convert({"metadata": {"name": f"group-{node}"}, "spec": spec, "status": status}, DrainNode)


def planned(policy: TerminationPolicy, found: dict[str, NodeCapacity], cordoned: set[str]) -> tuple[list[str], str]:
    """The nodes in the order in which they are planned, when each finds places for its pods; and why no more are."""
    nodes: dict[str, Node] = {name: make_node(name, unschedulable=name in cordoned) for name in found}
    drains: dict[str, DrainNode] = {}
    while True:
        node, why_not = next_node(policy, list(found), GroupFacts(nodes, drains, capacities=found))
        if not node:
            return list(drains), why_not
        drains[node] = available(node)


@given(
    st.dictionaries(st.sampled_from("abcdef"), capacities(), min_size=1),
    st.sets(st.sampled_from("abcdef")),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 100),
)
def test_as_many_nodes_as_the_policy_allows(
    found: dict[str, NodeCapacity], cordoned: set[str], most: int | None, percentage: int | None
) -> None:
    policy = TerminationPolicy(max_node_count=most, percentage_of_resource_reserved=percentage)
    nodes, why_not = planned(policy, found, cordoned)
    assert why_not
    assert len(nodes) == len(set(nodes)) <= min(most or len(found), len(found))
    assert [found[node].score for node in nodes] == sorted((found[node].score for node in nodes), reverse=True)
    if percentage is None:
        assert len(nodes) == min(most or len(found), len(found))
    elif nodes:
        left = found.keys() - set(nodes) - cordoned
        for name in RESOURCES:
            free = sum(max(0, found[node].free[name]) for node in left)
            assert free * 100 >= percentage * sum(each.allocatable[name] for each in found.values())


def test_what_is_free_of_a_node() -> None:
    pods = [
        make_pod("web", "a", requests={"cpu": "1", "memory": "1Gi"}),
        make_pod("done", "a", requests={"cpu": "2"}, status={"phase": "Succeeded"}),
    ]
    waiting = {"phase": "Available", "nodeName": "a", "allocatable": {"cpu": "500m", "nvidia.com/gpu": "1"}}
    used = {"phase": "Available", "nodeName": "a", "allocatable": {"cpu": "1"}, "allocated": {"cpu": "1"}}
    reservations = [convert({"metadata": {"name": "r"}, "status": status}, Reservation) for status in (waiting, used)]
    found = capacity_of(make_node("a", cpu="4", memory="4Gi"), pods, reservations)
    assert found == NodeCapacity({"cpu": 4000, "memory": 4 << 30}, {"cpu": 2500, "memory": 3 << 30})
    assert found.score == (62 + 75) / 2
