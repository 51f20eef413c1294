"""Whatever comes and goes: no CPU is given away twice, no NUMA node is overcommitted, and what is cached is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.pod import Pod
from koordinator.model.cpu_allocation.topology import BindPolicy, cpu_mask, cpus_of
from koordinator.model.numa_topology.hints import NUMATopologyPolicy, numa_nodes_of
from koordinator.model.numa_topology.merging import Machine, merge
from koordinator.scheduler.configuration.upstream_arguments import ResourceSpec
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    FreeCapacity,
    NumaAllocator,
    PodAllocation,
    Request,
    Taken,
    Zones,
)
from koordinator.scheduler.plugins.node_numa_resource.filtering import hints_of
from koordinator.scheduler.plugins.node_numa_resource.reserved import NOTHING_RESTORED, Choice
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer
from tests.examples import examples
from tests.model.cpu_allocation.machines import machine
from tests.scheduler.fakes import describe
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, Machines, pod, topology

_DOMAIN = "node.koordinator.sh"
_RESERVED = {f"{_DOMAIN}/reservation": {"reservedCPUs": "0-1"}}
_POLICIES = ("", "BestEffort", "Restricted", "SingleNUMANode")
_LABELS = st.fixed_dictionaries(
    {},
    optional={
        f"{_DOMAIN}/numa-topology-policy": st.sampled_from(_POLICIES[1:]),
        f"{_DOMAIN}/cpu-bind-policy": st.sampled_from(["FullPCPUsOnly", "SpreadByPCPUs"]),
        f"{_DOMAIN}/numa-allocate-strategy": st.sampled_from(["MostAllocated", "LeastAllocated"]),
    },
)
_RATIOS = st.sampled_from([{}, {annotation_keys.RESOURCE_AMPLIFICATION_RATIO: {"cpu": 1.5}}])


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    """Some pods; those of one kind are alike."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        policy, bind = draw(st.sampled_from(_POLICIES)), draw(st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]))
        spec = draw(st.sampled_from([None, {"requiredCPUBindPolicy": bind}, {"preferredCPUBindPolicy": bind}]))
        exclusive = draw(st.sampled_from([{}, {"preferredCPUExclusivePolicy": "PCPULevel"}]))
        found.append(
            pod(
                f"p{number}",
                str(draw(st.integers(1, 6))),
                "1Gi",
                qos=draw(st.sampled_from(["LSR", "LS"])),
                spec={**spec, **exclusive} if spec else None,
                numa={"numaTopologyPolicy": policy} if policy else None,
            )
        )
    return found


@settings(max_examples=examples(60), deadline=None)
@given(pods(), _LABELS, _RATIOS, st.data())
def test_nothing_is_given_away_twice(
    requested: list[Pod], labels: Mapping[str, str], annotations: Mapping[str, Any], data: st.DataObject
) -> None:
    cpu = "24" if annotations else "16"
    machines = Machines(
        topology("a", annotations=_RESERVED), names="ab", labels=labels, annotations=annotations, cpu=cpu
    )
    differences: list[str] = []
    check = EvaluationCheck(machines.profile, machines.view, differences.append)
    machines.engine.refresh = check.refresh
    there: list[Pod] = []
    for each in requested:
        decision = machines.engine.decide(describe(each), NOW)
        if isinstance(decision, Placement):
            # What Filter lets pass is reserved.
            assert machines.engine.assume(decision) is None
            there.append(each)
        if there and data.draw(st.integers(0, 3)) == 0:
            machines.state.forget(there.pop(0).metadata.uid)
        if data.draw(st.integers(0, 4)) == 0:
            machines.notify(topology("b"))
        check_books(machines)
    assert differences == []


def check_books(machines: Machines) -> None:
    """No CPU and no part of a NUMA node belongs to two pods, and reserved CPUs to none."""
    plugin = machines.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    for name, row in machines.view.columns.row_of.items():
        node = plugin.node(row)
        held = [found for uid in machines.view.pods_on[row] if (found := machines.held_by(uid)) is not None]
        cpus = [cpu for each in held for cpu in cpus_of(each.cpus)]
        assert len(cpus) == len(set(cpus)), name
        assert not cpu_mask(cpus) & node.reserved
        assert cpu_mask(cpus) == node.taken.cpus
        for number, zone in node.rules.zones.amounts.items():
            for resource, amount in zone.items():
                assert sum(each.amounts.get(number, {}).get(resource, 0) for each in held) <= amount


@settings(max_examples=examples(40), deadline=None)
@given(st.permutations(range(4)), st.booleans())
def test_it_does_not_matter_in_which_order_the_cluster_is_heard_of(order: list[int], again: bool) -> None:
    cpus = [
        pod("x", "2", annotations={annotation_keys.RESOURCE_STATUS: {"cpuset": "0-1"}}),
        pod("y", "2", annotations={annotation_keys.RESOURCE_STATUS: {"cpuset": "8-9"}}),
    ]
    zones = pod(
        "z",
        "3",
        annotations={annotation_keys.RESOURCE_STATUS: {"numaNodeResources": [{"node": 0, "resources": {"cpu": "3"}}]}},
    )
    machines = Machines()
    pods = [*cpus, zones]
    for number in order:
        if number < len(pods):
            machines.bound(pods[number], "a")
        else:
            machines.notify(topology())
    if again:
        machines.state.set_node_object(NODE_RESOURCE_TOPOLOGIES.name, "a", None)
        machines.notify(topology())

    plugin = machines.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    node = plugin.node(0)
    assert (node.taken.cpus, node.taken.amounts) == (cpu_mask([0, 1, 8, 9]), {0: {"cpu": 3000}})
    assert machines.placed(pod("p", "2")) == "2-3"


def test_what_is_reported_twice_counts_once() -> None:
    machines = Machines(topology())
    requested = pod("p", "2")
    machines.placed(requested)
    plugin, held = machines.profile.plugins[NUMA.name], machines.held(requested)
    assert isinstance(plugin, NUMA)
    assert held is not None

    plugin.on_allocated(0, describe(requested), held)
    plugin.on_released(0, describe(pod("q")), held)
    check_books(machines)
    plugin.on_released(0, describe(requested), held)

    assert not plugin.node(0).taken.cpus


def test_equal_allocations_are_the_same_in_any_order_of_numa_nodes() -> None:
    one = PodAllocation.of(0b1, {0: {}, 1: {}})

    assert one == PodAllocation.of(0b1, {1: {}, 0: {}})


@st.composite
def numa_allocators(draw: st.DrawFn) -> NumaAllocator:
    """What a machine of two or three NUMA nodes, of which something is taken, has for a pod."""
    cpus = machine(numa_nodes=draw(st.integers(2, 3)), cores=3, threads=2)
    taken = draw(st.integers(0, cpus.all)) & draw(st.integers(0, cpus.all))
    zones = {number: {"cpu": 6000, "memory": 10} for number in cpus.numa_nodes}
    amounts = {
        number: {"cpu": draw(st.integers(0, 4000)), "memory": draw(st.integers(0, 10))}
        for number in cpus.numa_nodes
        if draw(st.booleans())
    }
    count = draw(st.integers(0, 8))
    cpu = count * 1000 if count else draw(st.integers(1, 9000))
    request = Request(
        {"cpu": cpu, "memory": draw(st.integers(0, 20)), "example.com/other": 1},
        {},
        cpus=count,
        bind=draw(st.sampled_from([BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS])),
        required=draw(st.booleans()),
    )
    return NumaAllocator(FreeCapacity(cpus, cpus.all, Zones(zones), Taken(taken, amounts)), request)


@settings(max_examples=examples(300), deadline=None)
@given(numa_allocators(), st.none() | st.integers(1, 7))
def test_fits_says_whether_allocate_succeeds(allocator: NumaAllocator, mask: int | None) -> None:
    found = allocator.allocate(mask)

    assert allocator.fits(mask) is isinstance(found, PodAllocation)
    if isinstance(found, PodAllocation) and mask is not None:
        given_cpu = sum(amounts.get("cpu", 0) for amounts in found.amounts.values())
        assert given_cpu == allocator.request.amounts["cpu"]
        assert {number for number, _ in found.resources} <= set(numa_nodes_of(mask))


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from(list(NUMATopologyPolicy)[1:]))
def test_the_smallest_sets_of_many_numa_nodes_are_enough(data: st.DataObject, policy: NUMATopologyPolicy) -> None:
    cpus = machine(numa_nodes=5, cores=1, threads=2)
    zones = {
        number: {"cpu": 2000, "memory": data.draw(st.integers(0, 8)), **({"example.com/card": 1} if number % 2 else {})}
        for number in cpus.numa_nodes
    }
    taken = {
        number: {"cpu": data.draw(st.integers(0, 2)) * 1000, "memory": data.draw(st.integers(0, 4))}
        for number in cpus.numa_nodes
    }
    wanted = {"cpu": 1000 * data.draw(st.integers(1, 6)), "memory": data.draw(st.integers(1, 8))}
    if data.draw(st.booleans()):
        wanted["example.com/card"] = 1
    choice = Choice(FreeCapacity(cpus, cpus.all, Zones(zones), Taken(0, taken)), Request(wanted, {}), NOTHING_RESTORED)
    scorer = NUMAScorer([ResourceSpec(name="cpu"), ResourceSpec(name="memory")], most=data.draw(st.booleans()))
    here = Machine(tuple(cpus.numa_nodes))

    every, few = [hints_of(choice, policy, scorer, ignoring=False, narrow=narrow) for narrow in (False, True)]

    expected, found = merge(policy, here, [every]), merge(policy, here, [few])
    assert bool(found.reasons) == bool(expected.reasons)
    assert found.reasons or found.hint == expected.hint
