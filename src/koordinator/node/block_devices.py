"""Disks, their partitions, the logical volumes on them, and what is mounted where.

All of it stands in sysfs and in the mount table of process 1, so that neither lsblk nor the tools of LVM need to be
installed or run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.node.errors import FileError, MissingFileError, OddRowError, Skipped
from koordinator.node.host import Host, exists, list_folder, read_file, read_text

_LVM: Final = "LVM-"
"""What the UUID of a device-mapper device begins with that is a logical volume."""
_DEPTH: Final = 8
"""How many devices may lie upon each other."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_NUMBER: Final = re.compile(r"[0-9]+:[0-9]+")
_SINGLE_DASH: Final = re.compile(r"(?<!-)-(?!-)")


@dataclass(frozen=True, slots=True)
class BlockDevices:
    """Devices by the path that mounts name; a number is ``MAJOR:MINOR``."""

    disks: Mapping[str, str] = field(default_factory=dict)
    """The number of each disk."""
    partitions: Mapping[str, str] = field(default_factory=dict)
    """The disk of each partition."""
    volume_groups: Mapping[str, str] = field(default_factory=dict)
    """The disk of each volume group of LVM whose volumes all lie on one disk."""
    logical_volumes: Mapping[str, str] = field(default_factory=dict)
    """The volume group of each ``/dev/mapper/…``."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """The device of each mount point that has one."""

    def disk_number(self, device: str) -> str | None:
        """The number of the disk that a device lies on; None if that is not known, or is more than one."""
        disk = self.partitions.get(device, device)
        group = self.logical_volumes.get(device)
        return self.disks.get(disk if group is None else self.volume_groups.get(group, ""))


def read_block_devices(host: Host, skipped: Skipped) -> BlockDevices:
    """FileError if sysfs or the mount table cannot be read; a device that is vanishing is left out."""
    parent = f"{host.sys}/class/block"
    disks, partitions, volumes = {}, {}, {}
    for name in list_folder(parent):
        folder = f"{parent}/{name}"
        try:
            if exists(f"{folder}/partition"):
                partitions[f"/dev/{name}"] = f"/dev/{_disk_of_partition(folder)}"
            elif exists(f"{folder}/dm/uuid"):
                if read_text(f"{folder}/dm/uuid").startswith(_LVM):
                    volumes[read_text(f"{folder}/dm/name")] = folder
            # What is made by the kernel alone (loop, ram, md) has no device behind it.
            elif exists(f"{folder}/device"):
                number = read_text(f"{folder}/dev")
                if _NUMBER.fullmatch(number):
                    disks[f"/dev/{name}"] = number
                else:
                    skipped(OddRowError(f"{folder}/dev", f"{number[:40]!r} is not the number of a device"))
        except MissingFileError:
            continue
        except FileError as error:
            skipped(OddRowError(error.path, error.problem))
    groups = {f"/dev/mapper/{name}": _volume_group(name) for name in volumes}
    return BlockDevices(disks, partitions, _group_disks(volumes, disks, partitions), groups, _mounts(host, skipped))


def _disk_of_partition(folder: str) -> str:
    return os.path.basename(os.path.dirname(os.path.realpath(folder)))


def _volume_group(name: str) -> str:
    """Device mapper names a volume GROUP-VOLUME, with every dash within the two doubled."""
    return _SINGLE_DASH.split(name, maxsplit=1)[0].replace("--", "-")


def _group_disks(volumes: Mapping[str, str], disks: Mapping[str, str], partitions: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for name, folder in volumes.items():
        found.setdefault(_volume_group(name), set()).update(_disks_below(folder, disks, partitions, _DEPTH))
    return {group: next(iter(below)) for group, below in found.items() if len(below) == 1}


def _disks_below(folder: str, disks: Mapping[str, str], partitions: Mapping[str, str], depth: int) -> set[str]:
    try:
        slaves = list_folder(f"{folder}/slaves") if depth else []
    except FileError:
        return set()
    below: set[str] = set()
    for slave in slaves:
        device = partitions.get(f"/dev/{slave}", f"/dev/{slave}")
        if device in disks:
            below.add(device)
        else:
            below |= _disks_below(f"{os.path.dirname(folder)}/{slave}", disks, partitions, depth - 1)
    return below


def _mounts(host: Host, skipped: Skipped) -> dict[str, str]:
    """What process 1 sees: an agent in a container has mounts of its own."""
    path = f"{host.proc}/1/mountinfo"
    mounts = {}
    for line in read_file(path).decode(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields, filesystem = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(filesystem) < 2:
            skipped(OddRowError(path, f"{line[:80]!r} is no mount"))
        elif filesystem[1].startswith("/dev/"):
            mounts[_unescaped(fields[4])] = _unescaped(filesystem[1])
    return mounts


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
