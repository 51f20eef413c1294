"""What is read of a NodeResourceTopology and a Node, and what of it does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import ResourceInfo, Zone
from koordinator.api.quantity import Quantity
from koordinator.model.cpu_allocation.topology import BindPolicy, cpu_mask
from koordinator.model.numa_topology.hints import NUMATopologyPolicy
from koordinator.scheduler.plugins.node_numa_resource.node_topology import NodeTopology, read_topology, rules_of
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.node_numa_resource.numa_cluster import topology

_DOMAIN = "node.koordinator.sh"
_KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"


def node(labels: Mapping[str, str] | None = None, ratios: str | None = None) -> Node:
    found = make_node("a", labels=dict(labels or {}))
    notes = {} if ratios is None else {annotation_keys.RESOURCE_AMPLIFICATION_RATIO: ratios}
    return replace(found, metadata=replace(found.metadata, annotations=notes))


def test_cores_with_one_number_on_two_sockets_are_two() -> None:
    detail = [{"id": cpu, "core": 0, "socket": cpu, "node": cpu} for cpu in range(2)]

    found = read_topology(topology(annotations={annotation_keys.CPU_TOPOLOGY: {"detail": detail}}))

    assert found.cpus.cpus_per_core == 1
    assert len(found.cpus.cores) == 2


@pytest.mark.parametrize(
    "annotations",
    [
        {annotation_keys.CPU_TOPOLOGY: "{"},
        {annotation_keys.CPU_TOPOLOGY: '{"detail": [{"id": "a"}]}'},
        {annotation_keys.CPU_TOPOLOGY: "null"},
        {annotation_keys.CPU_TOPOLOGY: '{"detail": [{"id": -1}]}'},
    ],
)
def test_a_topology_that_cannot_be_read_has_no_cpus(annotations: Mapping[str, Any]) -> None:
    assert not read_topology(topology(annotations=annotations)).cpus


def test_all_that_is_reserved_counts() -> None:
    found = read_topology(
        topology(
            annotations={
                f"{_DOMAIN}/reservation": {"reservedCPUs": "0"},
                f"{_DOMAIN}/system-qos-resource": {"cpuset": "1"},
                f"{_DOMAIN}/pod-cpu-allocs": [{"uid": "u", "cpuset": "2", "managedByKubelet": True}],
                _KUBELET: {"reservedCPUs": "3"},
            }
        )
    )

    assert found.reserved == cpu_mask(range(4))
    assert [str(zone["cpu"]) for zone in found.zones.values()] == ["4", "8"]


def test_a_zone_never_has_less_than_nothing() -> None:
    reported = topology(annotations={f"{_DOMAIN}/reservation": {"reservedCPUs": "0-7"}}, cores=2)
    few = [ResourceInfo(name="cpu", allocatable=Quantity.parse("2"))]

    found = read_topology(replace(reported, zones=[replace(zone, resources=few) for zone in reported.zones]))

    assert [each["cpu"].milli for each in found.zones.values()] == [0, 0]


@pytest.mark.parametrize(
    ("name", "kind"), [("node-x", "Node"), ("node-", "Node"), ("node-0", "Socket"), ("socket-0", "Node")]
)
def test_other_zones_are_not_numa_nodes(name: str, kind: str) -> None:
    found = read_topology(replace(topology(zones=False), zones=[Zone(name=name, type=kind)]))

    assert not found.zones


def test_numa_nodes_may_have_any_numbers() -> None:
    reported = topology()
    zones = [replace(zone, name=f"node-{number}") for zone, number in zip(reported.zones, (5, 2), strict=True)]

    assert list(read_topology(replace(reported, zones=zones)).zones) == [2, 5]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (("Restricted", "BestEffort"), NUMATopologyPolicy.RESTRICTED),
        (("SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel"), NUMATopologyPolicy.SINGLE_NUMA_NODE),
        (("None",), NUMATopologyPolicy.NONE),
    ],
)
def test_the_first_policy_of_kubelet_that_is_known_counts(
    policies: tuple[str, ...], expected: NUMATopologyPolicy
) -> None:
    assert read_topology(topology(policies=policies)).policy is expected


@pytest.mark.parametrize(
    ("options", "label", "expected"),
    [
        ({"full-pcpus-only": "true"}, "SpreadByPCPUs", BindPolicy.FULL_PCPUS),
        ({"full-pcpus-only": "false"}, "SpreadByPCPUs", BindPolicy.SPREAD_BY_PCPUS),
        ({}, "FullPCPUsOnly", BindPolicy.FULL_PCPUS),
        ({}, "None", BindPolicy.NONE),
    ],
)
def test_kubelet_or_a_label_says_how_a_node_binds(options: Mapping[str, str], label: str, expected: BindPolicy) -> None:
    reported = read_topology(topology(annotations={_KUBELET: {"policy": "static", "options": options}}))

    assert rules_of(node({f"{_DOMAIN}/cpu-bind-policy": label}), reported).bind is expected


@pytest.mark.parametrize(
    ("of_node", "of_topology", "cpu", "ratio"),
    [
        ('{"cpu": 1.5}', None, 12000, 1.5),
        ('{"cpu": 1.5}', {"cpu": 2.0}, 8000, 2.0),
        (None, {"cpu": 2.0}, 8000, 2.0),
        ('{"cpu": 0.5}', None, 8000, 0.5),
        ("{}", None, 8000, 0.0),
    ],
)
def test_zones_are_amplified_once(of_node: str | None, of_topology: Any, cpu: int, ratio: float) -> None:
    notes = {} if of_topology is None else {annotation_keys.RESOURCE_AMPLIFICATION_RATIO: of_topology}

    rules = rules_of(node(ratios=of_node), read_topology(topology(annotations=notes)))

    assert rules.zones.amounts[0]["cpu"] == cpu
    assert rules.zones.cpu_ratio == ratio


@pytest.mark.parametrize(
    ("strategy", "packs"), [("MostAllocated", True), ("DistributeEvenly", False), ("Somehow", False), ("", None)]
)
def test_a_label_says_which_numa_nodes_come_first(strategy: str, packs: bool | None) -> None:
    assert rules_of(node({f"{_DOMAIN}/numa-allocate-strategy": strategy}), NodeTopology()).packs is packs


def test_a_ratio_that_cannot_be_read_is_unknown() -> None:
    rules = rules_of(node(ratios="{"), None)

    assert rules.cpu_ratio is None
    assert not rules.is_plain
