"""Cambricon MLUs, listed by ``cnmon``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus, XPUTopology
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, placed
from koordinator.device_daemon.tool_output import Field, first_line, is_absent, number, odd_rows, read_fields

_TOOL: Final = "cnmon"
_CARD: Final = re.compile(r"\bcard\s*#?\s*(\d{1,4})\b", re.IGNORECASE)
_PCI_PARTS: Final = ("domain id", "bus num", "device", "function")
_MEMORY: Final = "physical memory usage"
_HEALTH: Final = ("health", "health state")


class Cambricon:
    name = "cambricon"
    pci_vendor = "cabc"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        listing = await machine.tools.run(_TOOL, "-l")
        model = next((text for text in listing.split() if "MLU" in text), None)
        if model is None:
            raise DiscoveryError(f"cnmon -l names no MLU, but begins with {first_line(listing)}")
        memory = _memory(list(read_fields(await machine.tools.run(_TOOL, "info"))))
        cards, odd = _cards(listing)
        if not cards:
            raise DiscoveryError(f"cnmon -l lists no UUID, but begins with {first_line(listing)}")
        problems = [Problem(odd_rows(odd, "cnmon -l"))] if odd else []
        devices = []
        for card in cards:
            try:
                output = await machine.tools.run(_TOOL, "info", "-c", card)
                devices.append(_device(machine, card, model, memory, list(read_fields(output))))
            except DiscoveryError as error:
                problems.append(Problem(f"MLU {card} is left out: {error}", (card,)))
        return Found(devices, problems)


def _cards(listing: str) -> tuple[list[str], list[str]]:
    """The numbers of the cards, each of which has a line with its UUID; counted from 0 where no line has a number.
    And the lines without one, where others have it."""
    lines = [line for line in listing.splitlines() if "UUID" in line]
    numbers = [_CARD.search(line) for line in lines]
    if not any(numbers):
        return [str(index) for index in range(len(lines))], []
    odd = [line for line, match in zip(lines, numbers, strict=True) if match is None]
    return [str(int(match[1])) for match in numbers if match is not None], odd


def _memory(fields: Sequence[Field]) -> int | None:
    """MiB, of the first card that says it."""
    totals = [field.value for field in fields if field.section == _MEMORY and field.name == "total"]
    return number(totals[0].split()[0], "memory") if totals and totals[0] else None


def _device(machine: Machine, card: str, model: str, memory: int | None, fields: Sequence[Field]) -> XPUDeviceInfo:
    own_memory = _memory(fields) or memory
    if not own_memory:
        raise DiscoveryError("cnmon info says no total of Physical Memory Usage")
    domain, bus, device, function = (_pci_part(fields, name) for name in _PCI_PARTS)
    bus_id = f"{domain}:{bus}:{device}.{function}"
    place = placed(machine, bus_id)
    numa_node = _value(fields, "numa node id")
    return XPUDeviceInfo(
        vendor="cambricon",
        model=_value(fields, "product name") or model,
        uuid=_required(fields, "uuid"),
        minor=card,
        resources={resource_names.GPU_MEMORY: f"{own_memory}Mi", resource_names.GPU_CORE: "100"},
        # Where the tool itself knows the NUMA node, that counts; sysfs adds the PCIe root.
        topology=XPUTopology(
            socket_id="-1", node_id=numa_node or place.node_id, pcie_id=place.pcie_id, bus_id=place.bus_id
        ),
        status=_status(fields),
    )


def _value(fields: Sequence[Field], name: str) -> str:
    """Empty if there is none."""
    return next((field.value for field in fields if field.name == name and not is_absent(field.value)), "")


def _required(fields: Sequence[Field], name: str) -> str:
    value = _value(fields, name)
    if not value:
        raise DiscoveryError(f"get mlu device info err, no {name} field")
    return value.split()[0]


def _pci_part(fields: Sequence[Field], name: str) -> str:
    """What is wrong with the card stands behind ``Device`` as well."""
    return _required([field for field in fields if field.section not in _HEALTH], name)


def _status(fields: Sequence[Field]) -> XPUStatus:
    """A card of which the tool does not say that it is good is not healthy."""
    said = [field.value for field in fields if field.section in _HEALTH and field.name == "device"]
    if said == ["Good"]:
        return XPUStatus(healthy=True)
    bad = next((value for value in said if value and value != "Good"), "")
    return XPUStatus(False, error_message=f"Device is unhealthy, status: {bad}" if bad else "")
