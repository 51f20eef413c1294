"""All that is reported of a node's topology, made of what the kernel, kubelet and the Node say; pure.

The annotations are those of the original, member by member (states_noderesourcetopology.go, calcNodeTopo).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode_any, encode, to_document
from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.api.labels import ENABLE_NUMA_RESERVATION, MANAGED_BY
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, SystemQoSResource
from koordinator.api.node_resource_topology import NodeResourceTopology, Zone
from koordinator.api.resource_names import CPU
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.enforce.strategies.snapshot import node_reservation, read_annotation, reserved_cpus
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.report.node_object import Document, differing, node_object
from koordinator.koordlet.report.node_topology.cpu_pools import CPUShares, share_cpus
from koordinator.koordlet.report.node_topology.kubelet_cpus import KubeletCPUs, take_packed
from koordinator.koordlet.report.node_topology.zones import OWN_RESOURCES, merged_zones, zones_of
from koordinator.node.cpu_topology import CPUBasicInfo, CPUTopology
from koordinator.node.memory import NUMANodeMemory


class NodeTopologyError(KoordinatorError):
    """The topology of the node is not known; what was reported of it before stays."""


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    """What the topology is made of. ``of_kubelet`` is what kubelet's checkpoint says: CPUs by the UIDs of pods."""

    cpus: CPUTopology
    basic_info: CPUBasicInfo
    memory: Sequence[NUMANodeMemory]
    node: Node
    pods: Sequence[NodePod] = ()
    kubelet: KubeletCPUs = field(default_factory=KubeletCPUs)
    of_kubelet: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """What is reported of the node. ``annotations`` are documents by key, ``labels`` texts, None for one that must be
    absent."""

    cpus: CPUTopology
    shares: CPUShares
    kubelet: KubeletCPUs
    zones: tuple[Zone, ...]
    annotations: Mapping[str, Any]
    labels: Mapping[str, str | None]
    kept_cpus: frozenset[int] = frozenset()
    """CPUs that pods keep off: the node's reservation, of which an amount is made CPUs here, the exclusive ones of the
    system, and those that kubelet keeps from all pods."""

    @property
    def kubelet_cpus(self) -> frozenset[int]:
        """Those that kubelet's static CPU manager has given to pods."""
        return frozenset().union(*(allocation.cpus for allocation in self.shares.allocations))


def describe(facts: TopologyFacts) -> NodeTopology:
    """NodeTopologyError if an annotation of the Node cannot be read."""
    reservation = _reservation(facts.node, facts.cpus)
    system = _system_qos(facts.node)
    kept = parse_cpu_list(reservation.reserved_cpus) | reserved_cpus(facts.node) | facts.kubelet.kept
    shares = share_cpus(facts.cpus, facts.pods, facts.of_kubelet, kept)
    label = facts.node.metadata.labels.get(ENABLE_NUMA_RESERVATION) or None
    return NodeTopology(
        cpus=facts.cpus,
        shares=shares,
        kubelet=facts.kubelet,
        zones=zones_of(facts.cpus, facts.memory, facts.node, deduct_reserved=label == "true"),
        annotations=_annotations(facts, shares, reservation, system),
        labels={ENABLE_NUMA_RESERVATION: label},
        kept_cpus=kept,
    )


def _annotations(
    facts: TopologyFacts, shares: CPUShares, reservation: NodeReservation, system: SystemQoSResource | None
) -> dict[str, Any]:
    return {
        annotation_keys.CPU_BASIC_INFO: _basic_info(facts.basic_info),
        annotation_keys.CPU_TOPOLOGY: _cpu_topology(facts.cpus),
        annotation_keys.CPU_SHARED_POOLS: [pool.document() for pool in shares.ls_pools],
        annotation_keys.KUBELET_CPU_MANAGER_POLICY: facts.kubelet.document(),
        annotation_keys.BE_CPU_SHARED_POOLS: [pool.document() for pool in shares.be_pools],
        # The original never makes the list when there is nothing in it, which Go writes as null.
        annotation_keys.POD_CPU_ALLOCS: [allocation.document() for allocation in shares.allocations] or None,
        annotation_keys.NODE_RESERVATION: to_document(reservation),
        annotation_keys.SYSTEM_QOS_RESOURCE: to_document(system),
    }


def _basic_info(info: CPUBasicInfo) -> dict[str, Any]:
    members = {
        "cpuModel": info.model,
        "hyperThreadEnabled": info.hyper_threading,
        "turboEnabled": info.turbo,
        "catL3CbmMask": info.l3_mask,
        "vendorID": info.vendor,
    }
    return {name: value for name, value in members.items() if value}


def _cpu_topology(topology: CPUTopology) -> dict[str, Any]:
    cpus = sorted(topology.cpus, key=lambda cpu: cpu.cpu)
    return {"detail": [{"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa_node} for cpu in cpus]}


def _reservation(node: Node, topology: CPUTopology) -> NodeReservation:
    """What the Node's annotation keeps, with its CPUs named; nothing where it cannot be read."""
    reservation = node_reservation(node)
    cpu = reservation.resources.get(CPU)
    cpus: frozenset[int] = frozenset()
    try:
        if reservation.reserved_cpus:
            cpus = parse_cpu_list(reservation.reserved_cpus)
        elif cpu is not None and cpu.nanos > 0:
            cpus = take_packed(topology, ceil(cpu.milli / 1000))
    except ValueError:
        # Neither a list that makes no sense nor more CPUs than there are can be kept free.
        cpus = frozenset()
    return msgspec.structs.replace(reservation, reserved_cpus=format_cpu_list(cpus))


def _system_qos(node: Node) -> SystemQoSResource | None:
    """None where the Node has no annotations at all, as in the original."""
    if not node.metadata.annotations:
        return None
    key = annotation_keys.SYSTEM_QOS_RESOURCE
    try:
        return read_annotation(node.metadata.annotations, key, SystemQoSResource) or SystemQoSResource()
    except DecodeError as error:
        raise NodeTopologyError(f"the Node's {error}") from error


_MANAGER: Final = "Koordinator"


def new_topology(node: Node, wanted: NodeTopology) -> Document:
    return node_object(
        NODE_RESOURCE_TOPOLOGIES,
        node,
        {MANAGED_BY: _MANAGER, **wanted.labels},
        {name: _text(document) for name, document in wanted.annotations.items()},
        topologyPolicies=[wanted.kubelet.topology_policy],
        zones=to_document(wanted.zones),
    )


def topology_patch(present: NodeResourceTopology, wanted: NodeTopology) -> Document | None:
    """A merge patch; None if the object says what is wanted already.

    Annotations are compared as what they mean, not as texts. Zones are a list, which a patch replaces whole: then the
    patch is for this version of the object alone, and one that comes too late is refused.
    """
    annotations = {
        name: _text(document)
        for name, document in wanted.annotations.items()
        if not says(present.metadata.annotations.get(name), document)
    }
    metadata: Document = {}
    patch: Document = {}
    if annotations:
        metadata["annotations"] = annotations
    if labels := differing(wanted.labels, present.metadata.labels):
        metadata["labels"] = labels
    if present.topology_policies != [wanted.kubelet.topology_policy]:
        patch["topologyPolicies"] = [wanted.kubelet.topology_policy]
    if _own_parts(present.zones) != _own_parts(wanted.zones):
        patch["zones"] = to_document(merged_zones(present.zones, wanted.zones))
        metadata["resourceVersion"] = present.metadata.resource_version
    if metadata:
        patch["metadata"] = metadata
    return patch or None


def _own_parts(zones: Sequence[Zone]) -> list[tuple[str, str, Document]]:
    return [
        (
            zone.name,
            zone.type,
            {resource.name: resource.allocatable for resource in zone.resources if resource.name in OWN_RESOURCES},
        )
        for zone in zones
    ]


def says(text: str | None, document: Any) -> bool:
    """Whether an annotation means the document; one that cannot be read means nothing."""
    if text is None:
        return False
    try:
        return bool(decode_any(text) == document)
    except DecodeError:
        return False


def _text(document: Any) -> str:
    return encode(document).decode()
