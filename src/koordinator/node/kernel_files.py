"""The files of the kernel that the agent writes: what a value looks like in each, and which values the kernel takes.

One table for cgroups of both versions, sysctls and resctrl. A file is named as version 1 of cgroups names it; its value
is in version 1's terms, too (shares, microseconds of quota, bytes, -1 for no limit), whatever the machine runs, so that
its callers need to know neither versions nor formats. What a kernel does not have is no file below an existing
folder: that is found out when it is written, every time, since a boot parameter or a mount may bring it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from koordinator.node.cgroup_reader import MAX_SHARES, MIN_SHARES, NO_LIMIT

UNLIMITED: Final = (1 << 63) - 1
"""No throttling, in memory.high; the kernel shows ``max`` for it."""

Value = int | str | frozenset[int] | tuple[tuple[int, int], ...]
"""A number, a line, CPUs or tasks, or pairs of a cache's number and its share."""


class Root(Enum):
    """Below which of the host's folders a file is."""

    CGROUP = "cgroup"
    SYSCTL = "sysctl"
    SYS = "sys"
    RESCTRL = "resctrl"
    PROCESS = "process"


class Format(Enum):
    """How a value is written."""

    INTEGER = "a number"
    LIMIT = "bytes, in whole pages, -1 for none"
    QUOTA = "microseconds, -1 for none"
    PERIOD = "microseconds of a period"
    SHARES = "shares"
    BYTES = "bytes, in whole pages"
    CPU_LIST = "CPUs"
    DEVICE_NUMBER = "a number for each block device"
    DEVICE_LINE = "a line for each block device"
    SWITCH_WORD = "a word for each switch"
    SCHEMATA = "shares of each cache"
    TASKS = "tasks, of which more can be added"
    GROUP = "0 for no such group"


class Nesting(Enum):
    """What the value of a parent means for those of its children."""

    NONE = "nothing"
    LIMIT = "a child has no more than its parent"
    SET = "a child has no CPU that its parent has not"
    PROTECTION = "a child is protected no further than its parent is"


@dataclass(frozen=True, slots=True, eq=False)
class KernelFile:
    """One kind of file. Compared by identity: there is one object for each row of the table.

    ``v1`` and ``v2`` are the names of the file; None where that version has no such file. ``lowest`` and ``highest``
    bound a number in the terms of the file that is written, which differ between the versions for cpu.shares alone.
    """

    key: str
    root: Root
    folder: str
    v1: str | None
    v2: str | None
    format: Format
    lowest: int | None = None
    highest: int | None = None
    nesting: Nesting = Nesting.NONE
    v2_in_force: str | None = None
    """Version 2's file that shows what holds where this one is empty, which is what a parent has."""
    newer: str | None = None
    """Where newer kernels have the file, below the root. Whichever is there is the file."""

    def __repr__(self) -> str:
        return f"<{self.key}>"


def _cgroup(
    key: str,
    controller: str,
    v2: str | None,
    format_: Format,
    lowest: int | None = None,
    highest: int | None = None,
    nesting: Nesting = Nesting.NONE,
    *,
    in_v1: bool = True,
    v2_in_force: str | None = None,
) -> KernelFile:
    v1 = key if in_v1 else None
    return KernelFile(key, Root.CGROUP, controller, v1, v2, format_, lowest, highest, nesting, v2_in_force)


def _same(key: str, controller: str, lowest: int, highest: int | None, *, in_v1: bool = True) -> KernelFile:
    return _cgroup(key, controller, key, Format.INTEGER, lowest, highest, in_v1=in_v1)


CPU_SHARES: Final = _cgroup("cpu.shares", "cpu", "cpu.weight", Format.SHARES, MIN_SHARES, MAX_SHARES)
CPU_QUOTA: Final = _cgroup("cpu.cfs_quota_us", "cpu", "cpu.max", Format.QUOTA, NO_LIMIT, None, Nesting.LIMIT)
CPU_PERIOD: Final = _cgroup("cpu.cfs_period_us", "cpu", "cpu.max", Format.PERIOD, 1000, 1_000_000)
CPU_BURST: Final = _cgroup("cpu.cfs_burst_us", "cpu", "cpu.max.burst", Format.INTEGER, 0, 100_000_000)
CPU_BVT: Final = _same("cpu.bvt_warp_ns", "cpu", -1, 2)
CPU_IDLE: Final = _same("cpu.idle", "cpu", 0, 1)
CPUSET: Final = _cgroup(
    "cpuset.cpus",
    "cpuset",
    "cpuset.cpus",
    Format.CPU_LIST,
    nesting=Nesting.SET,
    v2_in_force="cpuset.cpus.effective",
)
MEMORY_LIMIT: Final = _cgroup("memory.limit_in_bytes", "memory", "memory.max", Format.LIMIT, NO_LIMIT)
MEMORY_MIN: Final = _cgroup("memory.min", "memory", "memory.min", Format.BYTES, 0, None, Nesting.PROTECTION)
MEMORY_LOW: Final = _cgroup("memory.low", "memory", "memory.low", Format.BYTES, 0, None, Nesting.PROTECTION)
MEMORY_HIGH: Final = _cgroup("memory.high", "memory", "memory.high", Format.BYTES, 0)
MEMORY_WATERMARK_RATIO: Final = _same("memory.wmark_ratio", "memory", 0, 100)
MEMORY_WATERMARK_SCALE: Final = _same("memory.wmark_scale_factor", "memory", 1, 1000)
MEMORY_WATERMARK_MIN_ADJUSTMENT: Final = _same("memory.wmark_min_adj", "memory", -25, 50)
MEMORY_PRIORITY: Final = _same("memory.priority", "memory", 0, 12)
MEMORY_USE_PRIORITY_OOM: Final = _same("memory.use_priority_oom", "memory", 0, 1)
MEMORY_OOM_GROUP: Final = _same("memory.oom.group", "memory", 0, 1)
PAGE_CACHE_ENABLE: Final = _same("memory.pagecache_limit.enable", "memory", 0, 1, in_v1=False)
PAGE_CACHE_SYNC: Final = _same("memory.pagecache_limit.sync", "memory", 0, 1, in_v1=False)
PAGE_CACHE_SIZE: Final = _same("memory.pagecache_limit.size", "memory", 0, None, in_v1=False)
NET_CLASS: Final = _cgroup("net_cls.classid", "net_cls", None, Format.INTEGER, 0, (1 << 32) - 1)


def _device(key: str, v2: str, lowest: int, highest: int | None) -> KernelFile:
    return _cgroup(key, "blkio", v2, Format.DEVICE_NUMBER, lowest, highest)


BLOCK_READ_IOPS: Final = _device("blkio.throttle.read_iops_device", "io.max", 0, None)
BLOCK_READ_BPS: Final = _device("blkio.throttle.read_bps_device", "io.max", 0, None)
BLOCK_WRITE_IOPS: Final = _device("blkio.throttle.write_iops_device", "io.max", 0, None)
BLOCK_WRITE_BPS: Final = _device("blkio.throttle.write_bps_device", "io.max", 0, None)
BLOCK_WEIGHT: Final = _device("blkio.cost.weight", "io.weight", 1, 100)
BLOCK_COST_QOS: Final = _cgroup("blkio.cost.qos", "blkio", "io.cost.qos", Format.DEVICE_LINE)
BLOCK_COST_MODEL: Final = _cgroup("blkio.cost.model", "blkio", "io.cost.model", Format.DEVICE_LINE)

BLOCK_DEFAULT_WEIGHT: Final = 100
"""The weight of a device that blkio.cost.weight does not name."""


def _sysctl(key: str, folder: str, lowest: int | None, highest: int | None) -> KernelFile:
    return KernelFile(key, Root.SYSCTL, folder, key, key, Format.INTEGER, lowest, highest)


def _sys(key: str, folder: str, name: str, highest: int | None) -> KernelFile:
    return KernelFile(key, Root.SYS, folder, name, name, Format.INTEGER, 0, highest)


MIN_FREE_KBYTES: Final = _sysctl("min_free_kbytes", "vm", 10240, 10 * 1024 * 1024)
WATERMARK_SCALE_FACTOR: Final = _sysctl("watermark_scale_factor", "vm", 10, 400)
SCHED_GROUP_IDENTITY: Final = _sysctl("sched_group_identity_enabled", "kernel", 0, 1)
SCHED_CORE: Final = _sysctl("sched_core", "kernel", 0, 1)
SCHED_IDLE_SAVER: Final = _sysctl("sched_idle_saver_wmark", "kernel", None, None)
MEMCG_REAPER: Final = _sys("memcg_reaper", "kernel/mm/memcg_reaper", "reap_background", 1)
PAGE_CACHE_LIMIT: Final = _sys("pagecache_limit", "kernel/mm/pagecache_limit", "enabled", 1)
SCHED_FEATURES: Final = KernelFile(
    "sched_features",
    Root.SYS,
    "kernel/debug",
    "sched_features",
    "sched_features",
    Format.SWITCH_WORD,
    0,
    1,
    # Since Linux 5.13.
    newer="kernel/debug/sched/features",
)
OOM_SCORE_ADJ: Final = KernelFile(
    "oom_score_adj", Root.PROCESS, "", "oom_score_adj", "oom_score_adj", Format.INTEGER, -1000, 1000
)
RESCTRL_SCHEMATA: Final = KernelFile("schemata", Root.RESCTRL, "", "schemata", "schemata", Format.SCHEMATA, 1)
RESCTRL_TASKS: Final = KernelFile("tasks", Root.RESCTRL, "", "tasks", "tasks", Format.TASKS, 1)

RESCTRL_GROUP: Final = KernelFile("group", Root.RESCTRL, "", "tasks", "tasks", Format.GROUP, 0, 0)
"""A group itself: it is made with its schemata, and 0 removes it. What has tasks can be read."""


KEPT_FILES: Final = frozenset({MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH})
"""What the kubelet decides by a formula that each of its versions has changed: the mark keeps what was there before."""
KUBELET_FILES: Final = frozenset({CPU_QUOTA, CPU_BURST, CPU_SHARES, MEMORY_LIMIT}) | KEPT_FILES
"""What the kubelet decides of a pod's cgroups, too: who changes one of them marks it, and puts it back."""

CONTAINER_LIMITS: Final = frozenset({CPU_QUOTA, CPU_BURST, CPUSET, MEMORY_LIMIT})
"""What holds for the processes of a container in each folder between theirs and the root."""


class Target(NamedTuple):
    """One value of the kernel: of a file in a folder, and in it of a device, a switch or a kind of cache.

    ``folder`` is a relative folder of ``CgroupLayout``, the name of a resctrl group or the number of a process; empty
    for what the machine has once. A tuple, whose hash needs no Python code: each write looks up a hundred of them.
    """

    file: KernelFile
    folder: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.folder or '/'} {self.file.key}" + (f" {self.part}" if self.part else "")


PERIOD: Final = 100_000
"""Microseconds: the period of a cgroup whose period nobody has written, and of kubelet unless it is configured."""
LEAST_QUOTA: Final = 1000
"""The kernel takes no less."""


def quota_of_milli(milli: int, period: int = PERIOD) -> int:
    """Microseconds of quota in a period, which is in microseconds, too; NO_LIMIT for no limit."""
    return NO_LIMIT if milli <= 0 else max(milli * period // 1000, LEAST_QUOTA)


def shares_of_milli(milli: int) -> int:
    """``cpu.shares`` of a request: 1024 a core, within the kernel's bounds."""
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)
