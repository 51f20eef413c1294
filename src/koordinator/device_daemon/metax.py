"""MetaX GPUs, listed by ``mx-smi``."""

from __future__ import annotations

import re
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, ToolError, Tools, placed
from koordinator.device_daemon.tool_output import first_line, is_absent, number, read_fields, shown, values_of

_TOOL: Final = "mx-smi"
_HARDWARE: Final = "mx-smi --show-hwinfo"
_GPU: Final = re.compile(r"\s*GPU#(\d{1,4})\b")
"""The line that a GPU begins with, here and in the list. Those of shared GPUs (sGPU) begin otherwise."""
_ADDRESS: Final = re.compile(r"\b(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")
_UUID: Final = re.compile(r"\bUUID\s*:\s*\(?([^\s()]+)", re.IGNORECASE)
_CAPACITY: Final = re.compile(r"(\d{1,9})\s*(?:GB|GiB|Gi)")
_COUNTERS: Final = ("sram uncorrectable", "dram uncorrectable", "double bit ecc")


class MetaX:
    name = "metax"
    pci_vendor = "9999"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        output = await machine.tools.run(_TOOL, "--show-hwinfo")
        hardware = _sections(output)
        if not any(values_of(section, "model name") for _, section in hardware):
            raise DiscoveryError(f"{_HARDWARE} names no GPU with a model, but begins with {first_line(output)}")
        listing = _sections(await machine.tools.run(_TOOL, "--list"))
        devices, problems = [], []
        for index, section in hardware:
            listed = "".join(each for number, each in listing if number == index)
            try:
                devices.append(await _device(machine, index, section, listed))
            except DiscoveryError as error:
                problems.append(Problem(f"MX {index} is left out: {error}", (index,)))
        return Found(devices, problems)


def _sections(output: str) -> list[tuple[str, str]]:
    """The number of each GPU, and what stands from its line to the next."""
    sections: list[tuple[str, str]] = []
    for line in output.splitlines():
        match = _GPU.match(line)
        if match is not None:
            sections.append((str(int(match[1])), line))
        elif sections:
            index, above = sections[-1]
            sections[-1] = index, f"{above}\n{line}"
    return sections


async def _device(machine: Machine, index: str, hardware: str, listed: str) -> XPUDeviceInfo:
    first = hardware.splitlines()[0]
    address, uuids = _ADDRESS.search(first), set(_UUID.findall(listed))
    if address is None:
        raise DiscoveryError(f"{_HARDWARE} has no PCI address in {shown(first)}")
    if len(uuids) != 1:
        raise DiscoveryError(f"mx-smi --list has {len(uuids)} UUIDs of GPU#{index}: {shown(listed)}")
    return XPUDeviceInfo(
        vendor="metax",
        model=_value(hardware, "model name"),
        uuid=uuids.pop(),
        minor=index,
        resources={resource_names.GPU_MEMORY: _memory(hardware), resource_names.GPU_CORE: "100"},
        topology=placed(machine, address.group()),
        status=await _status(machine.tools, index),
    )


def _value(hardware: str, name: str) -> str:
    value = next((value for value in values_of(hardware, name) if not is_absent(value)), "")
    if not value:
        raise DiscoveryError(f"{_HARDWARE} says no {name}")
    return value


def _memory(hardware: str) -> str:
    """As a quantity."""
    text = _value(hardware, "memory capacity")
    match = _CAPACITY.fullmatch(text)
    if match is None:
        raise DiscoveryError(f"memory capacity {shown(text)} is not a number of GB")
    return f"{match[1]}Gi"


async def _status(tools: Tools, index: str) -> XPUStatus:
    try:
        output = await tools.run(_TOOL, "--count-ecc", "-i", index)
    except ToolError:
        # Not every model counts.
        return XPUStatus(healthy=True)
    counts = [field.value for field in read_fields(output) if field.name.startswith(_COUNTERS)]
    errors = sum(number(value, "ECC errors") for value in counts if not is_absent(value))
    if not errors:
        return XPUStatus(healthy=True)
    return XPUStatus(
        False, "ECCError", f"MX index {index} has {errors} SRAM/DRAM Uncorrectable or Double Bit  ECC errors"
    )
