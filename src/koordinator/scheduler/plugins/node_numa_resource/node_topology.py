"""The topology and the CPU and NUMA policies of a node, from its NodeResourceTopology and its Node object.

An annotation that cannot be decoded counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import decode_or
from koordinator.api.cpu_list import HIGHEST_CPU, HIGHEST_NUMA_NODE, parse_cpu_list
from koordinator.api.meta import WireStruct
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation
from koordinator.api.node_resource_topology import NODE_ZONE_PREFIX, NODE_ZONE_TYPE, NodeResourceTopology
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
from koordinator.model.cpu_allocation.topology import CPU as LogicalCPU
from koordinator.model.cpu_allocation.topology import BindPolicy, CPUTopology, cpu_mask
from koordinator.model.numa_topology.hints import NUMATopologyPolicy
from koordinator.scheduler.plugins.node_numa_resource.allocation import MILLI, Zones, amplified, canonical

MOST_ALLOCATED: Final = "MostAllocated"
_DIGITS: Final = 10
"""Python refuses to read numbers of more than some thousand."""
_BIND_POLICIES: Final = {
    "FullPCPUsOnly": BindPolicy.FULL_PCPUS,
    "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS,
}
_KUBELET_POLICIES: Final = {
    "BestEffort": NUMATopologyPolicy.BEST_EFFORT,
    "Restricted": NUMATopologyPolicy.RESTRICTED,
    "SingleNUMANodePodLevel": NUMATopologyPolicy.SINGLE_NUMA_NODE,
}
NUMA_POLICIES: Final = {policy.value: policy for policy in NUMATopologyPolicy}
"""By name."""


class CPUManagerPolicy(WireStruct):
    """``kubelet.koordinator.sh/cpu-manager-policy``."""

    policy: str = ""
    options: dict[str, str] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


class _CPU(WireStruct):
    id: int = 0
    core: int = 0
    socket: int = 0
    node: int = 0


class _CPUDetail(WireStruct):
    detail: list[_CPU] = []


class _PodCPUs(WireStruct):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = msgspec.field(default=False, name="managedByKubelet")


class _SystemQoS(WireStruct):
    cpuset: str = ""
    cpuset_exclusive: bool | None = msgspec.field(default=None, name="cpusetExclusive")


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """The content of a NodeResourceTopology. ``zones`` are what pods may use of each NUMA node, ascending."""

    cpus: CPUTopology = field(default_factory=partial(CPUTopology, ()))
    reserved: int = 0
    """The CPUs that pods are never bound to."""
    kubelet: CPUManagerPolicy = field(default_factory=CPUManagerPolicy)
    policy: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    zones: Mapping[int, Mapping[str, Quantity]] = field(default_factory=dict)
    ratios: Mapping[str, float] | None = None
    """The ratios by which the zones are amplified already; None if not given."""


def read_topology(document: NodeResourceTopology) -> NodeTopology:
    """Decode the topology of a node."""
    annotations = document.metadata.annotations
    detail = decode_or(annotations.get(annotation_keys.CPU_TOPOLOGY), _CPUDetail, _CPUDetail()).detail
    cpus = CPUTopology(
        # Cores are numbered by socket.
        LogicalCPU(each.id, each.socket << 16 | each.core, each.node, each.socket)
        for each in detail
        if 0 <= each.id <= HIGHEST_CPU
    )
    text = annotations.get(annotation_keys.KUBELET_CPU_MANAGER_POLICY)
    kubelet = decode_or(text, CPUManagerPolicy, CPUManagerPolicy())
    reserved = _reserved(annotations, kubelet)
    return NodeTopology(
        cpus=cpus,
        reserved=reserved,
        kubelet=kubelet,
        policy=next((_KUBELET_POLICIES[each] for each in document.topology_policies if each in _KUBELET_POLICIES), _NO),
        zones=_zones(document, cpus, reserved),
        ratios=decode_or(annotations.get(annotation_keys.RESOURCE_AMPLIFICATION_RATIO), dict[str, float], None),
    )


_NO: Final = NUMATopologyPolicy.NONE


def _reserved(annotations: Mapping[str, str], kubelet: CPUManagerPolicy) -> int:
    pods = decode_or(annotations.get(annotation_keys.POD_CPU_ALLOCS), list[_PodCPUs], [])
    node = decode_or(annotations.get(annotation_keys.NODE_RESERVATION), NodeReservation, NodeReservation())
    system = decode_or(annotations.get(annotation_keys.SYSTEM_QOS_RESOURCE), _SystemQoS, _SystemQoS())
    lists = [pod.cpuset for pod in pods if pod.managed_by_kubelet and pod.uid]
    lists += [kubelet.reserved_cpus, node.reserved_cpus, system.cpuset if system.cpuset_exclusive is not False else ""]
    reserved = 0
    for text in lists:
        try:
            reserved |= cpu_mask(parse_cpu_list(text))
        except ValueError:
            continue
    return reserved


def _zones(document: NodeResourceTopology, cpus: CPUTopology, reserved: int) -> dict[int, dict[str, Quantity]]:
    found: dict[int, dict[str, Quantity]] = {}
    for zone in document.zones:
        name = zone.name.removeprefix(NODE_ZONE_PREFIX)
        if zone.type != NODE_ZONE_TYPE or name == zone.name or not (name.isascii() and name.isdecimal()):
            continue
        if len(name) > _DIGITS or int(name) > HIGHEST_NUMA_NODE:
            continue
        found[int(name)] = {resource.name: resource.allocatable for resource in zone.resources}
    for number, amounts in found.items():
        cpu = amounts.get(CPU)
        if cpu is not None and cpu.nanos:
            taken = (cpus.numa_nodes.get(number, 0) & reserved).bit_count()
            amounts[CPU] = Quantity.from_milli(max(0, cpu.milli - taken * MILLI), cpu.format)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The CPU and NUMA policies of a node, from its labels and annotations and from its topology."""

    bind: BindPolicy = BindPolicy.NONE
    """Every pod that requests CPU is bound by this policy."""
    numa: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    packs: bool | None = None
    """Whether NUMA nodes with the least that is free come first; None for the setting of the arguments."""
    cpu_ratio: float | None = 0.0
    """The amplification ratio of the Node's CPU; None if its annotation cannot be decoded."""
    zones: Zones = field(default_factory=Zones)

    @property
    def is_plain(self) -> bool:
        """Whether it applies no policy to pods without requirements of their own."""
        none = not self.bind and not self.numa
        return none and self.cpu_ratio is not None and self.cpu_ratio <= 1


def rules_of(node: Node | None, topology: NodeTopology | None) -> NodeRules:
    """The rules of a node; missing parts count as empty."""
    labels = node.metadata.labels if node is not None else {}
    known = topology or NodeTopology()
    ratios = _ratios(node)
    policy = NUMA_POLICIES.get(labels.get(label_keys.NODE_NUMA_TOPOLOGY_POLICY, ""), NUMATopologyPolicy.NONE)
    strategy = labels.get(label_keys.NODE_NUMA_ALLOCATE_STRATEGY, "")
    return NodeRules(
        bind=_bind_policy(labels, known.kubelet),
        numa=policy or known.policy,
        packs=strategy == MOST_ALLOCATED if strategy else None,
        cpu_ratio=None if ratios is None else ratios.get(CPU, 0.0),
        zones=_amplified_zones(known, ratios or {}),
    )


def _bind_policy(labels: Mapping[str, str], kubelet: CPUManagerPolicy) -> BindPolicy:
    if kubelet.policy == "static" and kubelet.options.get("full-pcpus-only") == "true":
        return BindPolicy.FULL_PCPUS
    return _BIND_POLICIES.get(labels.get(label_keys.NODE_CPU_BIND_POLICY, ""), BindPolicy.NONE)


def _ratios(node: Node | None) -> dict[str, float] | None:
    """None if they cannot be decoded."""
    text = node.metadata.annotations.get(annotation_keys.RESOURCE_AMPLIFICATION_RATIO) if node is not None else None
    found = decode_or(text, dict[str, float], None) if text is not None else {}
    return {name: ratio for name, ratio in found.items() if isfinite(ratio)} if found is not None else None


def _amplified_zones(topology: NodeTopology, of_node: Mapping[str, float]) -> Zones:
    """The zones amplified as the Node is, unless they are amplified already."""
    ratios = of_node if topology.ratios is None else {}
    amounts: dict[int, dict[str, int]] = {}
    formats: dict[tuple[int, str], Format] = {}
    for number, zone in topology.zones.items():
        amounts[number] = {name: amplified(canonical(name, each), ratios.get(name, 0.0)) for name, each in zone.items()}
        formats.update({(number, name): each.format for name, each in zone.items()})
    return Zones(amounts, formats, of_node if topology.ratios is None else topology.ratios)
