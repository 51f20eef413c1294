"""All accelerators of a machine: the tool of every vendor that has a device on the PCI bus lists its devices."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.base.said_once import SaidOnce
from koordinator.device_daemon.cambricon import Cambricon
from koordinator.device_daemon.huawei import Huawei
from koordinator.device_daemon.identity import only_distinct, same
from koordinator.device_daemon.kunlun import Kunlun
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Vendor
from koordinator.device_daemon.metax import MetaX
from koordinator.node.errors import NodeError
from koordinator.node.pci import PciDevice

_LOG = logging.getLogger(__name__)

VENDORS: Final[Sequence[Vendor]] = (Huawei(), Cambricon(), Kunlun(), MetaX())
"""In the order in which their devices stand in the file."""
SECONDS_OF_A_VENDOR: Final = 300.0
"""For all calls of its tool. A look that took longer than the daemon's deadline would cost the other vendors theirs."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found, and of which vendors nothing could be learnt this time."""

    devices: Sequence[XPUDeviceInfo]
    failed: Sequence[str]


@dataclass(slots=True)
class Discovery:
    """Looks again and again. Of a vendor whose tool fails, the devices that were found last stay: a driver that hangs
    for a while must not take them from the pods that use them. A device that was there and is not any more, while the
    tool lists others, stays as well, but is not healthy: it may have fallen off the bus."""

    machine: Machine
    vendors: Sequence[Vendor] = VENDORS
    seconds: float = SECONDS_OF_A_VENDOR
    _last: dict[str, Sequence[XPUDeviceInfo]] = field(default_factory=dict)
    _said: dict[str, SaidOnce] = field(default_factory=lambda: defaultdict(lambda: SaidOnce(_LOG)))
    """By vendor."""

    async def discover(self) -> Inventory:
        """Never raises for what the machine does; problems are logged."""
        try:
            bus = self.machine.pci.devices()
        except NodeError as error:
            _LOG.error("error getting PCI devices: %s", error)
            return Inventory(self._all(), [vendor.name for vendor in self.vendors])
        # At the same time: a tool that hangs takes half a minute for each of its cards.
        async with asyncio.TaskGroup() as tasks:
            looks = [tasks.create_task(self._look(vendor, bus), name=vendor.name) for vendor in self.vendors]
        return Inventory(
            self._all(), [vendor.name for vendor, look in zip(self.vendors, looks, strict=True) if not look.result()]
        )

    async def _look(self, vendor: Vendor, bus: Sequence[PciDevice]) -> bool:
        """Whether it is known which devices there are."""
        if not _has(bus, vendor):
            self._take(vendor, Found(), "the PCI bus has no device of its vendor any more")
            return True
        try:
            async with asyncio.timeout(self.seconds):
                found = only_distinct(await vendor.devices(self.machine))
        except (DiscoveryError, NodeError) as error:
            self._log(vendor, [f"error creating printer: error getting {vendor.name} devices: {error}"])
            return False
        except TimeoutError:
            self._log(vendor, [f"error getting {vendor.name} devices: not all are listed after {self.seconds:g} s"])
            return False
        if not found.devices and not found.problems:
            self._log(vendor, [f"error getting {vendor.name} devices: the tool lists none, but the PCI bus has one"])
            return False
        self._take(vendor, found, "the tool no longer lists it")
        return True

    def _take(self, vendor: Vendor, found: Found, why_lost: str) -> None:
        reasons = {minor: problem.text for problem in found.problems for minor in problem.minors}
        lost = [
            _lost(device, reasons.get(device.minor, why_lost))
            for device in self._last.get(vendor.name, ())
            if not any(same(device, other) for other in found.devices)
        ]
        self._last[vendor.name] = sorted((*found.devices, *lost), key=lambda device: int(device.minor))
        problems = [problem.text for problem in found.problems]
        problems += [
            f"{device.uuid} (minor number {device.minor}) is not healthy: {why_lost}"
            for device in lost
            if device.minor not in reasons
        ]
        self._log(vendor, [f"{vendor.name}: {text}" for text in problems])

    def _log(self, vendor: Vendor, problems: Sequence[str]) -> None:
        said = self._said[vendor.name]
        with said.round():
            for problem in problems:
                said.say(problem, level=logging.ERROR)

    def _all(self) -> list[XPUDeviceInfo]:
        return [device for vendor in self.vendors for device in self._last.get(vendor.name, ())]


def _lost(device: XPUDeviceInfo, why: str) -> XPUDeviceInfo:
    return msgspec.structs.replace(device, status=XPUStatus(False, "DeviceLost", why))


def _has(bus: Sequence[PciDevice], vendor: Vendor) -> bool:
    return any(device.vendor == vendor.pci_vendor and device.product not in vendor.other_products for device in bus)
