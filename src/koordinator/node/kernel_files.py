"""The files of the kernel that the agent writes: what a value looks like in each, and which values the kernel takes.

One table for cgroups of both versions, sysctls and resctrl. A file is named as version 1 of cgroups names it; its value
is in version 1's terms, too (shares, microseconds of quota, bytes, -1 for no limit), whatever the machine runs, so that
whoever decides needs to know neither versions nor formats. What a kernel does not have is no file below an existing
folder: that is found out when it is written, every time, since a boot parameter or a mount may bring it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import (
    MAX_SHARES,
    MAX_WEIGHT,
    MIN_SHARES,
    MIN_WEIGHT,
    NO_LIMIT,
    parse_cpu_max,
)
from koordinator.node.errors import MalformedFileError, NodeError
from koordinator.node.host import Host

UNLIMITED: Final = (1 << 63) - 1
"""No throttling, in memory.high; the kernel shows ``max`` for it."""

Value = int | str | frozenset[int] | tuple[tuple[int, int], ...]
"""A number, a line, CPUs or tasks, or pairs of a cache's number and its share."""


class InvalidValueError(NodeError):
    """A value that the kernel would refuse, or take for something else."""


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
) -> KernelFile:
    return KernelFile(key, Root.CGROUP, controller, key if in_v1 else None, v2, format_, lowest, highest, nesting)


def _same(key: str, controller: str, lowest: int, highest: int | None, *, in_v1: bool = True) -> KernelFile:
    return _cgroup(key, controller, key, Format.INTEGER, lowest, highest, in_v1=in_v1)


CPU_SHARES: Final = _cgroup("cpu.shares", "cpu", "cpu.weight", Format.SHARES, MIN_SHARES, MAX_SHARES)
CPU_QUOTA: Final = _cgroup("cpu.cfs_quota_us", "cpu", "cpu.max", Format.QUOTA, NO_LIMIT, None, Nesting.LIMIT)
CPU_PERIOD: Final = _cgroup("cpu.cfs_period_us", "cpu", "cpu.max", Format.PERIOD, 1000, 1_000_000)
CPU_BURST: Final = _cgroup("cpu.cfs_burst_us", "cpu", "cpu.max.burst", Format.INTEGER, 0, 100_000_000)
CPU_BVT: Final = _same("cpu.bvt_warp_ns", "cpu", -1, 2)
CPU_IDLE: Final = _same("cpu.idle", "cpu", 0, 1)
CPUSET: Final = _cgroup("cpuset.cpus", "cpuset", "cpuset.cpus", Format.CPU_LIST, nesting=Nesting.SET)
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

_IO_MAX: Final = {
    BLOCK_READ_IOPS: "riops",
    BLOCK_READ_BPS: "rbps",
    BLOCK_WRITE_IOPS: "wiops",
    BLOCK_WRITE_BPS: "wbps",
}
"""Version 2 has all limits of a device in one line; it can be given one of them without the others."""
_UNLIMITED_IOPS: Final = (1 << 32) - 1
"""The kernel keeps operations per second in 32 bits. The largest number is no limit, and version 1 cuts larger ones."""
_SHOWN_OF_LINE: Final = {
    BLOCK_COST_QOS: ("enable", "ctrl", "rpct", "rlat", "wpct", "wlat"),
    BLOCK_COST_MODEL: ("ctrl", "rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"),
}
"""What is compared of a line: the kernel shows more than it was given, such as its own min and max."""
_ALONE: Final = ("enable=0", "ctrl=auto")
"""First words after which the kernel goes by no other word of the line, though it shows some."""

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
    "sched_features", Root.SYS, "kernel/debug", "sched_features", "sched_features", Format.SWITCH_WORD, 0, 1
)
OOM_SCORE_ADJ: Final = KernelFile(
    "oom_score_adj", Root.PROCESS, "", "oom_score_adj", "oom_score_adj", Format.INTEGER, -1000, 1000
)
RESCTRL_SCHEMATA: Final = KernelFile("schemata", Root.RESCTRL, "", "schemata", "schemata", Format.SCHEMATA, 1)
RESCTRL_TASKS: Final = KernelFile("tasks", Root.RESCTRL, "", "tasks", "tasks", Format.TASKS, 1)

RESCTRL_GROUP: Final = KernelFile("group", Root.RESCTRL, "", "tasks", "tasks", Format.GROUP, 0, 0)
"""A group itself: it is made with its schemata, and 0 removes it. What has tasks can be read."""


@dataclass(frozen=True, slots=True)
class Target:
    """One value of the kernel: of a file in a folder, and in it of a device, a switch or a kind of cache.

    ``folder`` is a relative folder of ``CgroupLayout``, the name of a resctrl group or the number of a process; empty
    for what the machine has once.
    """

    file: KernelFile
    folder: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.folder or '/'} {self.file.key}" + (f" {self.part}" if self.part else "")


class KernelFileCodec:
    """Paths, texts and values of one machine."""

    def __init__(self, host: Host, layout: CgroupLayout, page_size: int) -> None:
        """``page_size`` in bytes: what is protected or throttled is counted in whole pages."""
        self._host = host
        self._layout = layout
        self._page_size = page_size

    def path(self, target: Target) -> str | None:
        """Where the file is; None if this version of cgroups has none."""
        folder = self.folder(target)
        name = target.file.v1 if self._layout.version is CgroupVersion.V1 else target.file.v2
        return None if name is None else f"{folder}/{name}"

    def folder(self, target: Target) -> str:
        """The folder of the file, which is there unless the cgroup has gone or the kernel lacks the feature."""
        file = target.file
        if file.root is Root.CGROUP:
            return self._layout.folder(file.folder, target.folder)
        if file.root is Root.PROCESS:
            return f"{self._host.proc}/{target.folder}"
        if file.root is Root.SYSCTL:
            return f"{self._host.proc}/sys/{file.folder}"
        if file.root is Root.SYS:
            return f"{self._host.sys}/{file.folder}"
        return "/".join(part for part in (f"{self._host.sys_fs}/resctrl", target.folder) if part)

    def canonical(self, target: Target, value: Value) -> Value:
        """The value as the file will show it. InvalidValueError if it cannot hold it."""
        check(target, value)
        if target.file.format is Format.SHARES and self._layout.version is CgroupVersion.V2:
            return _least_shares(weight_of_shares(_number(target, value)))
        if target.file.format is Format.BYTES and value != UNLIMITED:
            return self._whole_pages(_number(target, value))
        if target.file.format is Format.LIMIT and value != NO_LIMIT:
            pages = self._whole_pages(_number(target, value))
            return NO_LIMIT if pages >= self._whole_pages(UNLIMITED) else pages
        if target.file in (BLOCK_READ_IOPS, BLOCK_WRITE_IOPS) and _number(target, value) >= _UNLIMITED_IOPS:
            return 0
        if target.file.format is Format.DEVICE_LINE and isinstance(value, str):
            return _compared_line(target.file, value)
        return value

    def _whole_pages(self, number: int) -> int:
        return number // self._page_size * self._page_size

    def texts(self, target: Target, value: Value, content: str) -> Iterator[str]:
        """What has to be written, in turn, so that the file shows the value; ``content`` is what it shows now."""
        v2 = self._layout.version is CgroupVersion.V2
        match target.file.format:
            case Format.CPU_LIST if isinstance(value, frozenset):
                yield format_cpu_list(value) or "\n"
            case Format.TASKS if isinstance(value, frozenset):
                present = self.decode(target, content)
                yield from (
                    str(task) for task in sorted(value - (present if isinstance(present, frozenset) else set()))
                )
            case Format.SCHEMATA if isinstance(value, tuple):
                yield _schemata_line(target.part, value)
            case Format.GROUP:
                yield "no group"
            case Format.SWITCH_WORD:
                yield f"{'' if value else 'NO_'}{target.part}\n"
            case Format.DEVICE_NUMBER if v2 and target.file in _IO_MAX:
                yield f"{target.part} {_IO_MAX[target.file]}={value or 'max'}"
            case Format.DEVICE_NUMBER | Format.DEVICE_LINE:
                yield f"{target.part} {value}"
            case Format.SHARES if v2:
                yield str(weight_of_shares(_number(target, value)))
            case Format.PERIOD if v2:
                yield f"{(content.split() or ['max'])[0]} {value}"
            case Format.QUOTA | Format.LIMIT if v2 and value == NO_LIMIT:
                yield "max"
            case _:
                yield str(value)

    def decode(self, target: Target, content: str) -> Value | None:
        """What a file says of the target; None where it says nothing. MalformedFileError if it is not the format."""
        path = self.path(target) or ""
        v2 = self._layout.version is CgroupVersion.V2
        try:
            match target.file.format:
                case Format.CPU_LIST:
                    return parse_cpu_list(content.strip()) or None
                case Format.TASKS:
                    return frozenset(map(int, content.split()))
                case Format.GROUP:
                    return 1
                case Format.SCHEMATA:
                    return _schemata_value(target.part, content)
                case Format.SWITCH_WORD:
                    return _switch(target.part, content)
                case Format.DEVICE_NUMBER if v2 and target.file in _IO_MAX:
                    limit = _fields(_device_line(target.part, content) or "").get(_IO_MAX[target.file], "max")
                    return 0 if limit == "max" else int(limit)
                case Format.DEVICE_NUMBER:
                    line = _device_line(target.part, content)
                    missing = BLOCK_DEFAULT_WEIGHT if target.file is BLOCK_WEIGHT else 0
                    return missing if line is None else int(line)
                case Format.DEVICE_LINE:
                    line = _device_line(target.part, content)
                    return None if line is None else _compared_line(target.file, line)
                case Format.SHARES if v2:
                    return _least_shares(int(content))
                case Format.QUOTA | Format.PERIOD if v2:
                    return parse_cpu_max(path, content.encode())[target.file.format is Format.PERIOD]
                case Format.LIMIT:
                    number = NO_LIMIT if content.strip() == "max" else int(content)
                    return NO_LIMIT if number >= self._whole_pages(UNLIMITED) else number
                case Format.BYTES:
                    number = UNLIMITED if content.strip() == "max" else int(content)
                    return UNLIMITED if number >= self._whole_pages(UNLIMITED) else number
                case _:
                    return int(content)
        except ValueError:
            raise MalformedFileError(path, f"{content[:60]!r} is not {target.file.format.value}") from None


def check(target: Target, value: Value) -> None:
    """InvalidValueError, with what is allowed, for a value that the file cannot hold."""
    file = target.file
    if file.format is Format.CPU_LIST:
        if not isinstance(value, frozenset) or any(cpu < 0 for cpu in value):
            raise InvalidValueError(f"{target}: {value!r} is not a set of CPUs")
    elif file.format is Format.TASKS:
        if not isinstance(value, frozenset) or any(task < 1 for task in value):
            raise InvalidValueError(f"{target}: {value!r} is not a set of tasks")
    elif file.format is Format.SCHEMATA:
        if not isinstance(value, tuple) or not value or any(share < 1 for _, share in value):
            raise InvalidValueError(f"{target}: {value!r} does not give every cache a share above 0")
    elif file.format is Format.DEVICE_LINE:
        if not isinstance(value, str) or "\n" in value:
            raise InvalidValueError(f"{target}: {value!r} is not one line")
    else:
        _check_number(target, value)
    if file.format in (Format.DEVICE_NUMBER, Format.DEVICE_LINE) and not _is_device_number(target.part):
        raise InvalidValueError(f"{target}: {target.part!r} is not the number of a block device, such as 8:0")


def _check_number(target: Target, value: Value) -> None:
    lowest, highest = target.file.lowest, target.file.highest
    number = _number(target, value)
    if (lowest is not None and number < lowest) or (highest is not None and number > highest):
        raise InvalidValueError(
            f"{target}: {number} is not in [{'-' if lowest is None else lowest}, {'-' if highest is None else highest}]"
        )


def _number(target: Target, value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(f"{target}: {value!r} is not a number")
    return value


def weight_of_shares(shares: int) -> int:
    """Version 2's ``cpu.weight`` for version 1's ``cpu.shares``: the linear map of Kubernetes (KEP-2254)."""
    return min(max(1 + (shares - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES), MIN_WEIGHT), MAX_WEIGHT)


def _least_shares(weight: int) -> int:
    """The fewest shares with that weight; unlike those of Kubernetes' own map they give the same weight again."""
    return -(-(weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - MIN_WEIGHT)) + MIN_SHARES


PERIOD: Final = 100_000
"""Microseconds: the period that kubelet gives every cgroup."""
LEAST_QUOTA: Final = 1000
"""The kernel takes no less."""


def quota_of_milli(milli: int) -> int:
    """Microseconds of quota in a period of 100 ms; NO_LIMIT for no limit."""
    return NO_LIMIT if milli <= 0 else max(milli * PERIOD // 1000, LEAST_QUOTA)


def shares_of_milli(milli: int) -> int:
    """``cpu.shares`` of a request: 1024 a core, within the kernel's bounds."""
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def _is_device_number(text: str) -> bool:
    major, colon, minor = text.partition(":")
    return bool(colon) and major.isdecimal() and minor.isdecimal()


def _device_line(device: str, content: str) -> str | None:
    for line in content.splitlines():
        number, _, rest = line.strip().partition(" ")
        if number == device:
            return rest
    return None


def devices_of(content: str) -> list[str]:
    """The numbers of the devices that a file with a line for each names."""
    return [number for line in content.splitlines() if _is_device_number(number := line.partition(" ")[0])]


def _fields(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in line.split())}


def _compared_line(file: KernelFile, line: str) -> str:
    """The words that count, in one order, with 95.00 as 95."""
    fields = _fields(line)
    words = [f"{name}={_plain(fields[name])}" for name in _SHOWN_OF_LINE[file] if name in fields]
    return words[0] if words and words[0] in _ALONE else " ".join(words)


def _plain(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _switch(name: str, content: str) -> int | None:
    words = content.split()
    on, off = name in words, f"NO_{name}" in words
    return None if on == off else int(on)


def _schemata_line(kind: str, value: tuple[tuple[int, int], ...]) -> str:
    shares = (f"{cache}={share:x}" if kind == "L3" else f"{cache}={share}" for cache, share in value)
    return f"{kind}:{';'.join(shares)}\n"


def _schemata_value(kind: str, content: str) -> tuple[tuple[int, int], ...] | None:
    base = 16 if kind == "L3" else 10
    for line in content.splitlines():
        name, _, shares = line.strip().partition(":")
        if name == kind:
            pairs = (share.strip().partition("=") for share in shares.split(";") if share.strip())
            return tuple(sorted((int(cache), int(share, base)) for cache, _, share in pairs))
    return None
