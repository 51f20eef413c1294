"""The few files of many cgroups that are read every second, at the least cost.

To open and close a file of a cgroup costs more than to read it, so that files stay open between readings, up to a limit
of descriptors; beyond it they are opened each time. A cgroup that was removed and made anew (a static pod that was
restarted) is noticed by the kernel's error and opened again.

A file is read by one regular expression where it looks as kernels print it today. What looks otherwise is left to the
parsers of ``cgroup_reader``, which know more forms of it and name what is wrong.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import (
    parse_cpu_max,
    parse_cpu_stat,
    parse_cpuset,
    parse_integer,
    parse_memory_stat,
    parse_numa_memory,
    parse_usage,
)
from koordinator.node.errors import MalformedFileError, Skipped, file_error
from koordinator.node.host import MAX_FILE_BYTES, parse_count

_BUFFER_BYTES: Final = 16384
"""``memory.stat`` of a recent kernel has 2 KiB; ``memory.numa_stat`` has half a KiB for each NUMA node."""

_REMEMBERED_CPUSETS: Final = 256
_PERIODS: Final = rb"nr_periods (\d{1,20})\nnr_throttled (\d{1,20})\n"
_CPU_STAT_V1: Final = re.compile(_PERIODS)
_CPU_STAT_V2: Final = re.compile(rb"usage_usec (\d{1,20})\n(?:[^\n]*\n)*?" + _PERIODS)
_MEMORY_KINDS: Final = (b"inactive_anon", b"active_anon", b"inactive_file", b"active_file", b"unevictable")
_MEMORY_STATS: Final = {
    version: re.compile(b"\n" + b"".join(rb"%s%s (\d{1,20})\n" % (prefix, kind) for kind in _MEMORY_KINDS))
    for version, prefix in ((CgroupVersion.V1, b"total_"), (CgroupVersion.V2, b""))
}


class CPUCounters(NamedTuple):
    """Nanoseconds of CPU since the cgroup was made, periods of its CPU quota, and those in which it was used up."""

    nanoseconds: int
    periods: int
    throttled_periods: int


class MemoryUsage(NamedTuple):
    """Bytes without and with page cache."""

    usage: int
    usage_with_page_cache: int


class CgroupMeter:
    """Reads cgroups by their relative folders. ``close`` it, or descriptors stay open."""

    def __init__(self, layout: CgroupLayout, page_size: int, descriptor_limit: int) -> None:
        self._layout = layout
        self._version = layout.version
        self._page_size = page_size
        self._limit = descriptor_limit
        self._open: dict[str, dict[str, tuple[str, int]]] = {}
        """The path and the descriptor of each file, by folder and name."""
        self._open_count = 0
        self._cpu_counts: dict[bytes, int] = {}
        self.files_read = 0
        """Since the start; for the agent's metrics about itself."""

    @property
    def open_files(self) -> int:
        return self._open_count

    def cpu(self, relative: str) -> CPUCounters:
        """FileError if one of the files cannot be read, MissingFileError if the cgroup is gone."""
        path, stat = self._content("cpu", relative, "cpu.stat")
        if self._version is CgroupVersion.V2:
            found = _CPU_STAT_V2.match(stat)
            if found is not None:
                micros, periods, throttled = found.groups()
                return CPUCounters(int(micros) * 1000, int(periods), int(throttled))
            nanoseconds = parse_usage(path, stat)
        else:
            usage_path, usage = self._content("cpuacct", relative, "cpuacct.usage")
            count = parse_count(usage.rstrip())
            if count is None:
                raise MalformedFileError(usage_path, f"{usage[:40]!r} is not a count")
            nanoseconds = count
            found = _CPU_STAT_V1.match(stat)
            if found is not None:
                periods, throttled = found.groups()
                return CPUCounters(nanoseconds, int(periods), int(throttled))
        counted = parse_cpu_stat(path, stat, self._version)
        return CPUCounters(nanoseconds, counted.periods, counted.throttled_periods)

    def memory(self, relative: str) -> MemoryUsage:
        """Of the cgroup and everything below it; errors as of ``cpu``."""
        path, content = self._content("memory", relative, "memory.stat")
        found = _MEMORY_STATS[self._version].search(content)
        if found is not None:
            inactive_anon, active_anon, inactive_file, active_file, unevictable = found.groups()
            usage = int(inactive_anon) + int(active_anon) + int(unevictable)
            return MemoryUsage(usage, usage + int(inactive_file) + int(active_file))
        stat = parse_memory_stat(path, content, self._version)
        return MemoryUsage(stat.usage, stat.usage_with_page_cache)

    def memory_usage(self, relative: str) -> int:
        """Bytes, the page cache and the kernel's own included."""
        return parse_integer(
            *self._content(
                "memory", relative, "memory.usage_in_bytes" if self._version is CgroupVersion.V1 else "memory.current"
            )
        )

    def cpu_bandwidth(self, relative: str) -> tuple[int, int]:
        """The quota and its period in microseconds; the quota is NO_LIMIT if there is none."""
        if self._version is CgroupVersion.V2:
            return parse_cpu_max(*self._content("cpu", relative, "cpu.max"))
        quota = parse_integer(*self._content("cpu", relative, "cpu.cfs_quota_us"))
        return quota, parse_integer(*self._content("cpu", relative, "cpu.cfs_period_us"))

    def cpu_count(self, relative: str) -> int:
        """How many CPUs the cgroup may use; 0 where its cpuset is empty, as a new one of version 1 is."""
        name = "cpuset.cpus" if self._version is CgroupVersion.V1 else "cpuset.cpus.effective"
        path, content = self._content("cpuset", relative, name)
        # Nearly all cpusets of a machine are one of a few, and a list of ranges takes long to read.
        count = self._cpu_counts.get(content)
        if count is None:
            count = len(parse_cpuset(path, content))
            if len(self._cpu_counts) >= _REMEMBERED_CPUSETS:
                self._cpu_counts.clear()
            self._cpu_counts[content] = count
        return count

    def numa_memory(self, relative: str, skipped: Skipped) -> dict[int, int]:
        """Bytes by NUMA node, without page cache."""
        path, content = self._content("memory", relative, "memory.numa_stat")
        return parse_numa_memory(path, content, self._version, self._page_size, skipped)

    def keep_only(self, relatives: Collection[str]) -> None:
        """Close the files of all other cgroups."""
        for relative in [relative for relative in self._open if relative not in relatives]:
            for _, descriptor in self._open.pop(relative).values():
                os.close(descriptor)
                self._open_count -= 1

    def close(self) -> None:
        self.keep_only(())

    def _content(self, controller: str, relative: str, name: str) -> tuple[str, bytes]:
        self.files_read += 1
        try:
            path, descriptor = self._open[relative][name]
        except KeyError:
            path = f"{self._layout.folder(controller, relative)}/{name}"
            return path, self._open_and_read(path, relative, name)
        try:
            return path, _read_whole(descriptor, path)
        except OSError as error:
            self._forget(relative, name)
            if error.errno != errno.ENODEV:
                raise file_error(path, error) from error
        return path, self._open_and_read(path, relative, name)

    def _open_and_read(self, path: str, relative: str, name: str) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise file_error(path, error) from error
        try:
            content = _read_whole(descriptor, path)
        except OSError as error:
            os.close(descriptor)
            raise file_error(path, error) from error
        if self._open_count < self._limit:
            self._open.setdefault(relative, {})[name] = path, descriptor
            self._open_count += 1
        else:
            os.close(descriptor)
        return content

    def _forget(self, relative: str, name: str) -> None:
        _, descriptor = self._open[relative].pop(name)
        os.close(descriptor)
        self._open_count -= 1


def _read_whole(descriptor: int, path: str) -> bytes:
    """From the start on; nearly always one system call. OSError if the kernel refuses."""
    content = piece = os.pread(descriptor, _BUFFER_BYTES, 0)
    while len(piece) == _BUFFER_BYTES:
        piece = os.pread(descriptor, _BUFFER_BYTES, len(content))
        content += piece
        if len(content) > MAX_FILE_BYTES:
            raise MalformedFileError(path, f"has more than {MAX_FILE_BYTES} bytes")
    return content
