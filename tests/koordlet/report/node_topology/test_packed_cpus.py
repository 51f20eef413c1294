"""CPUs are taken as kubelet's static CPU manager takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.report.node_topology.kubelet_cpus import take_packed
from koordinator.node.cpu_topology import CPUTopology
from tests.koordlet.report.node_topology.machines import machine


@pytest.mark.parametrize(
    ("topology", "count", "taken"),
    [
        (machine(1, 1, 4, 2), 0, set()),
        (machine(1, 1, 4, 2), 2, {0, 4}),
        (machine(1, 1, 4, 2), 3, {0, 4, 1}),
        (machine(1, 1, 4, 1), 2, {0, 1}),
        (machine(2, 1, 2, 2), 4, {0, 4, 1, 5}),
        (machine(2, 1, 2, 2), 5, {0, 4, 1, 5, 2}),
        (machine(1, 2, 2, 2), 5, {0, 4, 1, 5, 2}),
        (machine(1, 1, 4, 2), 8, set(range(8))),
    ],
)
def test_what_is_taken(topology: CPUTopology, count: int, taken: set[int]) -> None:
    assert take_packed(topology, count) == taken


def test_more_than_there_are_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="9 CPUs are wanted, and there are 8"):
        take_packed(machine(1, 1, 4, 2), 9)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.data())
def test_the_number_that_is_wanted_and_as_few_cores_as_possible(
    sockets: int, numa_nodes: int, cores: int, threads: int, data: st.DataObject
) -> None:
    topology = machine(sockets, numa_nodes, cores, threads)
    count = data.draw(st.integers(0, len(topology.cpus)))
    taken = take_packed(topology, count)
    assert len(taken) == count
    touched = {cpu.core for cpu in topology.cpus if cpu.cpu in taken}
    assert len(touched) == -(-count // threads)
