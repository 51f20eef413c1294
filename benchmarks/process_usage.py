"""What a process has used so far, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds (user and system, all threads) and the largest resident size in bytes."""

    cpu_seconds: float
    peak_bytes: int


def usage_of(process_id: int) -> Usage:
    """Read the figures of a running process. Raises OSError when it is gone."""
    folder = Path("/proc") / str(process_id)
    # The command name, in parentheses, may contain spaces; the numbers follow it.
    numbers = (folder / "stat").read_text().rpartition(")")[2].split()
    user, system = int(numbers[11]), int(numbers[12])
    peak = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return Usage((user + system) / _TICKS, int(peak.split()[1]) * 1024)
