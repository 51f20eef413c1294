"""What the cgroups of a node's pods say: all their settings, of whatever controller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_NO_SETTING: Final = frozenset(
    """tasks cgroup.procs cgroup.threads cgroup.event_control cgroup.kill cgroup.freeze cgroup.pressure cpuacct.usage
    memory.force_empty memory.failcnt memory.max_usage_in_bytes memory.memsw.failcnt memory.memsw.max_usage_in_bytes
    memory.kmem.failcnt memory.kmem.max_usage_in_bytes memory.kmem.tcp.failcnt memory.kmem.tcp.max_usage_in_bytes
    memory.reclaim memory.peak memory.swap.peak memory.pressure cpu.pressure io.pressure irq.pressure
    blkio.reset_stats cpuset.memory_pressure pids.peak devices.allow devices.deny freezer.state""".split()  # noqa: SIM905
)
"""Files that can be written, and are counters or actions."""


def settings() -> dict[str, str]:
    """File below the root of cgroups -> what it says, of all groups of pods."""
    found = {}
    for top in sorted({*_ROOT.glob("kubepods*"), *_ROOT.glob("*/kubepods*")}):
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder, name)
                if name not in _NO_SETTING and path.stat().st_mode & 0o200:
                    text = _text(path)
                    if text is not None:
                        found[str(path.relative_to(_ROOT))] = text
    return found


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        # The kernel has the file and refuses to read it.
        return None


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """File -> what it said before and after, where that differs."""
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
