"""What the kernel says of one cgroup, in the same terms for versions 1 and 2.

Usage is in nanoseconds, memory in bytes, quotas and periods in microseconds; a limit that is not set is ``NO_LIMIT``.
A reading of a cgroup that is gone is a ``MissingFileError``, which is how containers end, so that callers expect it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.errors import FileError, MalformedFileError, OddRowError, Skipped
from koordinator.node.host import list_subfolders, parse_count, read_file
from koordinator.node.pressure import Pressure, cgroup_pressure_path, parse_pressure

NO_LIMIT: Final = -1
_NO_FOLDERS: Final = 2
"""The links of a folder without folders in it."""

_V1_NO_MEMORY_LIMIT: Final = 0x7FFFFFFFFFFFF000
"""What version 1 shows for no limit: the highest multiple of a page that is not negative."""

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262144
MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 10000


@dataclass(frozen=True, slots=True)
class CPUStat:
    """Periods of the CPU quota since the cgroup was made, those in which it was used up, and for how long (ns).

    All 0 where the kernel counts none: the cgroup has no CPU controller, and so no quota."""

    periods: int
    throttled_periods: int
    throttled_time: int


@dataclass(frozen=True, slots=True)
class MemoryStat:
    """Bytes by kind, of the cgroup and everything below it."""

    inactive_file: int
    active_file: int
    inactive_anon: int
    active_anon: int
    unevictable: int

    @property
    def usage(self) -> int:
        """What cannot be had back without swapping or killing: without the page cache."""
        return self.inactive_anon + self.active_anon + self.unevictable

    @property
    def usage_with_page_cache(self) -> int:
        return self.usage + self.active_file + self.inactive_file


_MEMORY_STAT_KEYS: Final = {
    CgroupVersion.V1: (
        b"total_inactive_file",
        b"total_active_file",
        b"total_inactive_anon",
        b"total_active_anon",
        b"total_unevictable",
    ),
    CgroupVersion.V2: (
        b"inactive_file",
        b"active_file",
        b"inactive_anon",
        b"active_anon",
        b"unevictable",
    ),
}


class CgroupReader:
    """Reads the files of cgroups by their relative folders (see ``CgroupLayout``)."""

    def __init__(self, layout: CgroupLayout, page_size: int) -> None:
        """``page_size`` in bytes: version 1 counts the memory of NUMA nodes in pages."""
        self._layout = layout
        self._v1 = layout.version is CgroupVersion.V1
        self._page_size = page_size

    def cpu_usage(self, relative: str) -> int:
        """Nanoseconds of CPU since the cgroup was made."""
        if self._v1:
            return self._integer("cpuacct", relative, "cpuacct.usage")
        path, content = self._content("cpu", relative, "cpu.stat")
        return parse_usage(path, content)

    def cpu_stat(self, relative: str) -> CPUStat:
        path, content = self._content("cpu", relative, "cpu.stat")
        return parse_cpu_stat(path, content, self._layout.version)

    def cpu_quota(self, relative: str) -> int:
        """Microseconds of CPU in each period; NO_LIMIT if there is no quota."""
        return self._integer("cpu", relative, "cpu.cfs_quota_us") if self._v1 else self._cpu_max(relative)[0]

    def cpu_period(self, relative: str) -> int:
        return self._integer("cpu", relative, "cpu.cfs_period_us") if self._v1 else self._cpu_max(relative)[1]

    def cpu_shares(self, relative: str) -> int:
        """In version 1's terms, 2 to 262144."""
        if self._v1:
            return self._integer("cpu", relative, "cpu.shares")
        path, content = self._content("cpu", relative, "cpu.weight")
        weight = parse_integer(path, content)
        if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise MalformedFileError(path, f"{weight} is out of [{MIN_WEIGHT}, {MAX_WEIGHT}]")
        return shares_of_weight(weight)

    def cpuset(self, relative: str) -> frozenset[int]:
        """The CPUs that the cgroup may use."""
        path, content = self._content("cpuset", relative, "cpuset.cpus" if self._v1 else "cpuset.cpus.effective")
        return parse_cpuset(path, content)

    def memory_usage(self, relative: str) -> int:
        """Bytes, the page cache and the kernel's own included."""
        return self._integer("memory", relative, "memory.usage_in_bytes" if self._v1 else "memory.current")

    def memory_limit(self, relative: str) -> int:
        """Bytes; NO_LIMIT if there is none."""
        limit = self._integer("memory", relative, "memory.limit_in_bytes" if self._v1 else "memory.max")
        return NO_LIMIT if limit >= _V1_NO_MEMORY_LIMIT else limit

    def memory_stat(self, relative: str) -> MemoryStat:
        path, content = self._content("memory", relative, "memory.stat")
        return parse_memory_stat(path, content, self._layout.version)

    def numa_memory(self, relative: str, skipped: Skipped) -> dict[int, int]:
        """Bytes on each NUMA node, by its number; without page cache."""
        path, content = self._content("memory", relative, "memory.numa_stat")
        return parse_numa_memory(path, content, self._layout.version, self._page_size, skipped)

    def tasks(self, relative: str) -> list[int]:
        """The IDs of the threads in the cgroup and in those below it."""
        return self._inside(relative, "tasks" if self._v1 else "cgroup.threads")

    def processes(self, relative: str) -> list[int]:
        """The IDs of the processes in the cgroup and in those below it: what runs in a container may have made some."""
        return self._inside(relative, "cgroup.procs")

    def folders_below(self, relative: str, controller: str) -> list[str]:
        """The relative folders of all cgroups below one, parents before their children; none where it is gone."""
        found: list[str] = []
        waiting = [relative]
        while waiting:
            parent = waiting.pop()
            below = [f"{parent}/{name}" for name in _subfolders(self._layout.folder(controller, parent))]
            found += below
            waiting += below
        return found

    def _inside(self, relative: str, name: str) -> list[int]:
        numbers = self._integers("cpu", relative, name)
        for folder in self.folders_below(relative, "cpu"):
            # They end all the time, and one that is threaded has no processes of its own.
            with suppress(FileError):
                numbers += self._integers("cpu", folder, name)
        return numbers

    def pressure(self, relative: str, resource: str, skipped: Skipped) -> Pressure:
        """Pressure stall information; ``resource`` is cpu, memory or io."""
        path = cgroup_pressure_path(self._layout, relative, resource)
        return parse_pressure(path, read_file(path), skipped)

    def io_bytes(self, relative: str, skipped: Skipped) -> int:
        """Bytes that the cgroup has read from and written to block devices since it was made; in version 1 without
        those of the cgroups below."""
        if self._v1:
            path, content = self._content("blkio", relative, "blkio.throttle.io_service_bytes")
            return parse_keys(path, content, (b"Total",))[0]
        path, content = self._content("io", relative, "io.stat")
        return parse_io_bytes(path, content, skipped)

    def net_class(self, relative: str) -> int:
        """The class of the network packets that the cgroup sends (version 1)."""
        return self._integer("net_cls", relative, "net_cls.classid")

    def _cpu_max(self, relative: str) -> tuple[int, int]:
        path, content = self._content("cpu", relative, "cpu.max")
        return parse_cpu_max(path, content)

    def _integer(self, controller: str, relative: str, name: str) -> int:
        path, content = self._content(controller, relative, name)
        return parse_integer(path, content)

    def _integers(self, controller: str, relative: str, name: str) -> list[int]:
        path, content = self._content(controller, relative, name)
        # A task of another PID namespace than ours is shown as 0.
        return [number for line in content.split() if (number := parse_integer(path, line)) != 0]

    def _content(self, controller: str, relative: str, name: str) -> tuple[str, bytes]:
        path = f"{self._layout.folder(controller, relative)}/{name}"
        return path, read_file(path)


def shares_of_weight(weight: int) -> int:
    """Version 1's ``cpu.shares`` for version 2's ``cpu.weight``: the linear map of Kubernetes (KEP-2254)."""
    return min(
        max((weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - MIN_WEIGHT) + MIN_SHARES, MIN_SHARES),
        MAX_SHARES,
    )


def weight_of_shares(shares: int) -> int:
    """Version 2's ``cpu.weight`` for version 1's ``cpu.shares``."""
    return min(
        max(MIN_WEIGHT + (shares - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT) // (MAX_SHARES - MIN_SHARES), MIN_WEIGHT),
        MAX_WEIGHT,
    )


def parse_usage(path: str, content: bytes) -> int:
    """Nanoseconds of CPU in version 2's ``cpu.stat``."""
    (microseconds,) = parse_keys(path, content, (b"usage_usec",))
    return microseconds * 1000


def parse_cpu_stat(path: str, content: bytes, version: CgroupVersion) -> CPUStat:
    """The content of ``cpu.stat``."""
    if version is CgroupVersion.V2 and b"nr_periods" not in content:
        parse_usage(path, content)
        return CPUStat(0, 0, 0)
    if version is CgroupVersion.V1:
        return CPUStat(*parse_keys(path, content, (b"nr_periods", b"nr_throttled", b"throttled_time")))
    periods, throttled, time = parse_keys(path, content, (b"nr_periods", b"nr_throttled", b"throttled_usec"))
    return CPUStat(periods, throttled, time * 1000)


def parse_memory_stat(path: str, content: bytes, version: CgroupVersion) -> MemoryStat:
    """The content of ``memory.stat``."""
    return MemoryStat(*parse_keys(path, content, _MEMORY_STAT_KEYS[version]))


def parse_numa_memory(
    path: str, content: bytes, version: CgroupVersion, page_size: int, skipped: Skipped
) -> dict[int, int]:
    """Bytes without page cache by NUMA node in the content of ``memory.numa_stat``; version 1 counts in pages.

    The numbers of NUMA nodes have gaps on many machines.
    """
    content = b"\n" + content
    # The lines of version 1 without this prefix leave out the cgroups below, and a pod's processes are all in those.
    is_v1 = version is CgroupVersion.V1
    kinds = (b"hierarchical_anon=", b"hierarchical_unevictable=") if is_v1 else (b"anon ", b"unevictable ")
    total: dict[int, int] = {}
    for kind in kinds:
        for number, value in _numa_values(path, content, kind, skipped).items():
            total[number] = total.get(number, 0) + value * (page_size if is_v1 else 1)
    return total


def parse_io_bytes(path: str, content: bytes, skipped: Skipped) -> int:
    """Bytes read and written on all devices in version 2's ``io.stat``: lines ``8:0 rbytes=1 wbytes=2 rios=3 …``.

    MalformedFileError if there are lines, and each of them is odd.
    """
    lines = content.splitlines()
    amounts = [_device_bytes(line) for line in lines]
    for line, amount in zip(lines, amounts, strict=True):
        if amount is None:
            skipped(OddRowError(path, f"{line[:40]!r} is no device with what was read and written"))
    if lines and amounts.count(None) == len(amounts):
        raise MalformedFileError(path, f"{lines[0][:40]!r} does not begin with the number of a device")
    return sum(amount for amount in amounts if amount is not None)


def _device_bytes(line: bytes) -> int | None:
    """None for a line that is odd. A device that nothing has used has its number alone."""
    device, *fields = line.split() or [b""]
    if not device.replace(b":", b"", 1).isdigit():
        return None
    named = (field.partition(b"=") for field in fields)
    amounts = [parse_count(value) for name, _, value in named if name in (b"rbytes", b"wbytes")]
    return None if None in amounts else sum(amount or 0 for amount in amounts)


def parse_keys(path: str, content: bytes, keys: tuple[bytes, ...]) -> tuple[int, ...]:
    """The values of ``keys`` in a file of lines ``key value``; MalformedFileError if one is absent.

    A file such as ``memory.stat`` has forty lines of which seven are read, a hundred times a second: looking for the
    seven costs a third of splitting it all.
    """
    content = b"\n" + content
    values = []
    for key in keys:
        start = content.find(b"\n" + key + b" ")
        if start < 0:
            raise MalformedFileError(path, f"has no {key.decode()}")
        start += len(key) + 2
        end = content.find(b"\n", start)
        value = parse_count(content[start : end if end >= 0 else None].strip())
        if value is None:
            raise MalformedFileError(path, f"{key.decode()} is not a count")
        values.append(value)
    return tuple(values)


def parse_cpuset(path: str, content: bytes) -> frozenset[int]:
    """The content of ``cpuset.cpus`` or ``cpuset.cpus.effective``."""
    try:
        return parse_cpu_list(content.decode("ascii", errors="replace").strip())
    except ValueError as error:
        raise MalformedFileError(path, str(error)) from None


def parse_cpu_max(path: str, content: bytes) -> tuple[int, int]:
    """Quota and period in microseconds in version 2's ``cpu.max``; the quota is NO_LIMIT if there is none."""
    fields = content.split()
    if len(fields) != 2:
        raise MalformedFileError(path, f"{content[:40]!r} has not two fields")
    return parse_integer(path, fields[0]), parse_integer(path, fields[1])


def parse_integer(path: str, content: bytes) -> int:
    """A decimal integer with white space around it; NO_LIMIT for ``max``."""
    content = content.strip()
    if content == b"max":
        return NO_LIMIT
    try:
        return int(content)
    except ValueError:
        raise MalformedFileError(path, f"{content[:40]!r} is not an integer") from None


def _numa_values(path: str, content: bytes, kind: bytes, skipped: Skipped) -> dict[int, int]:
    """The values of a line ``kind N0=1 N8=2`` by NUMA node; MalformedFileError if it has none, or there is no such
    line."""
    start = content.find(b"\n" + kind)
    if start < 0:
        raise MalformedFileError(path, f"has no line {kind.decode().rstrip(' =')}")
    end = content.find(b"\n", start + 1)
    fields = content[start + 1 : end if end >= 0 else None].split()
    values = {}
    for field in fields[1:]:
        name, _, amount = field.partition(b"=")
        number, value = parse_count(name[1:]), parse_count(amount)
        if name[:1] == b"N" and number is not None and value is not None:
            values[number] = value
        else:
            skipped(OddRowError(path, f"{field[:40]!r} is no NUMA node with an amount"))
    if not values:
        raise MalformedFileError(path, f"{kind.decode().rstrip(' =')} names no NUMA node")
    return values


def _subfolders(folder: str) -> list[str]:
    """None where it is gone."""
    try:
        # The kernel counts a link for each folder in it, so that most need not be listed.
        return [] if os.stat(folder).st_nlink == _NO_FOLDERS else list_subfolders(folder)
    except (OSError, FileError):
        return []
