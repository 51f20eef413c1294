"""The Node and Lease objects of simulated nodes, as documents; pure."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from koordinator.api.node import LEASE_NAMESPACE, NodeCondition
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import NVIDIA_GPU
from koordinator.api.timestamps import format_micro_time, format_time
from koordinator.cluster.nodes.scenario import NodeGroup, Scenario

Document = dict[str, Any]

FLEET_ANNOTATION: Final = "simulation.koordinator.sh/fleet"
"""On every simulated node: the name of the scenario that it belongs to."""

_KUBELET_VERSION: Final = "v1.35.0-simulated"
_EVICTION_MEMORY: Final = Quantity.parse("100Mi").value
"""kubelet's default hard eviction threshold, which it keeps back as well."""
_NODE_NETWORK: Final = ipaddress.IPv4Address("10.0.0.1")
_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node of a scenario."""

    name: str
    ordinal: int
    """Position among all nodes of the scenario."""
    zone: str
    region: str
    group: NodeGroup
    fleet: str

    @property
    def address(self) -> str:
        return str(_NODE_NETWORK + self.ordinal)

    @property
    def cpu(self) -> float:
        """Capacity in cores."""
        return self.group.cpu.milli / 1000

    @property
    def memory(self) -> float:
        """Capacity in bytes."""
        return float(self.group.memory.value)


def expand(scenario: Scenario) -> list[SimulatedNode]:
    """Every node of the scenario. A node's name and zone stay the same when a group grows."""
    nodes: list[SimulatedNode] = []
    for position, group in enumerate(scenario.node_groups):
        for index in range(group.count):
            name = group.name_pattern.format(group=group.name, index=index)
            zone = scenario.zones[(position + index) % len(scenario.zones)]
            nodes.append(SimulatedNode(name, len(nodes), zone, scenario.region, group, scenario.name))
    return nodes


def node_document(node: SimulatedNode, now: datetime) -> Document:
    """The whole Node, as a kubelet registers it."""
    spec: Document = {"providerID": f"simulated:///{node.zone}/{node.name}"}
    if node.group.taints:
        spec["taints"] = [
            {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
            for taint in node.group.taints
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, **node_metadata(node)},
        "spec": spec,
        "status": node_status(node, now),
    }


def node_metadata(node: SimulatedNode) -> Document:
    """Labels and annotations that the fleet keeps."""
    return {
        "labels": {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": node.name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": node.group.instance_type or node.group.name,
            "topology.kubernetes.io/region": node.region,
            "topology.kubernetes.io/zone": node.zone,
            **node.group.labels,
        },
        "annotations": {FLEET_ANNOTATION: node.fleet, **node.group.annotations},
    }


def node_status(node: SimulatedNode, now: datetime, current: Sequence[NodeCondition] = ()) -> Document:
    """Capacity, allocatable, conditions, addresses, system information and images."""
    return {
        "capacity": _capacity(node.group),
        "allocatable": _allocatable(node.group),
        "conditions": conditions(now, current),
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": _node_info(node.name),
        "images": [{"names": [image.name], "sizeBytes": image.size.value} for image in node.group.images],
    }


def conditions(now: datetime, current: Sequence[NodeCondition] = ()) -> list[Document]:
    """The conditions of a healthy node, heard of at ``now``; those that hold already keep their time of transition."""
    holding = {(condition.type, condition.status) for condition in current}
    result = []
    for kind, status, reason, message in _HEALTHY:
        condition = {"type": kind, "status": status, "reason": reason, "message": message}
        condition["lastHeartbeatTime"] = format_time(now)
        if (kind, status) not in holding:
            condition["lastTransitionTime"] = format_time(now)
        result.append(condition)
    return result


def is_healthy(current: Sequence[NodeCondition]) -> bool:
    """Whether the API shows all conditions as this node reports them."""
    holding = {(condition.type, condition.status) for condition in current}
    return all((kind, status) in holding for kind, status, _, _ in _HEALTHY)


def lease_document(node: str, uid: str, duration_seconds: int, now: datetime) -> Document:
    """The lease of a node that lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [node_owner(node, uid)],
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": duration_seconds, "renewTime": format_micro_time(now)},
    }


def node_owner(node: str, uid: str) -> Document:
    """The owner reference with which an object goes when its node goes."""
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}


def _capacity(group: NodeGroup) -> Document:
    return {
        "cpu": str(group.cpu),
        "memory": str(group.memory),
        "ephemeral-storage": str(group.ephemeral_storage),
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": str(group.pods),
        # As the device plugin of the vendor has it.
        **({NVIDIA_GPU: str(group.gpus.count)} if group.gpus.count else {}),
        **{name: str(amount) for name, amount in group.resources.items()},
    }


def allocatable(node: SimulatedNode) -> dict[str, int]:
    """CPU and memory that pods may have, exactly: in units of 10**-9."""
    amounts = _allocatable(node.group)
    return {name: Quantity.parse(amounts[name]).nanos for name in ("cpu", "memory")}


def _allocatable(group: NodeGroup) -> Document:
    cpu = Quantity(group.cpu.nanos - group.reserved.cpu.nanos)
    kept_back = group.reserved.memory.value + _EVICTION_MEMORY
    memory = Quantity.from_value(max(0, group.memory.value - kept_back), group.memory.format)
    return {**_capacity(group), "cpu": str(cpu), "memory": str(memory)}


def _node_info(name: str) -> Document:
    # The same ids after a restart: monitoring takes a new boot id for a reboot.
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.simulated.koordinator.sh")
    return {
        "architecture": "amd64",
        "bootID": str(uuid.uuid5(identity, "boot")),
        "containerRuntimeVersion": "simulated://1.0.0",
        "kernelVersion": "6.12.0-simulated",
        "kubeProxyVersion": "",
        "kubeletVersion": _KUBELET_VERSION,
        "machineID": identity.hex,
        "operatingSystem": "linux",
        "osImage": "Simulated node",
        "systemUUID": str(identity),
    }


def surplus(existing: Sequence[tuple[str, str]], wanted: Sequence[SimulatedNode], fleet: str) -> list[str]:
    """Of ``existing`` (name, fleet annotation), the nodes of this fleet that the scenario no longer has."""
    names = {node.name for node in wanted}
    return [name for name, owner in existing if owner == fleet and name not in names]
