"""Baidu Kunlun XPUs, listed by ``xpu_smi``, whose machine-readable form has one line of words a device."""

from __future__ import annotations

from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, number, placed, word

_TOOL: Final = "xpu_smi"
_MEMORY: Final = 18
_MODEL: Final = 21


class Kunlun:
    name = "baidu"
    pci_vendor = "1d22"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        rows = [line for line in (await machine.tools.run(_TOOL, "-m")).splitlines() if line.strip()]
        if not rows:
            raise DiscoveryError("xpu_smi -m lists no device")
        first = rows[0].split()
        if len(first) <= _MODEL:
            raise DiscoveryError("get xpu name err, no xpu name field")
        memory = number(first[_MEMORY], "memory")
        devices, problems = [], []
        for index in range(len(rows)):
            try:
                output = await machine.tools.run(_TOOL, "-m", "-d", f"/dev/xpu{index}")
                devices.append(_device(machine, index, first[_MODEL], memory, word(output, 0, "PCI address")))
            except DiscoveryError as error:
                problems.append(f"XPU {index}: {error}")
        return Found(devices, problems)


def _device(machine: Machine, index: int, model: str, memory: int, bus_id: str) -> XPUDeviceInfo:
    return XPUDeviceInfo(
        vendor="kunlun",
        model=model,
        uuid=f"xpu-{index}",
        minor=str(index),
        resources={resource_names.GPU_MEMORY: f"{memory}Mi", resource_names.GPU_CORE: "100"},
        topology=placed(machine, bus_id),
        # The tool does not report it.
        status=XPUStatus(healthy=True),
    )
