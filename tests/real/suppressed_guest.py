"""CPU suppress of a whole agent on the kernel that it runs on, which has cgroup version 2, cpuset and eight CPUs.

Run as a program, as root, in a virtual machine; it prints what files and processes show in each phase. The cgroups are
as the kubelet makes them there, whose ``cpuset.cpus`` are empty; an online pod burns four CPUs while a phase says so.
The agent measures all that itself; its clock goes by the machine's, its kubelet and its API server are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.kinds import NODES
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, ContainerID
from koordinator.node.host import Host
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.node_under_test import NODE, NodeUnderTest

CPUS = 8
ALLOWED_CPUS = "3-7"
BATCH = ("batch-0", "batch-1")
_ONLINE = "online"
_BURNING = 4
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = "+cpu +memory +io"
_MOST_SECONDS = 60.0
_TICK = 0.5
_ENABLED: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True}}
"""All else is the default: 65 percent, by cpuset."""


class Guest:
    """A node whose kubepods may use ``kubepods_cpus`` only, where it is given, as systemd's AllowedCPUs has it."""

    def __init__(self, folder: Path, driver: CgroupDriver, kubepods_cpus: str) -> None:
        self.layout = CgroupLayout(str(_CGROUPS), CgroupVersion.V2, driver)
        self.node = NodeUnderTest(folder)
        self.node.machine.host = Host()
        self.node.kernel_files = MachineFiles()
        self.node.pod_is_there = False
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.burning: list[subprocess.Popen[bytes]] = []
        self.phases: dict[str, dict[str, Any]] = {}
        self._at = time.monotonic()
        for qos in ("Guaranteed", "Burstable", "BestEffort"):
            _make(self.layout.qos(qos), _CONTROLLERS)
        if kubepods_cpus:
            (_CGROUPS / self.layout.kubepods / "cpuset.cpus").write_text(kubepods_cpus)
        self.node.pods = [self._start(_ONLINE, "LS", "Burstable"), *(self._start(each, "BE") for each in BATCH)]
        amounts = {"cpu": str(CPUS), "memory": "1Gi", "pods": "110"}
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        status = {"addresses": addresses, "allocatable": amounts, "capacity": amounts}
        self.node.api.put(NODES, {"metadata": {"name": NODE}, "status": status})

    def _start(self, name: str, qos: str, kubernetes_qos: str = "BestEffort") -> dict[str, Any]:
        pod = self.layout.pod(f"uid-{name}", kubernetes_qos)
        _make(pod, _CONTROLLERS)
        folder = self.container(name)
        _make(folder)
        self.processes[name] = subprocess.Popen(["sleep", "infinity"])
        (_CGROUPS / folder / "cgroup.procs").write_text(str(self.processes[name].pid))
        return {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{name}",
                "labels": {"koordinator.sh/qosClass": qos},
            },
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
            "status": {
                "phase": "Running",
                "qosClass": kubernetes_qos,
                "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}"}],
            },
        }

    def container(self, name: str) -> str:
        pod = self.layout.pod(f"uid-{name}", "Burstable" if name == _ONLINE else "BestEffort")
        return self.layout.container(pod, ContainerID("containerd", name))

    def enable_cpuset(self) -> None:
        """For all cgroups of pods, as the kubelet and the runtime do."""
        for folder in (self.layout.kubepods, *map(self.layout.qos, ("Burstable", "BestEffort"))):
            (_CGROUPS / folder / "cgroup.subtree_control").write_text("+cpuset")
        for name in (_ONLINE, *BATCH):
            (_CGROUPS / Path(self.container(name)).parent / "cgroup.subtree_control").write_text("+cpuset")

    def burn(self) -> None:
        for _ in range(_BURNING):
            process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            (_CGROUPS / self.container(_ONLINE) / "cgroup.procs").write_text(str(process.pid))
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
        deadline = time.monotonic() + _MOST_SECONDS
        while time.monotonic() < deadline and not is_reached(self._counts()):
            await self._tick()
        self.phases[name] = self.shown()

    async def pass_seconds(self, name: str, seconds: int) -> None:
        """Of the agent's."""
        end = self._at + seconds
        while self._at < end:
            await self._tick()
        self.phases[name] = self.shown()

    async def _tick(self) -> None:
        await asyncio.sleep(_TICK)
        now = time.monotonic()
        passed, self._at = now - self._at, now
        await self.node.clock.advance(passed)

    def _counts(self) -> list[int]:
        return [len(parse_cpu_list(cpus)) for cpus in self.shown()["allowed"].values()]

    def empty(self) -> str:
        """What the kernel says to a list of no CPUs for a cgroup with a process and CPUs of its own."""
        try:
            (_CGROUPS / self.container(BATCH[0]) / "cpuset.cpus").write_text("\n")
        except OSError as error:
            return str(error.strerror)
        return ""

    def end(self) -> None:
        self.rest()
        for process in self.processes.values():
            process.kill()
            process.wait()
        for folder in sorted((_CGROUPS / self.layout.kubepods).rglob("*/"), reverse=True):
            folder.rmdir()
        (_CGROUPS / self.layout.kubepods).rmdir()


def _make(folder: str, controllers: str = "") -> None:
    (_CGROUPS / folder).mkdir(exist_ok=True)
    if controllers:
        (_CGROUPS / folder / "cgroup.subtree_control").write_text(controllers)


def _text(folder: str, name: str) -> str:
    try:
        return (_CGROUPS / folder / name).read_text().strip()
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
        await guest.pass_seconds("off", 5)
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
        await guest.pass_seconds("without the controller", 5)
        guest.enable_cpuset()
        await guest.phase("with the controller", _all_have(2))


def main() -> int:
    (_CGROUPS / "cgroup.subtree_control").write_text(f"{_CONTROLLERS} +cpuset")
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
