"""How busy the CPUs have been since boot, of ``/proc/stat``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.node.errors import MalformedFileError, OddRowError, Skipped
from koordinator.node.host import Host, parse_count, read_file

_LEAST_COLUMNS = 4
"""user, nice, system and idle after the name; then come iowait, irq and softirq, and of later kernels steal and guests.
"""


@dataclass(frozen=True, slots=True)
class CPUTimes:
    """Ticks in which the CPUs ran something: idle time, waiting for I/O and what a hypervisor took do not count."""

    total: int
    by_cpu: Mapping[int, int]


def ticks_per_second() -> int:
    """How many ticks of ``/proc/stat`` a second has; 100 on every Linux that is in use."""
    return os.sysconf("SC_CLK_TCK")


def read_cpu_times(host: Host, skipped: Skipped, *, with_each: bool = True) -> CPUTimes:
    """Of the machine and, unless it is not needed, of each CPU that is online, of which there may be hundreds;
    MalformedFileError if the line of the machine is odd."""
    path = f"{host.proc}/stat"
    total = None
    by_cpu = {}
    content = read_file(path)
    for line in content.splitlines() if with_each else content[: content.find(b"\n") + 1].splitlines():
        if not line.startswith(b"cpu"):
            continue
        name, *fields = line.split()
        ticks, cpu = _busy_ticks(fields), parse_count(name[3:])
        if name == b"cpu" and ticks is not None:
            total = ticks
        elif cpu is not None and ticks is not None:
            by_cpu[cpu] = ticks
        else:
            skipped(OddRowError(path, f"{line[:60]!r} is illegally formatted"))
    if total is None:
        raise MalformedFileError(path, "has no line cpu with the ticks of all CPUs")
    return CPUTimes(total, by_cpu)


def _busy_ticks(fields: list[bytes]) -> int | None:
    """None for a line that does not have them."""
    ticks = [parse_count(field) for field in fields]
    if len(ticks) < _LEAST_COLUMNS or None in ticks[:7]:
        return None
    user, nice, system, _, _, irq, softirq = [each or 0 for each in [*ticks, 0, 0, 0][:7]]
    return user + nice + system + irq + softirq
