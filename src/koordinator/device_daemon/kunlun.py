"""Baidu Kunlun XPUs, listed by ``xpu_smi``, whose machine-readable form has one line of words a device.

It has no header: the words are those of its documentation, of which a line must have the ones that can be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, placed
from koordinator.device_daemon.tool_output import is_absent, number, odd_rows

_TOOL: Final = "xpu_smi"
_BUS_ID, _DEVICE, _BOARD, _MEMORY, _MODEL = 0, 2, 3, 18, 21
_WORD: Final = re.compile(r'"[^"]*"|\S+')
"""The model is in quotation marks where it has blanks."""
_ADDRESS: Final = re.compile(r"(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class _Row:
    bus_id: str
    device: str
    board: str
    """Its serial number: a K200 is one board with two devices."""
    memory: int
    model: str


class Kunlun:
    name = "baidu"
    pci_vendor = "1d22"
    other_products: frozenset[str] = frozenset()

    async def devices(self, machine: Machine) -> Found:
        rows, odd = _rows(await machine.tools.run(_TOOL, "-m"))
        if not rows and not odd:
            raise DiscoveryError("xpu_smi -m lists no device")
        if not rows:
            raise DiscoveryError(f"get xpu name err, no xpu name field: {odd_rows(odd, 'xpu_smi -m')}")
        problems = [Problem(odd_rows(odd, "xpu_smi -m"))] if odd else []
        devices, boards = [], {}
        for row in rows:
            try:
                device = await _device(machine, row)
            except DiscoveryError as error:
                problems.append(Problem(f"XPU {row.device} is left out: {error}", (row.device,)))
                continue
            devices.append(device)
            if not is_absent(row.board):
                boards[device.uuid] = row.board
        return Found(devices, problems, boards)


def _rows(output: str) -> tuple[list[_Row], list[str]]:
    """And the lines that are none."""
    rows, odd = [], []
    for line in output.splitlines():
        words = _WORD.findall(line)
        if not words:
            continue
        try:
            rows.append(_row(words))
        except DiscoveryError:
            odd.append(line)
    return rows, odd


def _row(words: Sequence[str]) -> _Row:
    """Raises DiscoveryError."""
    if len(words) <= _MODEL or not _ADDRESS.fullmatch(words[_BUS_ID]):
        raise DiscoveryError("no row of a device")
    return _Row(
        bus_id=words[_BUS_ID],
        device=str(number(words[_DEVICE], "device")),
        board=words[_BOARD],
        memory=number(words[_MEMORY], "memory"),
        model="-".join(words[_MODEL].strip('"').split()),
    )


async def _device(machine: Machine, row: _Row) -> XPUDeviceInfo:
    rows, _ = _rows(await machine.tools.run(_TOOL, "-m", "-d", f"/dev/xpu{row.device}"))
    own = next((each for each in rows if each.device == row.device), None)
    if own is None:
        raise DiscoveryError(f"xpu_smi -m -d /dev/xpu{row.device} does not list it")
    return XPUDeviceInfo(
        vendor="kunlun",
        model=row.model,
        uuid=f"xpu-{row.device}",
        minor=row.device,
        resources={resource_names.GPU_MEMORY: f"{row.memory}Mi", resource_names.GPU_CORE: "100"},
        topology=placed(machine, own.bus_id),
        # The tool does not report it.
        status=XPUStatus(healthy=True),
    )
