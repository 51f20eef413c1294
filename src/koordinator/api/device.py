"""scheduling.koordinator.sh Device: the accelerators and network cards of one node, named like the node."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import Int32, PresentText, Schema
from koordinator.api.meta import Condition, Object, WireStruct
from koordinator.api.pod import ResourceList

GPU: Final = "gpu"
RDMA: Final = "rdma"
FPGA: Final = "fpga"
HEALTHY_CONDITION: Final = "Healthy"
MEMORY_CONDITION: Final = "MemoryReported"
"""Only on devices whose memory the driver does not report: they have no resource in bytes."""

RequiredInt32 = Annotated[Int32, Schema(required=True)]


class DeviceTopology(WireStruct):
    """Where in the machine a device is."""

    socket_id: RequiredInt32 = msgspec.field(default=0, name="socketID")
    """The CPU socket."""
    node_id: RequiredInt32 = msgspec.field(default=0, name="nodeID")
    """The NUMA node."""
    pcie_id: PresentText = msgspec.field(default="", name="pcieID")
    """The PCIe switch; unique within its NUMA node."""
    bus_id: str = msgspec.field(default="", name="busID")
    """The PCI address."""


class VirtualFunction(WireStruct):
    """One virtual function (SR-IOV)."""

    minor: RequiredInt32 = 0
    """The number of the function, from 0."""
    bus_id: str = msgspec.field(default="", name="busID")
    """The PCI address."""


class VirtualFunctionGroup(WireStruct):
    """Virtual functions (SR-IOV) of a device that are alike."""

    labels: dict[str, str] = {}
    """What the functions have in common, and are selected by."""
    vfs: list[VirtualFunction] = []
    """The functions."""


class DeviceInfo(WireStruct):
    """One accelerator or network card."""

    type: str = ""
    """gpu, rdma or fpga."""
    id: str = ""
    """What the device calls itself: a GPU's UUID, a network card's PCI address."""
    minor: Int32 | None = None
    """The number of the device among those of its type, from 0."""
    module_id: Int32 | None = msgspec.field(default=None, name="moduleID")
    """The number of the slot or module that the device is on."""
    health: Annotated[bool, Schema(required=True, default=False)] = False
    """Whether the device can be used."""
    labels: dict[str, str] = {}
    """What pods can select the device by."""
    resources: ResourceList = {}
    """How much there is of each resource of the device."""
    topology: DeviceTopology | None = None
    """Where in the machine the device is."""
    vf_groups: list[VirtualFunctionGroup] = []
    """The virtual functions of the device, grouped by their labels."""
    conditions: list[Condition] = []
    """What is known of the device's state, such as why it is not healthy."""


class DeviceSpec(WireStruct):
    """What the node's agent has found."""

    devices: list[DeviceInfo] = []
    """One entry for each device."""


class DeviceAllocationItem(WireStruct):
    """A pod and the devices that it holds."""

    name: str = ""
    """The name of the pod."""
    namespace: str = ""
    """The namespace of the pod."""
    uuid: str = ""
    """The UID of the pod."""
    minors: list[Int32] = []
    """The minor numbers of the devices."""


class DeviceAllocation(WireStruct):
    """The devices of one type that are allocated."""

    type: str = ""
    """gpu, rdma or fpga."""
    entries: list[DeviceAllocationItem] = []
    """The pods that hold some."""


class DeviceStatus(WireStruct):
    """Part of the contract; no program writes it."""

    allocations: list[DeviceAllocation] = []
    """Devices by the pods that hold them."""


class Device(Object):
    """The accelerators and network cards of one node; it is named like the node."""

    spec: DeviceSpec = DeviceSpec()
    status: DeviceStatus = DeviceStatus()
