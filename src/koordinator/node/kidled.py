"""Cold pages: memory that nothing has touched for a while, as kidled of Anolis OS finds it."""

from __future__ import annotations

from typing import Final

from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.errors import FileError, MalformedFileError, Unavailable
from koordinator.node.host import Host, exists, read_file, read_optional_integer
from koordinator.node.kernel_writer import MachineFiles

_SETTINGS: Final = {"scan_period_in_seconds": "5", "use_hierarchy": "1"}
_LINES: Final = 31
_FIRST_ROW: Final = 14
_COLD_ROWS: Final = frozenset({b"cfei", b"dfei", b"cfui", b"dfui"})
"""Pages of files that are clean or dirty, evictable or not, and idle."""
_FIRST_COLD_BUCKET: Final = 5
"""Buckets are by idle time, which doubles from one to the next; from this one on pages count as cold."""


def settings(host: Host) -> dict[str, str] | Unavailable:
    """The files that switch kidled on, by name; Unavailable if the kernel has none."""
    folder = f"{host.sys}/kernel/mm/kidled"
    paths = {name: f"{folder}/{name}" for name in ("scan_period_in_seconds", "use_hierarchy")}
    for path in paths.values():
        if not exists(path):
            return Unavailable(f"{path} does not exist", "a kernel with kidled (Anolis OS)")
    return paths


def switch_on(host: Host, *, may_write: bool = True) -> Unavailable | None:
    """Have kidled scan all memory, cgroups with what is below them; None if it does. Without ``may_write``, it is only
    looked at whether it does."""
    paths = settings(host)
    if isinstance(paths, Unavailable):
        return paths
    for name, value in _SETTINGS.items():
        if read_optional_integer(paths[name]) == int(value):
            continue
        if not may_write:
            return Unavailable(f"{paths[name]} is not {value}", f"{value} in it, which is not written")
        try:
            MachineFiles().write(paths[name], value)
        except FileError as error:
            return Unavailable(str(error), "root, and a /sys that may be written")
    return None


def read_cold_bytes(layout: CgroupLayout, relative: str) -> int | Unavailable:
    """Bytes of a cgroup that are cold; the whole machine's for the root (an empty relative folder)."""
    if layout.version is not CgroupVersion.V1:
        return Unavailable("memory.idle_page_stats exists on cgroup version 1 only", "cgroup version 1")
    path = f"{layout.folder('memory', relative)}/memory.idle_page_stats"
    lines = read_file(path).splitlines()
    if len(lines) != _LINES:
        raise MalformedFileError(path, f"has {len(lines)} lines instead of {_LINES}")
    cold = 0
    for line in lines[_FIRST_ROW:]:
        name, *buckets = line.split() or [b""]
        if name in _COLD_ROWS:
            try:
                cold += sum(int(bucket) for bucket in buckets[_FIRST_COLD_BUCKET:])
            except ValueError:
                raise MalformedFileError(path, f"{line[:60]!r} has a bucket that is not an integer") from None
    return cold
