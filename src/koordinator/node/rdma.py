"""Network cards that do RDMA, as sysfs shows them: whether their ports are up, and their virtual functions."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from koordinator.node.errors import FileError, MissingFileError, NodeError, file_error
from koordinator.node.host import Host, list_folder, read_optional_integer, read_text
from koordinator.node.pci import PciBus, PciPlacement

_NETWORK_CLASS: Final = "0x02"
DEVICE_FOLDER: Final = "/dev/infiniband"
_NUMBERED: Final = re.compile(r"mlx\d+_(\d+)")
"""The kernel's names of the devices of Mellanox' drivers; the number is the minor number."""


@dataclass(frozen=True, slots=True)
class RDMADevice:
    """A physical function. ``virtual_functions`` are PCI addresses; none where SR-IOV is off."""

    minor: int
    healthy: bool
    placement: PciPlacement
    virtual_functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A character device and its numbers."""

    path: str
    major: int
    minor: int


def read_rdma_devices(host: Host) -> tuple[RDMADevice, ...]:
    """In the order of their minor numbers; a card whose files vanish meanwhile is left out."""
    folder = f"{host.sys}/bus/pci/devices"
    bus = PciBus(folder)
    found = []
    try:
        addresses = list_folder(folder)
    except FileError:
        return ()
    for address in addresses:
        try:
            device = _read(host, bus, folder, address)
        except NodeError:
            continue
        if device is not None:
            found.append(device)
    return tuple(sorted(found, key=lambda device: device.minor))


def verbs_device(host: Host, address: str) -> DeviceFile:
    """The file through which programs use the RDMA device at a PCI address. FileError if the kernel shows none."""
    folder = f"{host.sys}/bus/pci/devices/{address}/infiniband_verbs"
    names = list_folder(folder)
    if not names:
        raise MissingFileError(folder, "is empty: the device is used by no driver")
    return device_file(f"{DEVICE_FOLDER}/{names[0]}")


def device_file(path: str) -> DeviceFile:
    """FileError if it is not there."""
    try:
        number = os.stat(path).st_rdev
    except OSError as error:
        raise file_error(path, error) from error
    return DeviceFile(path, os.major(number), os.minor(number))


def _read(host: Host, bus: PciBus, folder: str, address: str) -> RDMADevice | None:
    path = f"{folder}/{address}"
    is_virtual = os.path.lexists(f"{path}/physfn")
    if is_virtual or not read_text(f"{path}/class").startswith(_NETWORK_CLASS):
        return None
    if not os.path.isdir(f"{path}/infiniband"):
        return None
    names = list_folder(f"{path}/infiniband")
    match = _NUMBERED.fullmatch(names[0]) if names else None
    if match is None:
        return None
    return RDMADevice(
        minor=int(match[1]),
        healthy=_is_active(f"{host.sys}/class/infiniband/{names[0]}/ports"),
        placement=bus.placement(address),
        virtual_functions=_virtual_functions(path),
    )


def _is_active(folder: str) -> bool:
    """Whether there is a port, and each is up."""
    try:
        states = [read_text(f"{folder}/{port}/state") for port in list_folder(folder)]
    except FileError:
        return False
    return bool(states) and all("ACTIVE" in state for state in states)


def _virtual_functions(path: str) -> tuple[str, ...]:
    if not read_optional_integer(f"{path}/sriov_numvfs"):
        return ()
    links = [name for name in list_folder(path) if name.startswith("virtfn")]
    return tuple(sorted(os.path.basename(os.path.realpath(f"{path}/{name}")) for name in links))
