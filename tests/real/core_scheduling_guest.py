"""Two pods that never rest, on the two threads of the machine's one core, of a whole agent that gives them cookies.

Run as a program, as root, in a virtual machine whose kernel has core scheduling; it prints how many CPUs both used
together in each phase, by the kernel's own count. Where they may not run at the same time, that is one at most.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from koordinator.node.core_scheduling import CoreScheduling, kernel_prctl
from tests.real.guest_pods import CGROUPS, GuestPods, tell

PODS = ("left", "right")
APART, TOGETHER, FREE = "each in a group of its own", "in one group", "without an agent"
_CPUS = 2
_SECONDS = 10.0
_CONTROLLERS = "+cpu +memory"
_MOST_SECONDS = 120.0
_SLO: dict[str, Any] = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "lsClass": {"cpuQOS": {"enable": True, "coreExpeller": False}},
    }
}


def _used(guest: GuestPods) -> int:
    """Microseconds of CPU time, of both pods."""
    stats = [(CGROUPS / guest.container(name) / "cpu.stat").read_text() for name in PODS]
    return sum(int(stat.split()[1]) for stat in stats)


async def _cpus(guest: GuestPods) -> float:
    used, started = _used(guest), time.monotonic()
    await guest.pass_seconds(_SECONDS)
    return (_used(guest) - used) / 1e6 / (time.monotonic() - started)


async def _story(guest: GuestPods) -> dict[str, float]:
    guest.node.gates, guest.node.prctl = ("CoreSched",), kernel_prctl
    for name in PODS:
        guest.start(name, "LS", ["sh", "-c", "while :; do :; done"])
    core = CoreScheduling()

    def cookies() -> set[int | None]:
        return {core.cookie(guest.processes[name].pid) for name in PODS}

    found = {FREE: await _cpus(guest)}
    guest.node.show_slo(_SLO)
    async with guest.node.running():
        assert await guest.pass_until(lambda: cookies().isdisjoint({0, None}), _MOST_SECONDS), cookies()
        assert len(cookies()) == 1
        found[TOGETHER] = await _cpus(guest)
        for name in PODS:
            guest.label(name, core_sched_policy="exclusive")
        assert await guest.pass_until(lambda: len(cookies()) == len(PODS), _MOST_SECONDS), cookies()
        found[APART] = await _cpus(guest)
    return found


if __name__ == "__main__":
    sys.exit(tell(_story, _CPUS, _CONTROLLERS))
