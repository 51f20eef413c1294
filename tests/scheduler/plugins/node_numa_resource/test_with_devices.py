"""CPUs and GPUs of a pod come from the same NUMA node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.labels import QOS_CLASS
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.model.cpu_allocation.topology import cpus_of
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.plugins.node_numa_resource.allocation import PodAllocation
from tests.examples import examples
from tests.scheduler.plugins.device_share.machines import Machines, device, eight, make_device_pod
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, topology

_POLICY = "node.koordinator.sh/numa-topology-policy"


def machines(policy: str) -> Machines:
    """Two CPUs and four GPUs on each of two NUMA nodes."""
    made = Machines(device(*eight()), more=(NUMA,), labels={_POLICY: policy})
    made.state.set_node_object(NODE_RESOURCE_TOPOLOGIES.name, "a", topology(cores=1))
    return made


def requesting(name: str, cpus: int, gpus: int, **changes: Any) -> Pod:
    found = make_device_pod(name, gpu=100 * gpus, labels={QOS_CLASS: "LSR"}, **changes)
    found.spec.containers[0].resources.requests["cpu"] = Quantity.parse(str(cpus))
    return found


def numa_nodes(made: Machines, name: str) -> tuple[set[int], set[int]]:
    """The NUMA nodes of a pod's CPUs and of its GPUs."""
    held: PodAllocation | None = made.view.allocations.of(NUMA.name, f"uid-{name}")
    cpus = cpus_of(held.cpus) if held is not None else []
    return {cpu // 2 for cpu in cpus}, {minor // 4 for minor in made.minors(name)}


def test_cpus_are_taken_where_gpus_are_left() -> None:
    made = machines("SingleNUMANode")
    made.place(make_device_pod("x", gpu=400))

    made.place(requesting("p", 1, 2))

    assert numa_nodes(made, "p") == ({1}, {1})


def test_gpus_are_taken_where_cpus_are_left() -> None:
    made = machines("SingleNUMANode")
    made.place(requesting("x", 2, 1))

    made.place(requesting("p", 2, 1))

    assert numa_nodes(made, "p") == ({1}, {1})


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted"])
def test_a_pod_whose_cpus_and_gpus_are_apart_is_told_so(policy: str) -> None:
    made = machines(policy)
    made.place(make_device_pod("x", gpu=400))
    made.place(requesting("y", 2, 1))

    message = made.message(requesting("p", 2, 1))

    assert "Unaligned NUMA Hint cause cpu prefer" in message
    assert "gpu prefer [10] among" in message


def test_best_effort_takes_them_apart() -> None:
    made = machines("BestEffort")
    made.place(make_device_pod("x", gpu=400))
    made.place(requesting("y", 2, 1))

    made.place(requesting("p", 2, 1))

    assert numa_nodes(made, "p") == ({0}, {1})


@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from(["SingleNUMANode", "Restricted", "BestEffort"]),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3), st.booleans()), max_size=8),
)
def test_what_passes_filters_is_reserved_and_aligned(policy: str, steps: list[tuple[int, int, bool]]) -> None:
    made = machines(policy)
    for number, (cpus, gpus, leaves) in enumerate(steps):
        pod = requesting(f"p{number}", cpus, gpus)
        decision = made.decide(pod)
        if isinstance(decision, Placement):
            assert made.engine.assume(decision) is None
            of_cpus, of_gpus = numa_nodes(made, pod.metadata.name)
            assert policy == "BestEffort" or not gpus or of_cpus == of_gpus
            if leaves:
                made.state.forget(pod.metadata.uid)
    assert made.differences == []
