"""The few files of many cgroups that are read every second, at the least cost.

To open and close a file of a cgroup costs more than to read it, so that files stay open between readings, up to a limit
of descriptors; beyond it they are opened each time. A cgroup that was removed and made anew (a static pod that was
restarted) is noticed by the kernel's error and opened again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import (
    CPUStat,
    MemoryStat,
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


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """Readings of one moment: ``cpu`` in nanoseconds since the cgroup was made."""

    cpu: int
    throttling: CPUStat
    memory: MemoryStat


class CgroupMeter:
    """Reads cgroups by their relative folders. ``close`` it, or descriptors stay open."""

    def __init__(self, layout: CgroupLayout, page_size: int, descriptor_limit: int) -> None:
        self._layout = layout
        self._version = layout.version
        self._page_size = page_size
        self._limit = descriptor_limit
        self._open: dict[str, dict[str, int]] = {}
        self._open_count = 0
        self._cpu_counts: dict[bytes, int] = {}
        self.files_read = 0
        """Since the start; for the agent's metrics about itself."""

    @property
    def open_files(self) -> int:
        return self._open_count

    def usage(self, relative: str) -> CgroupUsage:
        """FileError if one of the files cannot be read, MissingFileError if the cgroup is gone."""
        memory_path, memory = self._content("memory", relative, "memory.stat")
        if self._version is CgroupVersion.V1:
            usage_path, usage = self._content("cpuacct", relative, "cpuacct.usage")
            count = parse_count(usage.rstrip())
            if count is None:
                raise MalformedFileError(usage_path, f"{usage[:40]!r} is not a count")
            cpu = count
            stat_path, stat = self._content("cpu", relative, "cpu.stat")
        else:
            stat_path, stat = self._content("cpu", relative, "cpu.stat")
            cpu = parse_usage(stat_path, stat)
        return CgroupUsage(
            cpu=cpu,
            throttling=parse_cpu_stat(stat_path, stat, self._version),
            memory=parse_memory_stat(memory_path, memory, self._version),
        )

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
            for descriptor in self._open.pop(relative).values():
                os.close(descriptor)
                self._open_count -= 1

    def close(self) -> None:
        self.keep_only(())

    def _content(self, controller: str, relative: str, name: str) -> tuple[str, bytes]:
        path = f"{self._layout.folder(controller, relative)}/{name}"
        self.files_read += 1
        files = self._open.get(relative)
        descriptor = files.get(name) if files else None
        if descriptor is not None:
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
            self._open.setdefault(relative, {})[name] = descriptor
            self._open_count += 1
        else:
            os.close(descriptor)
        return content

    def _forget(self, relative: str, name: str) -> None:
        os.close(self._open[relative].pop(name))
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
