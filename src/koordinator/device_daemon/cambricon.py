"""Cambricon MLUs, listed by ``cnmon``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus, XPUTopology
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, lines_with, number, placed, word

_TOOL: Final = "cnmon"
_DEVICE_LINE: Final = re.compile(r"Device\s*:\s*(\S.*)")
_FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "UUID": ("uuid", 2),
    "NUMA node id": ("numa node id", -1),
    "Domain ID": ("domain id", -1),
    "Bus num": ("bus num", -1),
    "Function": ("function", -1),
}
"""What a line contains -> (the field, which word has its value); each has three words at least."""


class Cambricon:
    name = "cambricon"
    pci_vendor = "cabc"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        listing = await machine.tools.run(_TOOL, "-l")
        model = next((text for text in listing.split() if "MLU" in text), None)
        if model is None:
            raise DiscoveryError("cnmon -l names no MLU")
        memory = _memory(await machine.tools.run(_TOOL, "info"))
        devices, problems = [], []
        for index in range(len(lines_with(listing, "UUID"))):
            try:
                output = await machine.tools.run(_TOOL, "info", "-c", str(index))
                devices.append(_device(machine, index, model, memory, output))
            except DiscoveryError as error:
                problems.append(f"MLU {index}: {error}")
        return Found(devices, problems)


def _memory(output: str) -> int:
    """MiB, of the first card: each ``Physical Memory Usage`` is followed by its total."""
    lines = output.splitlines()
    for index, line in enumerate(lines):
        if "Physical Memory Usage" in line:
            for candidate in lines[index : index + 2]:
                if "Total" in candidate:
                    return number(word(candidate, -2, "total of the memory"), "memory")
    raise DiscoveryError("cnmon info says no total of Physical Memory Usage")


def _device(machine: Machine, index: int, model: str, memory: int, output: str) -> XPUDeviceInfo:
    fields = _fields(output)
    healthy, message, device = _health(output)
    bus_id = f"{fields['domain id']}:{fields['bus num']}:{device}.{fields['function']}"
    place = placed(machine, bus_id)
    return XPUDeviceInfo(
        vendor="cambricon",
        model=model,
        uuid=fields["uuid"],
        minor=str(index),
        resources={resource_names.GPU_MEMORY: f"{memory}Mi", resource_names.GPU_CORE: "100"},
        # The tool itself knows the NUMA node; sysfs adds the PCIe root.
        topology=XPUTopology(socket_id="-1", node_id=fields["numa node id"], pcie_id=place.pcie_id, bus_id=bus_id),
        status=XPUStatus(healthy, error_message=message),
    )


def _fields(output: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in output.splitlines():
        for text, (name, index) in _FIELDS.items():
            if text in line:
                if len(line.split()) < 3:
                    raise DiscoveryError(f"get mlu device info err, no {name} field")
                found[name] = word(line, index, name)
    for name, _ in _FIELDS.values():
        if name not in found:
            raise DiscoveryError(f"get mlu device info err, no {name} field")
    return found


def _health(output: str) -> tuple[bool, str, str]:
    """(healthy, what is wrong, the PCI device number): two kinds of lines begin with ``Device :``."""
    healthy, message, device = False, "", ""
    for line in output.splitlines():
        match = _DEVICE_LINE.fullmatch(line.strip())
        if match is None:
            continue
        value = match[1].strip()
        if value.isdigit():
            device = value
        elif value == "Good":
            healthy = True
        else:
            healthy, message = False, f"Device is unhealthy, status: {value}"
    if not device:
        raise DiscoveryError("get mlu device info err, no device field")
    return healthy, message, device
