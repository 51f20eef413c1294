"""Huawei Ascend NPUs, listed by ``npu-smi``.

A card has one chip, or several on cards such as the 310P Duo; each chip is a device with a file /dev/davinciN, whose
number is the physical ID of the chip (its logic ID in what tools print that do not know the other).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from koordinator.api import resource_names
from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUStatus
from koordinator.device_daemon.machine import DiscoveryError, Found, Machine, Problem, ToolError, Tools, placed
from koordinator.device_daemon.tool_output import (
    Field,
    Table,
    first_line,
    is_absent,
    number,
    odd_rows,
    read_fields,
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


@dataclass(frozen=True, slots=True)
class _Board:
    """That a chip is on."""

    output: str
    """What the tool prints of it."""
    bus_id: str
    """Of the chip itself where the chips of a card have one each, as those of Atlas A3. Empty where the tool says that
    there is none, as of NPUs on no PCI bus."""


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
        boards = {}
        for chip in chips:
            try:
                boards[chip] = await _board(machine.tools, chip)
            except DiscoveryError as error:
                problems.append(_left_out(chip, error))
        has_addresses = any(board.bus_id for board in boards.values())
        devices = []
        for chip, board in boards.items():
            if has_addresses and not board.bus_id:
                problems.append(_left_out(chip, "it has no PCIe Bus Info, but others have"))
                continue
            try:
                devices.append(await _device(machine, chip, board, problems))
            except DiscoveryError as error:
                problems.append(_left_out(chip, error))
        return Found(devices, problems, {chip.uuid: f"NPU {chip.card}" for chip in chips if not chip.alone})


def _left_out(chip: _Chip, why: object) -> Problem:
    return Problem(f"{chip} is left out: {why}", (chip.minor,))


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


async def _board(tools: Tools, chip: _Chip) -> _Board:
    output = await tools.run(_TOOL, "info", "-t", "board", "-i", chip.card)
    own = ""
    if not chip.alone:
        with suppress(ToolError):
            own = await tools.run(_TOOL, "info", "-t", "board", *chip.options)
    bus_ids = values_of(f"{output}\n{own}", "pcie bus info")
    if not bus_ids:
        raise DiscoveryError(f"npu-smi info -t board says no PCIe Bus Info, but {first_line(output)}")
    bus_id = next((bus_id for bus_id in reversed(bus_ids) if not is_absent(bus_id)), "")
    return _Board(output, bus_id)


async def _device(machine: Machine, chip: _Chip, board: _Board, problems: list[Problem]) -> XPUDeviceInfo:
    """Raises DiscoveryError. ``problems`` get what is wrong with a device that is listed all the same."""
    tools = machine.tools
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
        topology=placed(machine, board.bus_id),
        status=_status(chip.card, board),
    )


def _status(card: str, board: _Board) -> XPUStatus:
    faults = sum_of(read_fields(board.output), *_FAULTS)
    if not faults:
        return XPUStatus(healthy=True)
    return XPUStatus(False, "ChipError", f"NPU index {card} has {faults} chip faults")


async def _memory(tools: Tools, chip: _Chip) -> int:
    """MiB of a chip: its own where the tool reports it, else what the original assumes for all."""
    try:
        own = sum_of(read_fields(await tools.run(_TOOL, "info", "-t", "memory", *chip.options)), *_CAPACITIES)
    except ToolError:
        own = 0
    if own:
        return own
    try:
        output = await tools.run(_TOOL, "-t", "memory", "-i", "1")
        shared = sum_of(read_fields(output), *_CAPACITIES)
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
            cores = sum_of(_fields_of(chip, output), "aicore count")
            if cores:
                return cores
    raise DiscoveryError(f"npu-smi info -t common says no Aicore Count of {chip}, but {first_line(output)}")


def _fields_of(chip: _Chip, output: str) -> list[Field]:
    """Those below the field with the number of the chip, up to the next one. All, where there is no such field."""
    fields = list(read_fields(output))
    if chip.alone or all(field.name != _CHIP for field in fields):
        return fields
    found, is_own = [], False
    for field in fields:
        if field.name == _CHIP:
            is_own = field.value == chip.number
        elif is_own:
            found.append(field)
    return found


async def _ai_cpus(tools: Tools, chip: _Chip) -> int:
    """Of all lines that name AI CPUs: what it calls them differs."""
    output = await tools.run(_TOOL, "info", "-t", "cpu-num-cfg", *chip.options)
    lines = [line for line in output.splitlines() if re.search(r"\bAI", line) and ":" in line]
    return sum(number(line.rpartition(":")[2].strip(), "AI CPUs") for line in lines)
