"""What is taken is free, just as much as was requested, and as the bind policy has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.model.cpu_allocation.accumulator import (
    ExclusivePolicy,
    NotEnoughCPUsError,
    Preferences,
    take,
    take_preferred,
)
from koordinator.model.cpu_allocation.topology import CPU, BindPolicy, CPUTopology, cpu_mask, cpus_of
from tests.model.cpu_allocation.machines import machine

_REQUIRED = (BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS)


@st.composite
def topologies(draw: st.DrawFn) -> CPUTopology:
    counts = [draw(st.integers(1, most)) for most in (2, 2, 5, 3)]
    return machine(*counts, interleaved=draw(st.booleans()))


@st.composite
def situations(draw: st.DrawFn) -> tuple[CPUTopology, int, Preferences]:
    """A machine, its free CPUs, and what is preferred of them."""
    topology = draw(topologies())
    free = cpu_mask(draw(st.sets(st.sampled_from(sorted(topology.cpus)))))
    wish = Preferences(
        draw(st.sampled_from(BindPolicy)),
        draw(st.sampled_from(ExclusivePolicy)),
        topology.all & ~free & draw(st.integers(0, topology.all)),
        draw(st.booleans()),
    )
    return topology, free, wish


@given(situations(), st.data())
def test_just_as_many_free_cpus_are_taken_preferred_ones_first(
    situation: tuple[CPUTopology, int, Preferences], data: st.DataObject
) -> None:
    topology, free, wish = situation
    count = data.draw(st.integers(0, free.bit_count()))
    preferred = data.draw(st.integers(0, topology.all))

    taken = take_preferred(topology, free, preferred, count, wish)

    assert taken & ~free == 0
    assert taken.bit_count() == count
    assert (taken & preferred).bit_count() == min(count, (free & preferred).bit_count())


@given(situations(), st.data())
def test_a_required_policy_is_satisfied_with_what_is_usable_for_it(
    situation: tuple[CPUTopology, int, Preferences], data: st.DataObject
) -> None:
    topology, free, wish = situation
    policy = data.draw(st.sampled_from(_REQUIRED))
    usable = topology.usable(free, policy)
    step = topology.cpus_per_core if policy is BindPolicy.FULL_PCPUS else 1
    count = step * data.draw(st.integers(0, usable.bit_count() // step))

    taken = take(topology, usable, count, Preferences(policy, wish.exclusive, wish.others, wish.packs))

    assert topology.satisfies(taken, policy)


@given(situations(), st.data())
def test_it_does_not_matter_in_which_order_cpus_are_named(
    situation: tuple[CPUTopology, int, Preferences], data: st.DataObject
) -> None:
    topology, free, wish = situation
    turned = data.draw(st.permutations(list(topology.cpus.values())))
    count = free.bit_count() // 2

    assert take(CPUTopology(turned), free, count, wish) == take(topology, free, count, wish)


def test_more_than_is_free_is_refused() -> None:
    with pytest.raises(NotEnoughCPUsError, match="not enough cpus available to satisfy request"):
        take(machine(), 0b111, 4, Preferences())


def test_an_odd_number_of_cpus_is_not_rounded_up_on_many_sockets() -> None:
    # The original takes a whole core of each further socket, and so 8 CPUs.
    topology = machine(sockets=4, cores=3, interleaved=True)
    free = cpu_mask([*range(1, 7), *range(8, 17), *range(18, 21), 22, 23])

    taken = take(topology, free, 7, Preferences(BindPolicy.FULL_PCPUS, packs=True))

    assert taken.bit_count() == 7


def test_cores_of_another_exclusive_pod_are_taken_last() -> None:
    wish = Preferences(BindPolicy.SPREAD_BY_PCPUS, ExclusivePolicy.CORE, others=0b1)

    assert cpus_of(take(machine(), 0b1111_1110, 3, wish)) == [2, 4, 6]
    assert cpus_of(take(machine(), 0b1111_1110, 7, wish)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (machine(sockets=2, cores=4), (2, 8, 8)),
        (machine(numa_nodes=2, cores=2, threads=1), (1, 2, 4)),
    ],
)
def test_parts_of_a_machine_have_their_share_of_cpus(topology: CPUTopology, expected: tuple[int, int, int]) -> None:
    assert (topology.cpus_per_core, topology.cpus_per_numa_node, topology.cpus_per_socket) == expected


def test_without_cpus_there_is_no_topology() -> None:
    topology = CPUTopology([])

    assert not topology
    assert topology.cpus_per_core == 0


def test_of_two_cpus_with_one_number_the_last_counts() -> None:
    topology = CPUTopology([CPU(0, 0, 0, 0), CPU(0, 1, 1, 0)])

    assert topology.numa_nodes == {1: 1}
