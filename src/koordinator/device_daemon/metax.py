"""MetaX GPUs, listed by ``mx-smi``."""

from __future__ import annotations

import re
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import (
    DiscoveryError,
    Found,
    Machine,
    ToolError,
    Tools,
    lines_with,
    number,
    placed,
    word,
)

_TOOL: Final = "mx-smi"
_CAPACITY: Final = re.compile(r"(\d+)\s*(?:GB|Gi)")
_COUNTERS: Final = ("SRAM Uncorrectable", "DRAM Uncorrectable", "Double Bit ECC")


class MetaX:
    name = "metax"
    pci_vendor = "9999"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        hardware = await machine.tools.run(_TOOL, "--show-hwinfo")
        models = _lines_about(hardware, "model name")
        if not models:
            raise DiscoveryError("mx-smi --show-hwinfo names no model")
        model, memory = word(models[0], 3, "model name"), _memory(hardware)
        listing = await machine.tools.run(_TOOL, "--list")
        devices, problems = [], []
        for index in range(len(models)):
            try:
                devices.append(await _device(machine, index, model, memory, listing))
            except DiscoveryError as error:
                problems.append(f"MX {index}: {error}")
        return Found(devices, problems)


def _lines_about(output: str, text: str) -> list[str]:
    """In whatever case the tool writes it."""
    return [line for line in output.splitlines() if text in line.lower()]


def _memory(hardware: str) -> str:
    """Of the first device, as a quantity."""
    lines = _lines_about(hardware, "memory capacity")
    if not lines:
        raise DiscoveryError("mx-smi --show-hwinfo says no memory capacity")
    text = word(lines[0], 3, "memory capacity")
    match = _CAPACITY.fullmatch(text)
    if match is None:
        raise DiscoveryError(f"memory capacity {text!r} is not a number of GB")
    return f"{match[1]}Gi"


async def _device(machine: Machine, index: int, model: str, memory: str, listing: str) -> XPUDeviceInfo:
    own = await machine.tools.run(_TOOL, "--show-hwinfo", "-i", str(index))
    slots = [line for line in lines_with(own, "GPU#") if "SGPU" not in line]
    if not slots:
        raise DiscoveryError(f"mx-smi --show-hwinfo -i {index} has no line of GPU#{index}")
    return XPUDeviceInfo(
        vendor="metax",
        model=model,
        uuid=_uuid(listing, index),
        minor=str(index),
        resources={resource_names.GPU_MEMORY: memory, resource_names.GPU_CORE: "100"},
        topology=placed(machine, word(slots[0], 2, "PCI address")),
        status=await _status(machine.tools, index),
    )


def _uuid(listing: str, index: int) -> str:
    own = re.compile(rf"\bGPU#{index}\b")
    lines = [line for line in listing.splitlines() if "SGPU" not in line and own.search(line)]
    if not lines:
        raise DiscoveryError(f"mx-smi --list has no GPU#{index}")
    return word(lines[0], 5, "UUID").strip("()")


async def _status(tools: Tools, index: int) -> XPUStatus:
    try:
        output = await tools.run(_TOOL, "--count-ecc", "-i", str(index))
    except ToolError:
        # Not every model counts.
        return XPUStatus(healthy=True)
    errors = sum(number(word(line, -1, "ECC errors"), "ECC errors") for line in lines_with(output, *_COUNTERS))
    if not errors:
        return XPUStatus(healthy=True)
    return XPUStatus(
        False, "ECCError", f"MX index {index} has {errors} SRAM/DRAM Uncorrectable or Double Bit  ECC errors"
    )
