"""Where the files of ``kernel_files`` are on one machine, and their contents from and to values.

Also which values the kernel takes: what it would refuse, or take for something else, is an InvalidValueError before
anything is written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
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
    weight_of_shares,
)
from koordinator.node.errors import MalformedFileError, NodeError
from koordinator.node.host import Host, exists
from koordinator.node.kernel_files import (
    BLOCK_COST_MODEL,
    BLOCK_COST_QOS,
    BLOCK_DEFAULT_WEIGHT,
    BLOCK_READ_BPS,
    BLOCK_READ_IOPS,
    BLOCK_WEIGHT,
    BLOCK_WRITE_BPS,
    BLOCK_WRITE_IOPS,
    UNLIMITED,
    Format,
    KernelFile,
    Root,
    Target,
    Value,
)

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


class InvalidValueError(NodeError):
    """A value that the kernel would refuse, or take for something else."""


class KernelFileCodec:
    """Paths, texts and values of one machine."""

    def __init__(self, host: Host, layout: CgroupLayout, page_size: int) -> None:
        """``page_size`` in bytes: what is protected or throttled is counted in whole pages."""
        self._host = host
        self._layout = layout
        self._page_size = page_size

    def path(self, target: Target) -> str | None:
        """Where the file is; None if this version of cgroups has none."""
        if newer := self._newer(target.file):
            return newer
        folder = self.folder(target)
        name = target.file.v1 if self._layout.version is CgroupVersion.V1 else target.file.v2
        return None if name is None else f"{folder}/{name}"

    def in_force_path(self, target: Target) -> str | None:
        """The file that shows what holds where the target's own is empty; None where an empty one means nothing."""
        is_v2 = self._layout.version is CgroupVersion.V2
        return f"{self.folder(target)}/{target.file.v2_in_force}" if is_v2 and target.file.v2_in_force else None

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
            newer = self._newer(file)
            return posixpath.dirname(newer) if newer else f"{self._host.sys}/{file.folder}"
        return "/".join(part for part in (f"{self._host.sys_fs}/resctrl", target.folder) if part)

    def _newer(self, file: KernelFile) -> str | None:
        """Looked for each time: debugfs may be mounted late."""
        path = f"{self._host.sys}/{file.newer}"
        return path if file.newer is not None and exists(path) else None

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
                yield format_cpu_list(value)
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
        # The kernel does not empty the set of a cgroup with processes, on version 2 neither.
        if not isinstance(value, frozenset) or not value or min(value) < 0:
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


def _least_shares(weight: int) -> int:
    """The fewest shares with that weight; unlike those of Kubernetes' own map they give the same weight again."""
    return -(-(weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - MIN_WEIGHT)) + MIN_SHARES


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
