"""Two pods that never rest, on the two threads of the machine's one core, of a whole agent that gives them cookies.

Run as a program, as root, in a virtual machine whose kernel has core scheduling. Each pod counts up in memory that both
share, and looks at the other one's counter after each step: while it runs without a pause, that one moves only if the
other pod runs at the same time. What is printed is how often it did, and how much CPU time both got together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from koordinator.node.core_scheduling import CoreScheduling, kernel_prctl
from tests.real.guest_pods import CGROUPS, GuestPods

PODS = ("left", "right")
Phase = dict[str, float]
"""``overlap``: in what share of its looks a pod saw the other one move; ``cpus``: used by both together."""
APART, TOGETHER, FREE = "each in a group of its own", "in one group", "without an agent"
_CPUS = 2
_LOOKS = 200_000
_CONTROLLERS = "+cpu +memory"
_MOST_SECONDS = 120.0
_PAGE = 4096
_SLO: dict[str, Any] = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "lsClass": {"cpuQOS": {"enable": True, "coreExpeller": False}},
    }
}
_RUN = """
import mmap, os, struct, sys
own, other = map(int, sys.argv[2:])
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0)
count, looks, moved, last = struct.Struct("q"), 0, 0, 0
while True:
    looks += 1
    count.pack_into(shared, own, looks)
    seen, = count.unpack_from(shared, other)
    if seen != last:
        moved, last = moved + 1, seen
        count.pack_into(shared, own + 8, moved)
"""


class _Counters:
    """In a file that both pods map: each has its steps, and behind them how often it saw the other one move."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_PAGE))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)

    def read(self) -> list[tuple[int, int]]:
        return [struct.unpack_from("qq", self._shared, 64 * number) for number in range(len(PODS))]


def _used(guest: GuestPods) -> int:
    """Microseconds of CPU time, of both pods."""
    stats = [(CGROUPS / guest.container(name) / "cpu.stat").read_text() for name in PODS]
    return sum(int(stat.split()[1]) for stat in stats)


async def _measured(guest: GuestPods, counters: _Counters) -> Phase:
    before, used, started = counters.read(), _used(guest), time.monotonic()

    def since() -> list[tuple[int, int]]:
        return [
            (looks - old_looks, moved - old_moved)
            for (looks, moved), (old_looks, old_moved) in zip(counters.read(), before, strict=True)
        ]

    assert await guest.pass_until(lambda: min(looks for looks, _ in since()) >= _LOOKS, _MOST_SECONDS), since()
    microseconds = 1e6 * (time.monotonic() - started)
    return {"overlap": max(moved / looks for looks, moved in since()), "cpus": (_used(guest) - used) / microseconds}


async def _story(guest: GuestPods, folder: Path) -> dict[str, Phase]:
    guest.node.gates, guest.node.prctl = ("CoreSched",), kernel_prctl
    path = folder / "counters"
    counters = _Counters(path)
    for number, name in enumerate(PODS):
        places = [str(64 * number), str(64 * (1 - number))]
        guest.start(name, "LS", [sys.executable, "-c", _RUN, str(path), *places])
    core = CoreScheduling()

    def cookies() -> set[int | None]:
        return {core.cookie(guest.processes[name].pid) for name in PODS}

    found = {FREE: await _measured(guest, counters)}
    guest.node.show_slo(_SLO)
    async with guest.node.running():
        assert await guest.pass_until(lambda: cookies().isdisjoint({0, None}), _MOST_SECONDS), cookies()
        assert len(cookies()) == 1
        found[TOGETHER] = await _measured(guest, counters)
        for name in PODS:
            guest.label(name, core_sched_policy="exclusive")
        assert await guest.pass_until(lambda: len(cookies()) == len(PODS), _MOST_SECONDS), cookies()
        found[APART] = await _measured(guest, counters)
    return found


def main() -> int:
    (CGROUPS / "cgroup.subtree_control").write_text(_CONTROLLERS)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        guest = GuestPods(Path(folder), _CPUS, _CONTROLLERS)
        ending.callback(guest.end)
        found = asyncio.run(_story(guest, Path(folder)))
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
