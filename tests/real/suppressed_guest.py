"""CPU suppress of a whole agent on the kernel that it runs on, which has cgroup version 2, cpuset and eight CPUs.

Run as a program, as root, in a virtual machine; it prints what files and processes show in each phase. The cgroups are
as the kubelet makes them there, whose ``cpuset.cpus`` are empty; an online pod burns four CPUs while a phase says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.node.cgroup_layout import CgroupDriver
from tests.real.guest_pods import CGROUPS, GuestPods

CPUS = 8
ALLOWED_CPUS = "3-7"
BATCH = ("batch-0", "batch-1")
_ONLINE = "online"
_BURNING = 4
_CONTROLLERS = "+cpu +memory +io"
_MOST_SECONDS = 60.0
_ENABLED: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True}}
"""All else is the default: 65 percent, by cpuset."""


class Guest(GuestPods):
    """A node whose kubepods may use ``kubepods_cpus`` only, where it is given, as systemd's AllowedCPUs has it."""

    def __init__(self, folder: Path, driver: CgroupDriver, kubepods_cpus: str) -> None:
        super().__init__(folder, CPUS, _CONTROLLERS, driver)
        self.burning: list[subprocess.Popen[bytes]] = []
        self.phases: dict[str, dict[str, Any]] = {}
        if kubepods_cpus:
            (CGROUPS / self.layout.kubepods / "cpuset.cpus").write_text(kubepods_cpus)
        self.start(_ONLINE, "LS")
        for name in BATCH:
            self.start(name, "BE")

    def enable_cpuset(self) -> None:
        """For all cgroups of pods, as the kubelet and the runtime do."""
        for folder in (self.layout.kubepods, *map(self.layout.qos, ("Burstable", "BestEffort"))):
            (CGROUPS / folder / "cgroup.subtree_control").write_text("+cpuset")
        for name in (_ONLINE, *BATCH):
            (CGROUPS / Path(self.container(name)).parent / "cgroup.subtree_control").write_text("+cpuset")

    def burn(self) -> None:
        for _ in range(_BURNING):
            process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            (CGROUPS / self.container(_ONLINE) / "cgroup.procs").write_text(str(process.pid))
            self.burning.append(process)

    def rest(self) -> None:
        for process in self.burning:
            process.kill()
            process.wait()
        self.burning.clear()

    def shown(self) -> dict[str, Any]:
        """The own and the effective CPUs of the cgroups of best-effort pods, and those that their processes may use."""
        root = self.layout.qos("BestEffort")
        folders = [root, *(str(Path(self.container(name)).parent) for name in BATCH), *map(self.container, BATCH)]
        return {
            "own": {folder: _text(folder, "cpuset.cpus") for folder in folders},
            "effective": {folder: _text(folder, "cpuset.cpus.effective") for folder in folders},
            "allowed": {name: _allowed(self.processes[name].pid) for name in BATCH},
        }

    async def phase(self, name: str, is_reached: Callable[[list[int]], bool]) -> None:
        """Let time go by until the numbers of CPUs of the batch processes are as they should be."""
        await self.pass_until(lambda: is_reached(self._counts()), _MOST_SECONDS)
        self.phases[name] = self.shown()

    async def quiet_phase(self, name: str, seconds: int) -> None:
        await self.pass_seconds(seconds)
        self.phases[name] = self.shown()

    def _counts(self) -> list[int]:
        return [len(parse_cpu_list(cpus)) for cpus in self.shown()["allowed"].values()]

    def empty(self) -> str:
        """What the kernel says to a list of no CPUs for a cgroup with a process and CPUs of its own."""
        try:
            (CGROUPS / self.container(BATCH[0]) / "cpuset.cpus").write_text("\n")
        except OSError as error:
            return str(error.strerror)
        return ""

    def end(self) -> None:
        self.rest()
        super().end()


def _text(folder: str, name: str) -> str:
    try:
        return (CGROUPS / folder / name).read_text().strip()
    except FileNotFoundError:
        return "no such file"


def _allowed(pid: int) -> str:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "Cpus_allowed_list" in line]
    return line.split()[1]


def _all_have(count: int) -> Callable[[list[int]], bool]:
    return lambda counts: set(counts) == {count}


async def _story(guest: Guest, whole: int) -> None:
    """Quiet and off, suppressed, given back some, off."""
    guest.node.show_slo({})
    async with guest.node.running():
        await guest.quiet_phase("off", 5)
        guest.node.show_slo(_ENABLED)
        guest.burn()
        await guest.phase("busy", _all_have(2))
        guest.rest()
        await guest.phase("idle", lambda counts: min(counts) > 2)
        guest.node.show_slo({})
        await guest.phase("off again", _all_have(whole))


async def _story_without_cpuset(guest: Guest) -> None:
    """The controller is not switched on for best-effort pods at first."""
    guest.node.show_slo(_ENABLED)
    guest.burn()
    async with guest.node.running():
        await guest.quiet_phase("without the controller", 5)
        guest.enable_cpuset()
        await guest.phase("with the controller", _all_have(2))


def main() -> int:
    (CGROUPS / "cgroup.subtree_control").write_text(f"{_CONTROLLERS} +cpuset")
    nodes = {
        "cgroupfs": (CgroupDriver.CGROUPFS, ""),
        "systemd with AllowedCPUs": (CgroupDriver.SYSTEMD, ALLOWED_CPUS),
        "without cpuset": (CgroupDriver.CGROUPFS, ""),
    }
    found: dict[str, Any] = {}
    for name, (driver, kubepods_cpus) in nodes.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
            guest = Guest(Path(folder), driver, kubepods_cpus)
            ending.callback(guest.end)
            if name == "without cpuset":
                asyncio.run(_story_without_cpuset(guest))
            else:
                guest.enable_cpuset()
                asyncio.run(_story(guest, len(parse_cpu_list(kubepods_cpus)) or CPUS))
            found[name] = {**guest.phases, "emptied": guest.empty()}
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
