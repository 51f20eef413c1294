"""What tells devices apart: two with one minor number, one UUID or one PCI address are an error of the listing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final

from koordinator.api.xpu_device_info import XPUDeviceInfo
from koordinator.device_daemon.machine import Found, Problem

_Key = Callable[[XPUDeviceInfo], str]
_KEYS: Final[Mapping[str, _Key]] = {
    "minor number": lambda device: device.minor,
    "UUID": lambda device: device.uuid,
    "PCI address": lambda device: device.topology.bus_id if device.topology is not None else "",
}


def only_distinct(found: Found) -> Found:
    """Without the devices that cannot be told apart: which of them a pod would get, nobody knows. Each pair is named. A
    device that is listed twice, the same each time, stays once."""
    devices: list[XPUDeviceInfo] = []
    problems = list(found.problems)
    for device in found.devices:
        if device in devices:
            problems.append(Problem(f"{_shown(device)} and {_shown(device)} are one device, which is listed twice"))
        else:
            devices.append(device)
    mistaken: list[XPUDeviceInfo] = []
    for what, key in _KEYS.items():
        for value, group in _groups(devices, key).items():
            for one, other in combinations(group, 2):
                if what == "PCI address" and _on_one_board(one, other, found.boards):
                    continue
                text = f"{_shown(one)} and {_shown(other)} have one {what}, {value}: both are left out"
                problems.append(Problem(text, (one.minor, other.minor)))
                mistaken += (one, other)
    return Found([device for device in devices if device not in mistaken], problems, found.boards)


def same(one: XPUDeviceInfo, other: XPUDeviceInfo) -> bool:
    """Whether they have the number or the UUID in common: they cannot both be there."""
    return one.minor == other.minor or one.uuid == other.uuid


def _groups(devices: Sequence[XPUDeviceInfo], key: _Key) -> Mapping[str, Sequence[XPUDeviceInfo]]:
    groups: defaultdict[str, list[XPUDeviceInfo]] = defaultdict(list)
    for device in devices:
        if key(device):
            groups[key(device)].append(device)
    return groups


def _on_one_board(one: XPUDeviceInfo, other: XPUDeviceInfo, boards: Mapping[str, str]) -> bool:
    return one.uuid in boards and boards[one.uuid] == boards.get(other.uuid)


def _shown(device: XPUDeviceInfo) -> str:
    address = device.topology.bus_id if device.topology is not None else ""
    return f"{device.uuid} (minor number {device.minor}, {address or 'no PCI address'})"
