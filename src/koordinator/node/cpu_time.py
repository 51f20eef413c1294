"""How busy the CPUs have been since boot, of ``/proc/stat``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.node.errors import MalformedFileError
from koordinator.node.host import Host, read_file

_COLUMNS = 8
"""user, nice, system, idle, iowait, irq and softirq after the name; later kernels append steal and guests."""


@dataclass(frozen=True, slots=True)
class CPUTimes:
    """Ticks in which the CPUs ran something: idle time, waiting for I/O and what a hypervisor took do not count."""

    total: int
    by_cpu: Mapping[int, int]


def ticks_per_second() -> int:
    """How many ticks of ``/proc/stat`` a second has; 100 on every Linux that is in use."""
    return os.sysconf("SC_CLK_TCK")


def read_cpu_times(host: Host) -> CPUTimes:
    """Of the machine and of each CPU that is online."""
    path = f"{host.proc}/stat"
    total = None
    by_cpu = {}
    for line in read_file(path).splitlines():
        # The lines of the CPUs come first, and the line of interrupts after them is the longest by far.
        if not line.startswith(b"cpu"):
            break
        name, *fields = line.split()
        ticks = _busy_ticks(path, line, fields)
        if name == b"cpu":
            total = ticks
        elif name[3:].isdigit():
            by_cpu[int(name[3:])] = ticks
    if total is None:
        raise MalformedFileError(path, "has no line cpu")
    return CPUTimes(total, by_cpu)


def _busy_ticks(path: str, line: bytes, fields: list[bytes]) -> int:
    if len(fields) < _COLUMNS - 1:
        raise MalformedFileError(path, f"{line[:60]!r} is illegally formatted")
    user, nice, system, _, _, irq, softirq = fields[: _COLUMNS - 1]
    try:
        return int(user) + int(nice) + int(system) + int(irq) + int(softirq)
    except ValueError:
        raise MalformedFileError(path, f"{line[:60]!r} is illegally formatted") from None
