"""Resource control (Intel RDT, AMD QoS): how much level 3 cache and memory bandwidth groups of tasks use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.node.cpu_topology import cpu_flags, read_basic_info
from koordinator.node.errors import FileError, MalformedFileError, Unavailable
from koordinator.node.host import Host, exists, list_folder, list_subfolders, parse_count, read_text

ALLOCATION_FLAGS: Final = ("cat_l3", "mba")
MONITORING_FLAGS: Final = ("cqm_mbm_total", "cqm_mbm_local", "cqm_llc", "cqm_occup_llc")

_CACHE_FOLDER: Final = re.compile(r"mon_L3_([0-9]+)")


@dataclass(frozen=True, slots=True)
class CacheMonitor:
    """One group's use of one level 3 cache; None where the hardware has no value at the moment.

    ``occupancy`` is in bytes; the bandwidths are bytes since the group was made.
    """

    cache_id: int
    occupancy: int | None
    local_bandwidth: int | None
    total_bandwidth: int | None


@dataclass(frozen=True, slots=True)
class Schemata:
    """What a group may use: a mask of ways and a percentage of bandwidth by the cache's number."""

    l3_masks: dict[int, int]
    bandwidth_percents: dict[int, int]


@dataclass(frozen=True, slots=True)
class CacheAllocation:
    """What can be shared out: the mask of all ways, the caches by number, and the vendor of the CPUs.

    ``groups`` are those there are by name, with the time at which each was made in seconds since 1970.
    """

    ways_mask: int
    caches: tuple[int, ...]
    vendor: str
    groups: Mapping[str, float] = field(default_factory=dict)


def read_allocation(host: Host) -> CacheAllocation | None:
    """None if nothing can be shared out here."""
    # Most machines have none, and to look at the flags of a hundred CPUs every second costs more than to look here.
    root = f"{host.sys_fs}/resctrl"
    if not exists(f"{root}/schemata") or isinstance(probe_allocation(host), Unavailable):
        return None
    try:
        mask = int(read_text(f"{root}/info/L3/cbm_mask"), 16)
        caches = tuple(read_schemata(host).l3_masks)
        groups = {name: made for name in list_subfolders(root) if (made := _made_at(f"{root}/{name}")) is not None}
    except (FileError, ValueError):
        return None
    return CacheAllocation(mask, caches, read_basic_info(host, None).vendor, groups)


def probe_allocation(host: Host) -> Unavailable | None:
    """None if cache and bandwidth can be shared out here."""
    if missing := [flag for flag in ALLOCATION_FLAGS if flag not in cpu_flags(host)]:
        return Unavailable(
            f"the CPU has no {' and no '.join(missing)}",
            "a CPU with cache and memory bandwidth allocation (Intel RDT, AMD QoS), outside a virtual machine",
        )
    return _probe_mount(host)


def probe_monitoring(host: Host) -> Unavailable | None:
    """None if the use of cache and bandwidth can be read here."""
    if missing := [flag for flag in MONITORING_FLAGS if flag not in cpu_flags(host)]:
        return Unavailable(
            f"the CPU has no {', no '.join(missing)}",
            "a CPU with cache and memory bandwidth monitoring (Intel RDT, AMD QoS), outside a virtual machine",
        )
    return _probe_mount(host)


def read_monitors(host: Host, group: str) -> tuple[CacheMonitor, ...]:
    """Of a group by the cache's number; ``group`` is a folder's name, empty for the tasks in no group."""
    parent = "/".join(part for part in (f"{host.sys_fs}/resctrl", group, "mon_data") if part)
    monitors = []
    for name in list_folder(parent):
        if match := _CACHE_FOLDER.fullmatch(name):
            folder = f"{parent}/{name}"
            monitors.append(
                CacheMonitor(
                    cache_id=int(match[1]),
                    occupancy=_counter(f"{folder}/llc_occupancy"),
                    local_bandwidth=_counter(f"{folder}/mbm_local_bytes"),
                    total_bandwidth=_counter(f"{folder}/mbm_total_bytes"),
                )
            )
    return tuple(sorted(monitors, key=lambda monitor: monitor.cache_id))


def read_schemata(host: Host, group: str = "") -> Schemata:
    """MalformedFileError if the lines L3 and MB are not there for the same caches, or a value is not positive."""
    path = "/".join(part for part in (f"{host.sys_fs}/resctrl", group, "schemata") if part)
    lines: dict[str, dict[int, int]] = {}
    for line in read_text(path).splitlines():
        name, _, values = line.strip().partition(":")
        if name in ("L3", "MB"):
            lines[name] = _by_cache(path, line, values, base=16 if name == "L3" else 10)
    masks, percents = lines.get("L3", {}), lines.get("MB", {})
    if not masks or masks.keys() != percents.keys():
        raise MalformedFileError(path, "has no lines L3 and MB with values for the same caches")
    return Schemata(masks, percents)


def _probe_mount(host: Host) -> Unavailable | None:
    if exists(f"{host.sys_fs}/resctrl/schemata"):
        return None
    return Unavailable(
        f"{host.sys_fs}/resctrl has no schemata", "the file system: mount -t resctrl resctrl /sys/fs/resctrl"
    )


def _made_at(folder: str) -> float | None:
    try:
        return os.stat(folder).st_ctime
    except OSError:
        # Others make and remove groups, too.
        return None


def _counter(path: str) -> int | None:
    try:
        text = read_text(path)
    except FileError:
        # A kernel without this counter has no file; one whose hardware has no value at the moment may return EIO.
        return None
    # "Unavailable" and "Error" are what the hardware says of a counter that it cannot give at the moment.
    return parse_count(text.encode())


def _by_cache(path: str, line: str, values: str, base: int) -> dict[int, int]:
    result = {}
    for part in values.split(";"):
        cache, _, value = part.strip().partition("=")
        try:
            number, amount = int(cache), int(value, base)
        except ValueError:
            raise MalformedFileError(path, f"{line.strip()[:80]!r} is not cache=value;…") from None
        if amount <= 0:
            raise MalformedFileError(path, f"{line.strip()[:80]!r} gives cache {number} nothing")
        result[number] = amount
    return result
