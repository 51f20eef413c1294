"""Huawei Ascend NPUs, listed by ``npu-smi``.

A card has one chip, or several on cards such as the 310P Duo; each chip is a device with a file /dev/davinciN, whose
number is the physical ID of the chip (its logic ID in what tools print that do not know the other).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, ToolError, Tools, placed
from koordinator.device_daemon.tool_output import (
    Table,
    first_line,
    is_absent,
    number,
    odd_rows,
    read_table,
    sum_of,
    values_of,
)
from koordinator.node.host import list_folder

_TOOL: Final = "npu-smi"
_MAPPING: Final = "npu-smi info -m"
_DEVICE_FILE: Final = re.compile(r"davinci(\d+)")
_CARD, _CHIP, _NAME = "npu id", "chip id", "chip name"
_NUMBERS: Final = ("chip phy id", "chip physical id", "chip logic id")
"""Columns with the number of the device file: the first that the table has counts."""
_COLUMNS: Final = (_CARD, "slot id", _CHIP, *_NUMBERS, _NAME)
_CAPACITIES: Final = ("ddr capacity", "hbm capacity", "capacity")
"""The last one is that of Ascend 310."""
_FAULTS: Final = ("chip fault", "faulty chip count")
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
    model: str
    """As NVIDIA's are written: ``Ascend-910B3``."""
    alone: bool
    """The only chip of its card."""

    @property
    def options(self) -> tuple[str, ...]:
        """Of commands that print all chips of the card otherwise."""
        return ("-i", self.card) if self.alone else ("-i", self.card, "-c", self.number)

    @property
    def uuid(self) -> str:
        return f"npu-{self.card}-{self.minor}"

    def __str__(self) -> str:
        return f"NPU {self.card}" if self.alone else f"NPU {self.card} chip {self.number}"


class Huawei:
    name = "huawei"
    pci_vendor = "19e5"
    other_products = frozenset({"1710", "1711"})
    """Bridges and management chips."""

    async def devices(self, machine: Machine) -> Found:
        mapping = read_table(await machine.tools.run(_TOOL, "info", "-m"), _COLUMNS, {_CARD, _NAME}, _MAPPING)
        listing = await machine.tools.run(_TOOL, "info", "-l")
        cards = [card for card in values_of(listing, _CARD) if not is_absent(card)]
        if not cards:
            raise DiscoveryError(f"npu-smi info -l lists no NPU ID, but {first_line(listing)}")
        chips, problems = _chips(mapping, cards, _minors(machine.dev))
        devices = []
        for chip in chips:
            try:
                devices.append(await _device(machine, chip, problems))
            except DiscoveryError as error:
                problems.append(Problem(f"{chip} is left out: {error}", (chip.minor,)))
        boards = {chip.uuid: f"NPU {chip.card}" for chip in chips if not chip.alone}
        return Found(devices, problems, boards)


def _minors(dev: str) -> list[str]:
    """In the order of the numbers."""
    found = map(_DEVICE_FILE.fullmatch, list_folder(dev))
    return sorted((match[1] for match in found if match), key=int)


def _chips(mapping: Table, cards: Sequence[str], minors: Sequence[str]) -> tuple[list[_Chip], list[Problem]]:
    """Which device file is which chip: as the driver maps them, or one after the other where its table has no column
    for that."""
    column = next((name for name in _NUMBERS if name in mapping.columns), None)
    if column is None:
        mapped, problems = _one_after_the_other(mapping, cards, minors)
    else:
        mapped, problems = _mapped(mapping, column, cards)
    there = [chip for chip in mapped if chip.minor in minors]
    problems += [
        Problem(f"{chip} is left out: there is no /dev/davinci{chip.minor} for it", (chip.minor,))
        for chip in mapped
        if chip.minor not in minors
    ]
    found = {chip.card for chip in mapped}
    problems += [
        Problem(f"NPU {card} is left out: there is no /dev/davinci* for it") for card in cards if card not in found
    ]
    return there, problems


def _mapped(mapping: Table, column: str, cards: Sequence[str]) -> tuple[list[_Chip], list[Problem]]:
    """Chips without a number are no NPUs: each card has another one, which manages it."""
    odd = list(mapping.odd)
    rows: list[dict[str, str]] = []
    for row in mapping.rows:
        if is_absent(row[column]) or row[column].isalpha():
            continue
        numbers = [row[name] for name in (_CARD, _CHIP, column) if name in row]
        if not all(text.isascii() and text.isdigit() for text in numbers):
            odd.append("  ".join(row.values()))
        elif row[_CARD] in cards:
            rows.append(row)
    per_card = {card: sum(row[_CARD] == card for row in rows) for card in cards}
    chips = [
        _Chip(row[_CARD], row.get(_CHIP, "0"), row[column], _model(row[_NAME]), per_card[row[_CARD]] == 1)
        for row in rows
    ]
    return chips, [Problem(odd_rows(odd, _MAPPING))] if odd else []


def _one_after_the_other(
    mapping: Table, cards: Sequence[str], minors: Sequence[str]
) -> tuple[list[_Chip], list[Problem]]:
    if not mapping.rows:
        raise DiscoveryError(f"{_MAPPING} names no chip below its columns")
    model = _model(mapping.rows[0][_NAME])
    return [_Chip(card, "0", minor, model, True) for card, minor in zip(cards, minors, strict=False)], []


def _model(name: str) -> str:
    return "-".join(name.split())


async def _device(machine: Machine, chip: _Chip, problems: list[Problem]) -> XPUDeviceInfo:
    """Raises DiscoveryError. ``problems`` get what is wrong with a device that is listed all the same."""
    tools = machine.tools
    board = await tools.run(_TOOL, "info", "-t", "board", "-i", chip.card)
    bus_id = await _bus_id(tools, chip, board)
    memory = await _memory(tools, chip)
    cores = _AI_CORES[chip.model] if chip.model in _AI_CORES else await _ai_cores(tools, chip)
    resources = {
        resource_names.GPU_MEMORY: f"{memory}Mi",
        resource_names.HUAWEI_NPU_CORE: str(cores),
        resource_names.HUAWEI_NPU_DVPP: "100",
    }
    try:
        cpus = _AI_CPUS[chip.model] if chip.model in _AI_CPUS else await _ai_cpus(tools, chip)
    except DiscoveryError as error:
        problems.append(Problem(f"the AI CPUs of {chip} are unknown: {error}"))
    else:
        resources[resource_names.HUAWEI_NPU_CPU] = str(cpus)
    return XPUDeviceInfo(
        vendor="huawei",
        model=chip.model,
        uuid=chip.uuid,
        minor=chip.minor,
        resources=resources,
        topology=placed(machine, bus_id),
        status=_status(chip.card, board),
    )


async def _bus_id(tools: Tools, chip: _Chip, board: str) -> str:
    """Its own where the chips of a card have one each, as those of Atlas A3, else that of the card. Empty for one that
    is on no PCI bus."""
    if not chip.alone:
        try:
            own = await tools.run(_TOOL, "info", "-t", "board", *chip.options)
        except ToolError:
            own = ""
        board = f"{board}\n{own}"
    said = values_of(board, "pcie bus info")
    if not said:
        raise DiscoveryError(f"npu-smi info -t board says no PCIe Bus Info, but {first_line(board)}")
    return next((value for value in reversed(said) if not is_absent(value)), "")


def _status(card: str, board: str) -> XPUStatus:
    faults = sum_of(board, *_FAULTS)
    if not faults:
        return XPUStatus(healthy=True)
    return XPUStatus(False, "ChipError", f"NPU index {card} has {faults} chip faults")


async def _memory(tools: Tools, chip: _Chip) -> int:
    """MiB of a chip: its own where the tool reports it, else what the original assumes for all."""
    try:
        own = sum_of(await tools.run(_TOOL, "info", "-t", "memory", *chip.options), *_CAPACITIES)
    except ToolError:
        own = 0
    if own:
        return own
    try:
        output = await tools.run(_TOOL, "-t", "memory", "-i", "1")
        shared = sum_of(output, *_CAPACITIES)
    except ToolError as error:
        if _NO_SUCH_OPTION in error.output:
            return _MEMORY_OF_310P3
        raise
    if not shared:
        raise DiscoveryError(f"npu-smi says no DDR or HBM Capacity, but {first_line(output)}")
    return shared


async def _ai_cores(tools: Tools, chip: _Chip) -> int:
    """The tool prints all chips of a card, one after the other."""
    output = ""
    for queried in (chip.card, "0"):
        try:
            output = await tools.run(_TOOL, "info", "-t", "common", "-i", queried)
        except ToolError:
            if queried == "0":
                raise
        else:
            cores = sum_of(output if chip.alone else _of_chip(output, chip.number), "aicore count")
            if cores:
                return cores
    raise DiscoveryError(f"npu-smi info -t common says no Aicore Count of {chip}, but {first_line(output)}")


def _of_chip(output: str, number: str) -> str:
    """The lines below the one with the number of the chip, up to the next one. All, where there is no such line."""
    parts = re.split(r"^\s*Chip ID\s*:\s*(\d+)\s*$", output, flags=re.MULTILINE)
    return (
        output
        if len(parts) == 1
        else "\n".join(part for found, part in zip(parts[1::2], parts[2::2], strict=True) if found == number)
    )


async def _ai_cpus(tools: Tools, chip: _Chip) -> int:
    """Of all lines that name AI CPUs: what it calls them differs."""
    output = await tools.run(_TOOL, "info", "-t", "cpu-num-cfg", *chip.options)
    lines = [line for line in output.splitlines() if re.search(r"\bAI", line) and ":" in line]
    return sum(number(line.rpartition(":")[2].strip(), "AI CPUs") for line in lines)
