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

RequiredInt32 = Annotated[Int32, Schema(required=True)]


class DeviceTopology(WireStruct):
    socket_id: RequiredInt32 = msgspec.field(default=0, name="socketID")
    node_id: RequiredInt32 = msgspec.field(default=0, name="nodeID")
    """The NUMA node."""
    pcie_id: PresentText = msgspec.field(default="", name="pcieID")
    """The PCIe switch; unique within its NUMA node."""
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunction(WireStruct):
    minor: RequiredInt32 = 0
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunctionGroup(WireStruct):
    """Virtual functions (SR-IOV) of a device that are alike."""

    labels: dict[str, str] = {}
    vfs: list[VirtualFunction] = []


class DeviceInfo(WireStruct):
    type: str = ""
    """gpu, rdma or fpga."""
    id: str = ""
    """What the device calls itself: a GPU's UUID, a network card's PCI address."""
    minor: Int32 | None = None
    module_id: Int32 | None = msgspec.field(default=None, name="moduleID")
    health: Annotated[bool, Schema(required=True, default=False)] = False
    labels: dict[str, str] = {}
    resources: ResourceList = {}
    topology: DeviceTopology | None = None
    vf_groups: list[VirtualFunctionGroup] = []
    conditions: list[Condition] = []


class DeviceSpec(WireStruct):
    devices: list[DeviceInfo] = []


class DeviceAllocationItem(WireStruct):
    name: str = ""
    namespace: str = ""
    uuid: str = ""
    minors: list[Int32] = []


class DeviceAllocation(WireStruct):
    type: str = ""
    entries: list[DeviceAllocationItem] = []


class DeviceStatus(WireStruct):
    """Part of the contract, written by nobody."""

    allocations: list[DeviceAllocation] = []


class Device(Object):
    spec: DeviceSpec = DeviceSpec()
    status: DeviceStatus = DeviceStatus()
