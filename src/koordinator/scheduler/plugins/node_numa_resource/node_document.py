"""The plugin's service document of a node, as the original's (service.go, NodeResponse)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordinator.api.codec import to_document
from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.quantity import Format
from koordinator.model.cpu_allocation.topology import CPU, CPUTopology, cpus_of
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.node_numa_resource.allocation import Amounts, FreeCapacity, PodAllocation, quantity
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState

_ONCE = 1
"""How many pods may share a CPU."""


def node_document(name: str, node: NodeState, pods: Mapping[str, PodInfo]) -> dict[str, Any]:
    """The document of a node that has CPUs. ``pods`` are on it, by uid."""
    capacity = FreeCapacity(node.cpus, node.usable_cpus, node.rules.zones, node.taken)
    zones = node.rules.zones.amounts
    remaining = {numa_node: capacity.left(numa_node) for numa_node in zones}
    taken = {numa_node: amounts for numa_node, amounts in node.taken.amounts.items() if any(amounts.values())}
    document: dict[str, Any] = {
        "name": name,
        "cpuTopology": _topology(node.cpus),
        "reservedCPUs": _cpus(node.reserved),
        "maxRefCount": _ONCE,
        "numaTopologyPolicy": node.rules.numa.value,
        "numaNodeResources": _zones(zones, node),
        "remainingNUMANodeResources": _zones(remaining, node) or None,
        "allocatedNUMANodeResources": _zones(taken, node) or None,
        "availableCPUs": _cpus(node.usable_cpus & ~node.taken.cpus),
        "allocatedCPUs": _details(_allocated(node)),
        "allocatedPods": [_pod(uid, held, pods.get(uid)) for uid, held in sorted(node.held.items())] or None,
    }
    if node.topology is not None:
        document["policy"] = to_document(node.topology.kubelet)
    if node.rules.zones.ratios:
        document["amplificationRatios"] = dict(node.rules.zones.ratios)
    return document


def _topology(topology: CPUTopology) -> dict[str, Any]:
    cpus = topology.cpus.values()
    return {
        "numCPUs": len(cpus),
        "numCores": len({(cpu.socket, cpu.numa_node, cpu.core) for cpu in cpus}),
        "numNodes": len({(cpu.socket, cpu.numa_node) for cpu in cpus}),
        "numSockets": len(topology.sockets),
        "cpuDetails": _details((cpu, 0, "") for cpu in cpus),
    }


def _allocated(node: NodeState) -> Iterable[tuple[CPU, int, str]]:
    for number, count in sorted(node.counts.items()):
        policies = [held.exclusive.value for held in node.held.values() if held.exclusive and held.cpus >> number & 1]
        yield node.cpus.cpus.get(number, CPU(number, 0, 0, 0)), count, policies[-1] if policies else ""


def _details(cpus: Iterable[tuple[CPU, int, str]]) -> dict[str, Any]:
    return {
        str(cpu.number): {
            "cpuID": cpu.number,
            "coreID": cpu.core,
            "nodeID": cpu.numa_node,
            "socketID": cpu.socket,
            "refCount": count,
            "exclusivePolicy": policy,
        }
        for cpu, count, policy in cpus
    }


def _pod(uid: str, held: PodAllocation, pod: PodInfo | None) -> dict[str, Any]:
    metadata = pod.pod.metadata if pod is not None else None
    document: dict[str, Any] = {
        "uid": uid,
        "namespace": metadata.namespace if metadata is not None else "",
        "name": metadata.name if metadata is not None else "",
        "cpuset": _cpus(held.cpus),
        "cpuExclusivePolicy": held.exclusive.value,
        "numaNodeResources": [
            {"node": number, "resources": {name: str(amount) for name, amount in amounts}}
            for number, amounts in held.resources
        ],
    }
    return {key: value for key, value in document.items() if value}


def _zones(amounts: Amounts, node: NodeState) -> list[dict[str, Any]]:
    formats = node.rules.zones.formats
    return [
        {
            "node": number,
            "resources": {
                name: str(quantity(name, amount, formats.get((number, name), Format.DECIMAL_SI)))
                for name, amount in sorted(of_node.items())
            },
        }
        for number, of_node in sorted(amounts.items())
    ]


def _cpus(mask: int) -> str:
    return format_cpu_list(cpus_of(mask))
