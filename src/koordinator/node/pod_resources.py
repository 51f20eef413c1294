"""Kubelet's pod-resources API (``v1.PodResourcesLister``): which devices and CPUs its managers have given to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from koordinator.base.protobuf_wire import contents, integers, text, texts
from koordinator.node.container_runtime import UnaryCalls
from koordinator.node.host import Host

_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Devices of one resource, such as ``nvidia.com/gpu``, with the NUMA nodes that they are near to."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What one container has; ``cpus`` are those that are its own."""

    name: str
    devices: tuple[ContainerDevices, ...]
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """What the containers of one pod have."""

    namespace: str
    name: str
    containers: tuple[ContainerAllocation, ...]


async def list_pod_resources(calls: UnaryCalls) -> tuple[PodAllocation, ...]:
    """Query the kubelet. NodeError if it does not respond, MalformedMessageError if its response cannot be read."""
    response = await calls.unary("/v1.PodResourcesLister/List", b"", _SECONDS)
    return tuple(
        PodAllocation(text(pod, 2), text(pod, 1), tuple(map(_container, contents(pod, 3))))
        for pod in contents(response, 1)
    )


def pod_resources_socket(host: Host) -> str:
    """Where kubelet listens."""
    return f"{host.var_lib_kubelet}/pod-resources/kubelet.sock"


def _container(message: bytes) -> ContainerAllocation:
    return ContainerAllocation(
        text(message, 1), tuple(map(_devices, contents(message, 2))), tuple(integers(message, 3))
    )


def _devices(message: bytes) -> ContainerDevices:
    # NUMA node 0 is written as an empty message: a number that is 0 is left out.
    nodes = (integers(node, 1) for topology in contents(message, 3) for node in contents(topology, 1))
    return ContainerDevices(
        text(message, 1), tuple(texts(message, 2)), tuple(node[-1] if node else 0 for node in nodes)
    )
