"""What annotations say of devices: which ones a pod wants, which ones it holds, and how GPUs of a node are linked."""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import LabelSelector, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import GPU_MEMORY

APPLY_FOR_ALL: Final = "ApplyForAll"
REQUESTS_AS_COUNT: Final = "RequestsAsCount"
DEVICE_LEVEL: Final = "DeviceLevel"
PCIE_LEVEL: Final = "PCIeLevel"
SAME_PCIE: Final = "SamePCIe"
RESTRICTED: Final = "Restricted"
HONOR: Final = "Honor"
NODE_SCOPE, NUMA_NODE_SCOPE, PCIE_SCOPE, DEVICE_SCOPE = "Node", "NUMANode", "PCIe", "Device"


class DeviceHint(WireStruct):
    """What a pod requests of the devices of one type, beyond amounts."""

    selector: LabelSelector | None = None
    """The labels of devices that may be allocated."""
    vf_selector: LabelSelector | None = msgspec.field(default=None, name="vfSelector")
    """The labels of groups of virtual functions; if set, each allocated device comes with one function."""
    allocate_strategy: str = ""
    """ApplyForAll, RequestsAsCount or "" for amounts."""
    required_topology_scope: str = ""
    """Device, PCIe, NUMANode or Node: the part of the machine that all GPUs of the pod have to be in."""
    exclusive_policy: str = ""
    """DeviceLevel or PCIeLevel: what the pod shares with no other."""


class DeviceJointAllocate(WireStruct):
    """The annotation ``device-joint-allocate``: types of devices that are to be near each other."""

    device_types: list[str] = []
    """The first one is allocated first."""
    required_scope: str = ""
    """SamePCIe: all of them have to be on the same PCIe switches."""


class GPUPartitionSpec(WireStruct):
    """The annotation ``gpu-partition-spec``: the GPUs of the pod have to be a partition of its node."""

    allocate_policy: str = ""
    """Restricted: one of the partitions with the highest score."""
    ring_bus_bandwidth: Quantity | None = None
    """The least bandwidth of the partition."""


class GPUPartition(WireStruct):
    """GPUs that are linked with each other."""

    minors: list[int] = []
    gpu_link_type: str = msgspec.field(default="", name="gpuLinkType")
    ring_bus_bandwidth: Quantity | None = None
    allocation_score: int = 0
    """The higher, the better the link."""


class VirtualFunctionAllocation(WireStruct):
    """A virtual function that a pod holds."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class AllocationExtension(WireStruct):
    """What else a pod holds of a device."""

    virtual_functions: list[VirtualFunctionAllocation] = msgspec.field(default_factory=list, name="vfs")
    gpu_shared_resource_template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class AllocatedDevice(WireStruct):
    """A device of which a pod holds something."""

    minor: int = 0
    resources: ResourceList = {}
    id: str = ""
    extension: AllocationExtension | None = None


AllocatedDevices = dict[str, list[AllocatedDevice]]
"""The annotation ``device-allocated``: type of device -> devices."""


def read_allocated_devices(text: str) -> AllocatedDevices:
    """The annotation ``device-allocated``. Raises DecodeError."""
    return decode(text, AllocatedDevices)


def read_partition_table(text: str) -> dict[int, list[GPUPartition]]:
    """The annotation ``gpu-partitions`` of a Device: number of GPUs -> partitions of so many. Raises DecodeError."""
    found = decode(text, dict[str, list[GPUPartition]])
    try:
        return {int(count): partitions for count, partitions in found.items()}
    except ValueError as error:
        raise DecodeError(f"keys are numbers of GPUs: {error}") from error


def device_quantity(resource: str, amount: int) -> Quantity:
    """An amount as it is written of a device: memory with a binary suffix."""
    return Quantity.from_value(amount, Format.BINARY_SI if resource == GPU_MEMORY else Format.DECIMAL_SI)
