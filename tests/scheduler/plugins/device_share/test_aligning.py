"""Topology hints of devices: which NUMA nodes would do for a pod."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.model.numa_topology.hints import Hints, NUMATopologyHint, NUMATopologyPolicy
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.numa_topology import NUMAAlignment, NUMATopologyPolicySource
from koordinator.scheduler.engine.pod_info import PodInfo
from tests.scheduler.plugins.device_share.machines import Machines, device, eight, gpu, make_device_pod, rdma

CARDS = [rdma(minor, numa=minor, pcie=f"c{minor}") for minor in range(2)]


def hints(machines: Machines, annotations: dict[str, str] | None = None, **requests: Any) -> Any:
    pod = make_device_pod("p", **requests)
    pod.metadata.annotations.update(annotations or {})
    return machines.plugin.get_pod_topology_hints(machines.info(pod), 0)


@pytest.mark.parametrize(
    ("gpus", "masks"),
    [
        (1, [(1, True, 500), (2, True, 0), (3, False, 500)]),
        (4, [(1, True, 500), (2, True, 0), (3, False, 500)]),
        (5, [(3, True, 500)]),
    ],
)
def test_every_set_that_has_enough_is_named_and_the_smallest_are_preferred(
    gpus: int, masks: list[tuple[int, bool, int]]
) -> None:
    found = hints(Machines(device(*eight())), gpu=100 * gpus)
    assert found == {"gpu": [NUMATopologyHint(mask, preferred, score=score) for mask, preferred, score in masks]}


def test_all_types_of_devices_have_the_same_hints() -> None:
    found = hints(Machines(device(*eight(), *CARDS[1:])), gpu=100, rdma=10)
    assert [each.mask for each in found["gpu"]] == [2, 3]
    assert found["rdma"] == found["gpu"]


def test_a_reason_is_given_where_not_even_all_are_enough() -> None:
    assert hints(Machines(device(*eight())), gpu=900) == Reason("Insufficient NUMA Scoped Devices", unresolvable=True)


@pytest.mark.parametrize("machines", [Machines(), Machines(device(gpu(0, numa=None)))])
def test_there_are_no_hints_where_nobody_knows_of_numa_nodes(machines: Machines) -> None:
    assert hints(machines, gpu=100) == {}


def test_devices_that_somebody_has_chosen_are_one_hint() -> None:
    chosen = json.dumps({"gpu": [{"minor": 5, "resources": {"koordinator.sh/gpu-core": "100"}}]})
    extensions = '{"extensions":{"DeviceShare":{}}}'
    annotations = {DEVICE_ALLOCATED: chosen, "internal.scheduling.koordinator.sh/scheduling-hint": extensions}
    found = hints(Machines(device(*eight())), annotations, gpu=100)
    assert found == {"gpu": [NUMATopologyHint(2, preferred=True, score=500)]}


@pytest.mark.parametrize(("mask", "fits"), [(None, True), (1, False), (2, True)])
def test_an_affinity_is_checked_against_devices(mask: int | None, fits: bool) -> None:
    machines = Machines(device(*eight(), *CARDS[1:]))
    info = machines.info(make_device_pod("p", gpu=100, rdma=10))
    assert (not machines.plugin.filter_affinity(info, NUMATopologyHint(mask), 0)) is fits


def test_nothing_is_aligned_if_the_arguments_say_so() -> None:
    assert hints(Machines(device(*eight()), disableDeviceNUMATopologyAlignment=True), gpu=100) == {}


def test_on_machines_of_very_many_numa_nodes_single_ones_and_all_are_tried() -> None:
    found = hints(Machines(device(*[gpu(minor, numa=minor, pcie=str(minor)) for minor in range(12)])), gpu=200)
    assert [each.mask for each in found["gpu"]] == [2**12 - 1]


class OneNode(NUMATopologyPolicySource):
    """Aligns every pod on one NUMA node: on the one that its label ``numa`` names, or on any."""

    name = "OneNode"

    def topology_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.labels.get("numa")

    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        wanted = pod.pod.metadata.labels.get("numa")
        return {} if wanted is None else {"cpu": [NUMATopologyHint(1 << int(wanted), preferred=True)]}

    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        return ()

    def numa_alignment(self, pod: PodInfo, row: int) -> NUMAAlignment:
        return NUMAAlignment(NUMATopologyPolicy.SINGLE_NUMA_NODE, (0, 1))


def aligned(**args: Any) -> Machines:
    return Machines(device(*eight()), more=(OneNode,), **args)


@pytest.mark.parametrize(("numa", "minors"), [("0", [0, 1]), ("1", [4, 5])])
def test_devices_come_from_the_numa_node_that_another_plugin_wants(numa: str, minors: list[int]) -> None:
    machines = aligned()
    machines.place(make_device_pod("p", gpu=200, labels={"numa": numa}))
    assert machines.minors("p") == minors


def test_devices_of_two_numa_nodes_are_not_aligned() -> None:
    machines = aligned()
    for name in ("p", "q"):
        machines.place(make_device_pod(name, gpu=200))
    machines.place(make_device_pod("r", gpu=300))
    # Of the four GPUs of each NUMA node two and one are left.
    pod = machines.info(make_device_pod("s", gpu=300))
    admission = machines.engine.handle.numa_topology.admit(pod, 0)
    assert [each.text for each in admission.reasons] != []


def test_a_pod_whose_numa_node_is_full_is_rejected_and_takes_nothing_elsewhere() -> None:
    machines = aligned()
    machines.place(make_device_pod("p", gpu=400, labels={"numa": "0"}))
    pod = machines.info(make_device_pod("q", gpu=100, labels={"numa": "0"}))
    assert machines.engine.handle.numa_topology.affinity(pod, 0) is None
    machines.place(make_device_pod("r", gpu=100, labels={"numa": "1"}))
    assert machines.minors("r") == [4]


def test_with_alignment_off_devices_are_checked_all_the_same() -> None:
    machines = aligned(disableDeviceNUMATopologyAlignment=True)
    machines.place(make_device_pod("p", gpu=800, labels={"numa": "0"}))
    assert "Insufficient GPU Devices" in machines.message(make_device_pod("q", gpu=100, labels={"numa": "0"}))
