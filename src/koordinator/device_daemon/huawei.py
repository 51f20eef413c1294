"""Huawei Ascend NPUs, listed by ``npu-smi``.

A card has one chip, or several on cards such as the 310P Duo; each chip is a device with a file /dev/davinciN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
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
from koordinator.node.host import list_folder

_TOOL: Final = "npu-smi"
_DEVICE_FILE: Final = re.compile(r"davinci(\d+)")
_CAPACITIES: Final = ("DDR Capacity", "HBM Capacity")
_NO_SUCH_OPTION: Final = "Command or option is not found"
_MEMORY_OF_310P3: Final = 21527
"""MiB; its tool does not report it."""
_AI_CORES: Final = {"Ascend-310P3": 8}
_AI_CPUS: Final = {"Ascend-910B": 0, "Ascend-910B2": 6, "Ascend-910B3": 7, "Ascend-910B4": 7}


@dataclass(frozen=True, slots=True)
class _Chip:
    card: str
    number: str
    """Within its card."""
    minor: str
    alone: bool
    """The only chip of its card."""


class Huawei:
    name = "huawei"
    pci_vendor = "19e5"
    other_products = frozenset({"1710", "1711"})
    """Bridges and management chips."""

    async def devices(self, machine: Machine) -> Found:
        tools = machine.tools
        mapping = await tools.run(_TOOL, "info", "-m")
        model = _model(mapping)
        cards = [word(line, -1, "NPU ID") for line in lines_with(await tools.run(_TOOL, "info", "-l"), "NPU ID")]
        if not cards:
            raise DiscoveryError("npu-smi info -l lists no NPU ID")
        minors = _minors(machine.dev)
        chips, problems = _pair(cards, _chips(mapping), minors)
        devices = []
        cpus = await _ai_cpus(tools, model, cards[0])
        for chip in chips:
            try:
                devices.append(await _device(machine, model, cpus, chip))
            except DiscoveryError as error:
                problems.append(f"NPU {chip.card}: {error}")
        return Found(devices, problems)


def _model(mapping: str) -> str:
    """As NVIDIA's are written: ``Ascend-910B3``."""
    lines = mapping.splitlines()
    if len(lines) < 2:
        raise DiscoveryError("npu-smi info -m names no chip")
    return f"{word(lines[1], -2, 'chip name')}-{word(lines[1], -1, 'chip name')}"


def _chips(mapping: str) -> list[tuple[str, str, str]]:
    """(card, chip, logic ID) of every row whose logic ID is a number: others are no NPUs."""
    rows = [line.split()[:3] for line in mapping.splitlines()[1:]]
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and all(text.isdigit() for text in row)]


def _minors(dev: str) -> list[str]:
    """In the order of the numbers."""
    found = map(_DEVICE_FILE.fullmatch, list_folder(dev))
    return sorted((match[1] for match in found if match), key=int)


def _pair(
    cards: Sequence[str], mapped: Sequence[tuple[str, str, str]], minors: Sequence[str]
) -> tuple[list[_Chip], list[str]]:
    """Which device file is which chip: as the driver maps them, or one after the other where it does not."""
    if {card for card, _, _ in mapped} >= set(cards):
        per_card = {card: [entry for entry in mapped if entry[0] == card] for card in cards}
        chips = [
            _Chip(card, chip, minor, len(per_card[card]) == 1) for card in cards for _, chip, minor in per_card[card]
        ]
    else:
        chips = [_Chip(card, "0", minor, True) for card, minor in zip(cards, minors, strict=False)]
    there = [chip for chip in chips if chip.minor in minors]
    paired = {chip.card for chip in there}
    missing = [f"NPU {card}: there is no /dev/davinci* for it" for card in cards if card not in paired]
    return there, missing


async def _device(machine: Machine, model: str, cpus: int, chip: _Chip) -> XPUDeviceInfo:
    board = await machine.tools.run(_TOOL, "info", "-t", "board", "-i", chip.card)
    memory = await _memory(machine.tools, chip)
    cores = _AI_CORES[model] if model in _AI_CORES else await _ai_cores(machine.tools, chip.card)
    return XPUDeviceInfo(
        vendor="huawei",
        model=model,
        uuid=f"npu-{chip.card}-{chip.minor}",
        minor=chip.minor,
        resources={
            resource_names.GPU_MEMORY: f"{memory}Mi",
            resource_names.HUAWEI_NPU_CPU: str(cpus),
            resource_names.HUAWEI_NPU_CORE: str(cores),
            resource_names.HUAWEI_NPU_DVPP: "100",
        },
        topology=placed(machine, _bus_id(board)),
        status=_status(chip.card, board),
    )


def _bus_id(board: str) -> str:
    lines = lines_with(board, "PCIe Bus Info")
    if not lines:
        raise DiscoveryError("npu-smi info -t board says no PCIe Bus Info")
    return word(lines[-1], -1, "PCIe Bus Info")


def _status(card: str, board: str) -> XPUStatus:
    faults = sum(number(word(line, -1, "Chip Fault"), "Chip Fault") for line in lines_with(board, "Chip Fault"))
    if not faults:
        return XPUStatus(healthy=True)
    return XPUStatus(False, "ChipError", f"NPU index {card} has {faults} chip faults")


async def _memory(tools: Tools, chip: _Chip) -> int:
    """MiB of a chip: its own where the tool reports it, else what the original assumes for all."""
    of_chip = () if chip.alone else ("-c", chip.number)
    try:
        own = _sum(await tools.run(_TOOL, "info", "-t", "memory", "-i", chip.card, *of_chip), *_CAPACITIES)
    except ToolError:
        own = 0
    if own:
        return own
    try:
        shared = _sum(await tools.run(_TOOL, "-t", "memory", "-i", "1"), *_CAPACITIES)
    except ToolError as error:
        if _NO_SUCH_OPTION in error.output:
            return _MEMORY_OF_310P3
        raise
    if not shared:
        raise DiscoveryError("npu-smi says no DDR or HBM Capacity")
    return shared


async def _ai_cores(tools: Tools, card: str) -> int:
    for queried in (card, "0"):
        try:
            cores = _sum(await tools.run(_TOOL, "info", "-t", "common", "-i", queried), "Aicore Count")
        except ToolError:
            if queried == "0":
                raise
        else:
            if cores:
                return cores
    raise DiscoveryError("npu-smi says no Aicore Count")


async def _ai_cpus(tools: Tools, model: str, card: str) -> int:
    if model in _AI_CPUS:
        return _AI_CPUS[model]
    return _sum(await tools.run(_TOOL, "info", "-t", "cpu-num-cfg", "-i", card), "AI")


def _sum(output: str, *names: str) -> int:
    """Of the last words of the lines that contain a name."""
    return sum(number(word(line, -1, names[0]), names[0]) for line in lines_with(output, *names))
