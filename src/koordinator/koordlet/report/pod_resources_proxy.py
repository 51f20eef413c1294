"""Kubelet's pod-resources API with the devices that koord-scheduler has given to pods, of which kubelet knows nothing.

Agents that attribute devices to pods (NVIDIA's DCGM exporter, Multus) call this API at a configured socket: here they
find GPUs and RDMA cards of pods beside those that the kubelet's own device manager allocated. All other calls, and all
unknown fields of a response, pass through (pkg/koordlet/statesinformer/impl/states_pod_resources.go).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.api.codec import DecodeError
from koordinator.api.device_share import AllocatedDevice, AllocatedDevices
from koordinator.api.pod import Pod
from koordinator.api.resource_names import NVIDIA_GPU, RDMA
from koordinator.base.errors import KoordinatorError
from koordinator.base.protobuf_wire import contents, encode_message, encode_text, encoded_fields, text
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet.enforce.strategies.snapshot import read_annotation
from koordinator.node import grpc_messages
from koordinator.node.container_runtime import UnaryCalls
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.grpc_server import GrpcServer, Handler

logger = logging.getLogger(__name__)

SOCKET: Final = "kubelet.sock"
"""In the folder of --pod-resources-proxy-path: clients expect the name of the kubelet's own socket."""
_SERVICE: Final = "/v1.PodResourcesLister"
_SECONDS: Final = 10.0
_RETRY: Final = 5.0
_RESOURCES: Final = {"gpu": NVIDIA_GPU, "rdma": RDMA}
"""By the type of device."""
# The numbers of the fields, from k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
_POD, _CONTAINER, _DEVICES = 1, 3, 2
_NAME, _NAMESPACE, _RESOURCE_NAME, _DEVICE_ID = 1, 2, 1, 2

AskPods = Callable[[], Awaitable[Sequence[Pod]]]


class PodResourcesProxy:
    """Serves in ``folder``; ``upstream`` is the kubelet's pod-resources API, ``pods`` lists the kubelet's pods."""

    def __init__(self, upstream: UnaryCalls, pods: AskPods, folder: Path, connections: ProgramConnections) -> None:
        self._upstream = upstream
        self._pods = pods
        self._path = folder / SOCKET
        self._connections = connections

    async def run(self) -> None:
        """Serve until cancelled. What prevents that is logged once, and tried again."""
        server = GrpcServer(self._handlers(), self._connections)
        await server.keep_serving(self._path, "pod resources", _RETRY, self._listening)

    def _listening(self) -> None:
        logger.info("pod resources are served at %s", self._path)

    def _handlers(self) -> dict[str, Handler]:
        def forward(method: str) -> Handler:
            return lambda message: self._upstream.unary(method, message, _SECONDS)

        passed = {f"{_SERVICE}/{name}": forward(f"{_SERVICE}/{name}") for name in ("GetAllocatableResources", "Get")}
        return {**passed, f"{_SERVICE}/List": self._list}

    async def _list(self, message: bytes) -> bytes:
        response = await self._upstream.unary(f"{_SERVICE}/List", message, _SECONDS)
        try:
            return with_devices(response, allocations(await self._pods()))
        except GrpcError:
            raise
        except KoordinatorError as error:
            raise GrpcError(grpc_messages.UNKNOWN, str(error)) from error


Devices = Mapping[str, Sequence[str]]
"""IDs by the name of the resource."""


def allocations(pods: Sequence[Pod]) -> dict[tuple[str, str], Devices]:
    """What koord-scheduler has given to each pod, by namespace and name; a pod whose annotation cannot be read has
    nothing."""
    found: dict[tuple[str, str], Devices] = {}
    for pod in pods:
        try:
            by_type = read_annotation(pod.metadata.annotations, DEVICE_ALLOCATED, AllocatedDevices) or {}
        except DecodeError as error:
            logger.debug("pod %s: %s", pod.metadata.key, error)
            continue
        found[pod.metadata.namespace, pod.metadata.name] = {
            _RESOURCES[kind]: [identifier for device in devices for identifier in _identifiers(device)]
            for kind, devices in by_type.items()
            if kind in _RESOURCES
        }
    return found


def with_devices(response: bytes, allocated: Mapping[tuple[str, str], Devices]) -> bytes:
    """The ListPodResourcesResponse with the devices in each pod's first container, sorted by resource.

    MalformedMessageError if it is none.
    """
    parts = []
    for number, field in encoded_fields(response):
        parts.append(_with_devices_of_pod(field, allocated) if number == _POD else field)
    return b"".join(parts)


def _with_devices_of_pod(field: bytes, allocated: Mapping[tuple[str, str], Devices]) -> bytes:
    (pod,) = contents(field, _POD)
    devices = allocated.get((text(pod, _NAMESPACE), text(pod, _NAME)))
    if not devices:
        return field
    parts, is_first = [], True
    for number, part in encoded_fields(pod):
        if number == _CONTAINER and is_first:
            (container,) = contents(part, _CONTAINER)
            parts.append(encode_message(_CONTAINER, _with_devices_of_container(container, devices)))
            is_first = False
        else:
            parts.append(part)
    return encode_message(_POD, b"".join(parts))


def _with_devices_of_container(container: bytes, devices: Devices) -> bytes:
    others = [field for number, field in encoded_fields(container) if number != _DEVICES]
    of_kubelet = contents(container, _DEVICES)
    of_scheduler = [
        encode_text(_RESOURCE_NAME, resource) + b"".join(encode_text(_DEVICE_ID, identifier) for identifier in ids)
        for resource, ids in devices.items()
    ]
    ordered = sorted([*of_kubelet, *of_scheduler], key=lambda entry: text(entry, _RESOURCE_NAME))
    return b"".join([*others, *(encode_message(_DEVICES, entry) for entry in ordered)])


def _identifiers(device: AllocatedDevice) -> list[str]:
    """Addresses of its virtual functions, where it was given out by these; else its own ID."""
    return (
        [device.id]
        if device.extension is None
        else [function.bus_id for function in device.extension.virtual_functions]
    )
