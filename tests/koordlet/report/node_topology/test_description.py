"""Who may run on which CPUs and what each NUMA node has, as the original tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.koordlet.report.node_topology.cpu_pools import CPUPool
from koordinator.koordlet.report.node_topology.description import (
    NodeTopology,
    NodeTopologyError,
    TopologyFacts,
    describe,
)
from koordinator.koordlet.report.node_topology.kubelet_cpus import KubeletCPUs
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cpu_topology import CPUBasicInfo
from koordinator.node.memory import NUMANodeMemory
from tests.koordlet.report.node_topology.machines import GIB, machine, memory

TWO_NUMA_NODES = machine(1, 2, 2, 2)
"""CPUs 0, 1, 4 and 5 are of NUMA node 0, the others of NUMA node 1."""
LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V2, CgroupDriver.SYSTEMD)
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"


def make_pod(uid: str, qos: str = "", cpus: str = "", phase: str = "Running") -> NodePod:
    metadata: dict[str, Any] = {"name": f"name-of-{uid}", "namespace": "shop", "uid": uid}
    if qos:
        metadata["labels"] = {"koordinator.sh/qosClass": qos}
    if cpus:
        metadata["annotations"] = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}
    (made,) = node_pods([convert({"metadata": metadata, "status": {"phase": phase}}, Pod)], LAYOUT)
    return made


def make_node(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Node:
    return convert(
        {
            "metadata": {"name": "n", "labels": labels or {}, "annotations": annotations or {}},
            "status": {
                "capacity": {"cpu": "8", "memory": "4Gi"},
                "allocatable": {"cpu": "7500m", "memory": f"{4 * GIB - 1001}"},
            },
        },
        Node,
    )


def reported(*pods: NodePod, **facts: Any) -> NodeTopology:
    return describe(
        TopologyFacts(
            cpus=facts.pop("cpus", TWO_NUMA_NODES),
            basic_info=facts.pop("basic_info", CPUBasicInfo("a model", "a vendor", True, False, "fff")),
            memory=facts.pop("memory", memory(2, 2)),
            node=facts.pop("node", make_node()),
            pods=pods,
            **facts,
        )
    )


def pools(topology: NodeTopology) -> tuple[list[str], list[str]]:
    """LS and BE pools as lists of CPUs."""
    keys = ("node.koordinator.sh/cpu-shared-pools", "node.koordinator.sh/be-cpu-shared-pools")
    ls, be = ([pool.get("cpuset", "") for pool in topology.annotations[key]] for key in keys)
    return ls, be


def test_everything_that_is_told_of_a_node_without_pods() -> None:
    topology = reported(kubelet=KubeletCPUs("none", topology_policy="RestrictedPodLevel"))
    pool_documents = [
        {"socket": 0, "node": 0, "cpuset": "0-1,4-5"},
        {"socket": 0, "node": 1, "cpuset": "2-3,6-7"},
    ]
    cores = {cpu: cpu % 4 for cpu in range(8)}
    assert topology.annotations == {
        "node.koordinator.sh/cpu-basic-info": {
            "cpuModel": "a model",
            "hyperThreadEnabled": True,
            "catL3CbmMask": "fff",
            "vendorID": "a vendor",
        },
        "node.koordinator.sh/cpu-topology": {
            "detail": [{"id": cpu, "core": core, "socket": 0, "node": core // 2} for cpu, core in cores.items()]
        },
        "node.koordinator.sh/cpu-shared-pools": pool_documents,
        "node.koordinator.sh/be-cpu-shared-pools": pool_documents,
        "node.koordinator.sh/pod-cpu-allocs": None,
        "kubelet.koordinator.sh/cpu-manager-policy": {"policy": "none"},
        RESERVATION: {},
        SYSTEM_QOS: None,
    }
    assert topology.kubelet.topology_policy == "RestrictedPodLevel"


@pytest.mark.parametrize(
    ("qos", "ls", "be"),
    [
        ("LSE", ["1,5", "2-3,6-7"], ["1,5", "2-3,6-7"]),
        ("LSR", ["1,5", "2-3,6-7"], ["0-1,4-5", "2-3,6-7"]),
        ("", ["1,5", "2-3,6-7"], ["0-1,4-5", "2-3,6-7"]),
    ],
)
def test_cpus_of_a_pod_leave_the_pools(qos: str, ls: list[str], be: list[str]) -> None:
    assert pools(reported(make_pod("a", qos, "0,4"))) == (ls, be)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_gives_its_cpus_back(phase: str) -> None:
    assert pools(reported(make_pod("a", "LSE", "0,4", phase=phase))) == pools(reported())


@pytest.mark.parametrize("cpus", ["none of them", "0-"])
def test_cpus_that_cannot_be_read_are_nobodys(cpus: str) -> None:
    assert pools(reported(make_pod("a", "LSE", cpus))) == pools(reported())


def test_a_numa_node_of_which_all_cpus_are_taken_has_no_pool() -> None:
    assert pools(reported(make_pod("a", "LSE", "0-1,4-5"))) == (["2-3,6-7"], ["2-3,6-7"])


def test_cpus_that_kubelet_has_given_away_leave_both_pools_and_are_reported() -> None:
    pods = [make_pod("b"), make_pod("ls", "LS"), make_pod("moved", "LSR", "7")]
    given_away = {"b": frozenset({1}), "gone": frozenset({2, 3}), "ls": frozenset({4}), "moved": frozenset({5})}
    topology = reported(*pods, of_kubelet=given_away)
    assert pools(topology) == (["0,4-5", "6"], ["0,4-5", "6-7"])
    assert topology.annotations["node.koordinator.sh/pod-cpu-allocs"] == [
        {"namespace": "shop", "name": "name-of-b", "uid": "b", "cpuset": "1", "managedByKubelet": True},
        {"uid": "gone", "cpuset": "2-3", "managedByKubelet": True},
    ]


@pytest.mark.parametrize(
    ("annotation", "document", "ls"),
    [
        ({"reservedCPUs": "0,4"}, {"reservedCPUs": "0,4"}, ["1,5", "2-3,6-7"]),
        ({"reservedCPUs": "0-1,0"}, {"reservedCPUs": "0-1"}, ["4-5", "2-3,6-7"]),
        ({"resources": {"cpu": "1500m"}}, {"resources": {"cpu": "1500m"}, "reservedCPUs": "0,4"}, ["1,5", "2-3,6-7"]),
        ({"resources": {"cpu": "9"}}, {"resources": {"cpu": "9"}}, ["0-1,4-5", "2-3,6-7"]),
        ({"reservedCPUs": "all"}, {}, ["0-1,4-5", "2-3,6-7"]),
        ({"reservedCPUs": "0-1,4-5"}, {"reservedCPUs": "0-1,4-5"}, ["", "2-3,6-7"]),
        ("no object", {}, ["0-1,4-5", "2-3,6-7"]),
    ],
)
def test_what_the_node_keeps_for_others(annotation: Any, document: dict[str, Any], ls: list[str]) -> None:
    topology = reported(node=make_node({RESERVATION: json.dumps(annotation)}))
    assert topology.annotations[RESERVATION] == document
    assert pools(topology) == (ls, ls)
    assert format_cpu_list(topology.kept_cpus) == document.get("reservedCPUs", "")


@pytest.mark.parametrize(
    ("annotation", "ls"),
    [
        ({"cpuset": "2"}, ["0-1,4-5", "3,6-7"]),
        ({"cpuset": "2", "cpusetExclusive": True}, ["0-1,4-5", "3,6-7"]),
        ({"cpuset": "2", "cpusetExclusive": False}, ["0-1,4-5", "2-3,6-7"]),
        ({"cpuset": "two"}, ["0-1,4-5", "2-3,6-7"]),
    ],
)
def test_cpus_of_system_pods(annotation: dict[str, Any], ls: list[str]) -> None:
    topology = reported(node=make_node({SYSTEM_QOS: json.dumps(annotation)}))
    assert topology.annotations[SYSTEM_QOS] == annotation
    assert pools(topology) == (ls, ls)


def test_an_annotation_of_system_pods_that_cannot_be_read_is_named() -> None:
    with pytest.raises(NodeTopologyError, match=r"the Node's metadata.annotations.*system-qos-resource"):
        reported(node=make_node({SYSTEM_QOS: "{"}))


@pytest.mark.parametrize(
    ("options", "ls"),
    [
        ({"strict-cpu-reservation": "true"}, ["1,4-5", "2-3,6-7"]),
        ({"strict-cpu-reservation": "false"}, ["0-1,4-5", "2-3,6-7"]),
        # Then the kubelet itself lets any container on them.
        (None, ["0-1,4-5", "2-3,6-7"]),
    ],
)
def test_cpus_that_the_kubelet_keeps_from_all_pods_are_in_no_pool(
    options: dict[str, str] | None, ls: list[str]
) -> None:
    topology = reported(kubelet=KubeletCPUs("static", options, frozenset({0})))
    assert pools(topology) == (ls, ls)
    assert topology.kept_cpus == frozenset(range(8)) - frozenset().union(*map(parse_cpu_list, ls))


def zone_amounts(topology: NodeTopology) -> list[dict[str, str]]:
    return [{resource.name: str(resource.allocatable) for resource in zone.resources} for zone in topology.zones]


def test_zones_have_what_the_numa_nodes_have() -> None:
    huge = [{2048: 512, 1048576: 0}, {2048: 0, 1048576: 1}]
    topology = reported(memory=memory(2, 3, huge_pages=huge))
    assert [(zone.name, zone.type) for zone in topology.zones] == [("node-0", "Node"), ("node-1", "Node")]
    assert zone_amounts(topology) == [
        {"cpu": "4", "hugepages-1Gi": "0", "hugepages-2Mi": "1Gi", "memory": "1Gi"},
        {"cpu": "4", "hugepages-1Gi": "1Gi", "hugepages-2Mi": "0", "memory": "2Gi"},
    ]


def test_memory_without_cpus_has_a_zone() -> None:
    assert [amounts["cpu"] for amounts in zone_amounts(reported(memory=memory(2, 2, 4)))] == ["4", "4", "0"]


def test_cpus_whose_memory_is_not_known_have_a_zone_without_memory() -> None:
    zones = zone_amounts(reported(memory=memory(2)))
    assert [amounts["cpu"] for amounts in zones] == ["4", "4"]
    assert [amounts["memory"] != "0" for amounts in zones] == [True, False]


def test_zones_are_in_the_order_of_their_names() -> None:
    topology = reported(memory=memory(*range(1, 12)))
    assert [zone.name for zone in topology.zones][:3] == ["node-0", "node-1", "node-10"]


@pytest.mark.parametrize(
    ("value", "cpu", "size"),
    [("true", "3750m", str(2 * GIB - 501)), ("false", "4", "2Gi"), ("", "4", "2Gi")],
)
def test_what_is_reserved_on_the_node_is_taken_off_each_zone_if_requested(value: str, cpu: str, size: str) -> None:
    label = "node.koordinator.sh/enable-numa-reservation"
    topology = reported(node=make_node(labels={label: value}))
    assert [(amounts["cpu"], amounts["memory"]) for amounts in zone_amounts(topology)] == [(cpu, size)] * 2
    assert topology.labels == {label: value or None}


@pytest.mark.parametrize(("counts", "sizes"), [((2, 0), ["1023Mi", "3071Mi"]), ((0, 0), ["2047Mi", "2047Mi"])])
def test_the_pool_of_huge_pages_is_taken_off_a_zone_once(counts: tuple[int, int], sizes: list[str]) -> None:
    """Of 6 GiB, 2 are huge pages, and 2 MiB are reserved. Without the gate, koordlet knows of no huge pages."""
    status = {
        "capacity": {"cpu": "8", "memory": "6Gi", "hugepages-1Gi": "2Gi"},
        "allocatable": {"cpu": "8", "memory": "4094Mi"},
    }
    labels = {"node.koordinator.sh/enable-numa-reservation": "true"}
    node = convert({"metadata": {"name": "n", "labels": labels}, "status": status}, Node)
    topology = reported(memory=memory(3, 3, huge_pages=[{1048576: count} for count in counts]), node=node)
    assert [amounts["memory"] for amounts in zone_amounts(topology)] == sizes


_CPUS = st.frozensets(st.integers(0, 7))


@given(st.lists(st.tuples(st.sampled_from(["LSE", "LSR", "LS", ""]), _CPUS)), st.dictionaries(st.text(), _CPUS))
def test_no_cpu_is_in_two_hands(drawn: list[tuple[str, frozenset[int]]], of_kubelet: dict[str, frozenset[int]]) -> None:
    pods = [make_pod(f"p{number}", qos, ",".join(map(str, cpus))) for number, (qos, cpus) in enumerate(drawn)]
    topology = reported(*pods, of_kubelet={uid: cpus for uid, cpus in of_kubelet.items() if cpus})

    def cpus_of(parts: tuple[CPUPool, ...]) -> list[int]:
        return sorted(cpu for pool in parts for cpu in pool.cpus)

    ls, be = cpus_of(topology.shares.ls_pools), cpus_of(topology.shares.be_pools)
    exclusive = frozenset().union(*(cpus for qos, cpus in drawn if qos == "LSE"), *of_kubelet.values())
    own = exclusive.union(*(cpus for _, cpus in drawn))
    assert ls == sorted(set(range(8)) - own)
    assert be == sorted(set(range(8)) - exclusive)


def test_numa_nodes_without_numbers_in_the_middle() -> None:
    """A device's memory has a number of its own, which is no zone."""
    apart = (NUMANodeMemory(0, GIB, 0, {}), NUMANodeMemory(1, GIB, 0, {}), NUMANodeMemory(7, GIB, 0, {}))
    assert [zone.name for zone in reported(memory=apart).zones] == ["node-0", "node-1", "node-7"]
