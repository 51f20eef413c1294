"""All accelerators of a machine: the tool of every vendor that has a device on the PCI bus lists its devices."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.xpu_device_info import XPUDeviceInfo
from koordinator.device_daemon.cambricon import Cambricon
from koordinator.device_daemon.huawei import Huawei
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import DiscoveryError, Machine, Vendor
from koordinator.device_daemon.metax import MetaX
from koordinator.node.errors import NodeError
from koordinator.node.pci import PciDevice

_LOG = logging.getLogger(__name__)

VENDORS: Final[Sequence[Vendor]] = (Huawei(), Cambricon(), Kunlun(), MetaX())
"""In the order in which their devices stand in the file."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found, and of which vendors nothing could be learnt this time."""

    devices: Sequence[XPUDeviceInfo]
    failed: Sequence[str]


@dataclass(slots=True)
class Discovery:
    """Looks again and again. Of a vendor whose tool fails, the devices that were found last stay: a driver that hangs
    for a while must not take them from the pods that use them."""

    machine: Machine
    vendors: Sequence[Vendor] = VENDORS
    _last: dict[str, Sequence[XPUDeviceInfo]] = field(default_factory=dict)

    async def discover(self) -> Inventory:
        """Never raises for what the machine does; problems are logged."""
        failed: list[str] = []
        try:
            bus = self.machine.pci.devices()
        except NodeError as error:
            _LOG.error("error getting PCI devices: %s", error)
            return Inventory(self._all(), [vendor.name for vendor in self.vendors])
        for vendor in self.vendors:
            if not _has(bus, vendor):
                self._last[vendor.name] = ()
                continue
            try:
                found = await vendor.devices(self.machine)
            except (DiscoveryError, NodeError) as error:
                _LOG.error("error creating printer: error getting %s devices: %s", vendor.name, error)
                failed.append(vendor.name)
                continue
            for problem in found.problems:
                _LOG.error("a device of %s is left out: %s", vendor.name, problem)
            self._last[vendor.name] = found.devices
        return Inventory(self._all(), failed)

    def _all(self) -> list[XPUDeviceInfo]:
        return [device for vendor in self.vendors for device in self._last.get(vendor.name, ())]


def _has(bus: Sequence[PciDevice], vendor: Vendor) -> bool:
    return any(device.vendor == vendor.pci_vendor and device.product not in vendor.other_products for device in bus)
