"""PCI devices as sysfs shows them: which are there, and where in the machine each is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from koordinator.node.errors import NodeError, file_error
from koordinator.node.host import list_folder, read_integer, read_text

_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_DOMAIN_DIGITS: Final = 4
UNKNOWN_NUMA_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class PciDevice:
    """Identifiers are four hexadecimal digits in lower case, without ``0x``."""

    address: str
    vendor: str
    product: str


@dataclass(frozen=True, slots=True)
class PciPlacement:
    """Where a device is. ``root`` is empty, and ``numa_node`` is -1, when sysfs does not have them."""

    address: str
    numa_node: int
    root: str
    """The PCIe root that it hangs from, such as ``pci0000:80``."""


def pci_address(text: str) -> str:
    """The kernel's form of an address: lower case, with a domain of at least four digits.

    Tools of vendors print ``0000:C1:00.0``, ``c1:00.0`` or ``00000000:C1:00.0``. What is no address stays as it is.
    """
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        return text.strip()
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):0{_DOMAIN_DIGITS}x}:{bus}:{device}.{function}"


class PciBus:
    """All PCI devices of a machine."""

    def __init__(self, folder: str = "/sys/bus/pci/devices") -> None:
        self._folder = folder

    def devices(self) -> list[PciDevice]:
        """In the order of their addresses; none where there is no PCI bus.

        Raises NodeError when the bus is there and cannot be listed. A device that goes away meanwhile is left out.
        """
        if not os.path.isdir(self._folder):
            return []
        devices = []
        for address in list_folder(self._folder):
            try:
                vendor, product = (self._identifier(address, name) for name in ("vendor", "device"))
            except NodeError:
                continue
            devices.append(PciDevice(address, vendor, product))
        return devices

    def placement(self, address: str) -> PciPlacement:
        """Of the device at ``address``, in whatever form. Raises NodeError when the machine has no such device."""
        name = pci_address(address)
        path = f"{self._folder}/{name}"
        # -1 is what the kernel says on machines with one NUMA node.
        numa_node = max(0, read_integer(f"{path}/numa_node"))
        try:
            found = _ROOT.search(os.path.realpath(path, strict=True))
        except OSError as error:
            raise file_error(path, error) from error
        return PciPlacement(name, numa_node, found.group() if found else "")

    def _identifier(self, address: str, name: str) -> str:
        return read_text(f"{self._folder}/{address}/{name}").lower().removeprefix("0x")
