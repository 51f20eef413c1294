"""What a process, its family and the whole machine have used so far, read from /proc."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from koordinator.base.errors import KoordinatorError

_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET_WINDOW = 1.0
_QUIET_SHARE = 0.15
_QUIET_CHILDREN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds (user and system, all threads) and the largest resident size in bytes."""

    cpu_seconds: float
    peak_bytes: int


def usage_of(process_id: int) -> Usage:
    """Read the figures of a running process. Raises OSError when it is gone."""
    status = (Path("/proc") / str(process_id) / "status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return Usage(_cpu_seconds(process_id), int(peak.split()[1]) * 1024)


def cpu_clock(process_id: int) -> float:
    """CPU seconds of a process, all threads, to the nanosecond. Raises OSError when it is gone."""
    # How Linux makes the clock of a process of its identity, which is what clock_getcpuclockid of the C library does.
    return time.clock_gettime((~process_id << 3) | 2)


def waited_seconds(process_id: int) -> float:
    """For how long the threads that the process has now have been ready to run and have waited for a processor."""
    return sum(waited for _, waited in _thread_seconds(process_id))


async def until_quiet(process_id: int, limit: float = 120.0) -> None:
    """Wait until the process, a child of this one, has nothing to do: for a second it neither used CPU nor waited for
    any, and no other child had much to do of which it might await the outcome.

    Raises KoordinatorError after ``limit`` seconds.
    """
    wanted, used = _wanted_seconds(process_id), _children_seconds()
    for _ in range(round(limit / _QUIET_WINDOW)):
        await asyncio.sleep(_QUIET_WINDOW)
        wanted_before, wanted = wanted, _wanted_seconds(process_id)
        used_before, used = used, _children_seconds()
        if wanted - wanted_before < _QUIET_SHARE and used - used_before < _QUIET_CHILDREN_SHARE:
            return
    raise KoordinatorError(f"process {process_id} did not come to rest within {limit:.0f} s")


class OtherLoad:
    """How many cores were busy since it was made with what is neither this process nor one of its children.

    No child may end meanwhile.
    """

    def __init__(self) -> None:
        self._moment = time.perf_counter()
        self._before = _others_seconds()

    def cores(self) -> float:
        return (_others_seconds() - self._before) / (time.perf_counter() - self._moment)


def _cpu_seconds(process_id: int) -> float:
    # The command name, in parentheses, may contain spaces; the numbers follow it.
    numbers = (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS


def _wanted_seconds(process_id: int) -> float:
    """CPU that the process's threads have used, and time that they have waited for a processor."""
    return sum(used + waited for used, waited in _thread_seconds(process_id))


def _thread_seconds(process_id: int) -> Iterator[tuple[float, float]]:
    """Used and waited, of each thread."""
    for task in (Path("/proc") / str(process_id) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may have ended meanwhile
            used, waited, _ = (task / "schedstat").read_text().split()
            yield int(used) / 1e9, int(waited) / 1e9


def _children_seconds() -> float:
    tasks = Path("/proc/self/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return sum(map(_cpu_seconds, children))


def _others_seconds() -> float:
    return _machine_seconds() - _children_seconds() - _cpu_seconds(os.getpid())


def _machine_seconds() -> float:
    # user, nice, system, idle, waiting for input or output, then interrupts and what other machines took.
    ticks = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS
