"""Takes the steps of the table on the kernel that it runs on, which has cgroup version 2, and prints what files show.

Run as a program, as root, in a virtual machine. The agent is whole; its clock goes as fast as it can, its kubelet and
its API server are in memory. Cgroups, processes, sysctls and what they show are the kernel's; what the node consists
of and how busy it is are files in a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from koordinator.api.kinds import NODES
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.node_under_test import NODE, NodeUnderTest
from tests.real.cgroup2_steps.node_pods import (
    DISK,
    FILES,
    LATE_POD,
    NODE_CPUS,
    NODE_MEMORY,
    PodCase,
    folders,
    kubelet_writes,
    pods,
)
from tests.real.cgroup2_steps.steps import BASE, RAISED_BY_HALF, STEPS, Step, merged

_CGROUPS = Path("/sys/fs/cgroup")
_SYSCTLS = ("min_free_kbytes", "watermark_scale_factor")
_OPEN = ("CgroupReconcile", "SystemConfig", "CPUNormalization", "OOMScoreAdj", "CoreSched", "BlkIOReconcile")
_CONTROLLERS = "+cpu +memory +io"
_BURNING = "system"
"""The pod whose container wants more than its limit: it has less than the one CPU of the machine."""
_LONGEST_BURN = 60
_FOREIGN = {
    "kubepods/burstable/poduid-ls/ls-main/memory.min": "4096",
    "kubepods/besteffort/poduid-be/cpu.weight": "1",
    "kubepods/besteffort/poduid-be/memory.max": "max",
    "kubepods/burstable/poduid-plain/plain-main/cpu.max": "12345 100000",
    "kubepods/besteffort/cpu.max": "max 100000",
    "kubepods/besteffort/memory.low": "0",
}
"""What somebody else writes over the agent's values."""


class Guest:
    def __init__(self, folder: Path) -> None:
        self.node = NodeUnderTest(folder)
        self.node.machine.host = replace(self.node.machine.host, cgroup=str(_CGROUPS))
        self.node.kernel_files = MachineFiles()
        self.node.pod_is_there = False
        self.node.gates = _OPEN
        self.node.kubelet = replace(self.node.kubelet, sync_interval=1)
        self.node.hooks = replace(self.node.hooks, reconcile_interval=2)
        self.pods = pods()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "proc/sys").symlink_to("/proc/sys")
        # The disk of the virtual machine, as sysfs shows one that has hardware behind it.
        self.node.machine.write(f"/sys/class/block/{DISK}/dev", Path(f"/sys/class/block/{DISK}/dev").read_text())
        self.node.machine.write(f"/sys/class/block/{DISK}/device/model", "disk\n")
        self.node.machine.write("/proc/1/mountinfo", "")
        for parent in folders([]):
            _make_parent(parent)
        for pod in self.pods:
            self._start(pod)
        amounts = {"cpu": str(NODE_CPUS), "memory": str(NODE_MEMORY), "pods": "110"}
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        self._node = {"metadata": {"name": NODE}, "status": {"addresses": addresses, "allocatable": amounts}}
        self._node["status"]["capacity"] = amounts  # type: ignore[index]

    def _start(self, pod: PodCase) -> None:
        """As a runtime and kubelet do: the pod's cgroups with what kubelet gives them, and a process in each."""
        _make_parent(pod.folder)
        for container in pod.containers:
            (_CGROUPS / pod.container_folder(container)).mkdir()
        for path, text in kubelet_writes(pod):
            (_CGROUPS / path).write_text(text)
        for container in pod.containers:
            self._enter(pod.container_folder(container), _idle_process())

    def _enter(self, folder: str, process: subprocess.Popen[bytes]) -> None:
        (_CGROUPS / folder / "cgroup.procs").write_text(str(process.pid))
        (self.node.machine.root / f"proc/{process.pid}").symlink_to(f"/proc/{process.pid}")
        self.processes[folder] = process

    def _end(self, pod: PodCase) -> None:
        for container in pod.containers:
            folder = pod.container_folder(container)
            process = self.processes.pop(folder)
            process.kill()
            process.wait()
            (_CGROUPS / folder).rmdir()
        (_CGROUPS / pod.folder).rmdir()

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def shown(self) -> dict[str, str]:
        """Path below the root of cgroups -> text; of a container also the score of its process."""
        found = {name: Path(f"/proc/sys/vm/{name}").read_text().strip() for name in _SYSCTLS}
        for folder in folders(self.pods):
            for name in FILES:
                found[f"{folder}/{name}"] = (_CGROUPS / folder / name).read_text().strip()
        for folder, process in self.processes.items():
            found[f"{folder}/oom_score_adj"] = Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()
        return found

    async def take(self, step: Step) -> dict[str, Any]:
        original = {pod.name: dict(pod.annotations) for pod in self.pods}
        self._happen(step.event)
        before = self.shown()
        if step.event == "others write":
            for path, text in _FOREIGN.items():
                (_CGROUPS / path).write_text(text)
        for pod in self.pods:
            pod.annotations.update(step.annotations.get(pod.name, {}))
        self.node.node_cores = step.cores
        annotations = {} if step.ratio is None else {"node.koordinator.sh/cpu-normalization-ratio": step.ratio}
        self.node.api.put(NODES, {**self._node, "metadata": {"name": NODE, "annotations": annotations}})
        self.node.show_slo(merged(BASE, step.slo))
        self.node.pods = [pod.document() for pod in self.pods]
        await self._pass(step)
        after = self.shown()
        for pod in self.pods:
            pod.annotations = original.get(pod.name, pod.annotations)
        return {"name": step.name, "before": before, "after": after}

    async def _pass(self, step: Step) -> None:
        if step.event not in ("burn", "throttle"):
            await self.node.pass_seconds(step.seconds)
            return
        # The kernel throttles by its own clock.
        last = ""
        for _ in range(_LONGEST_BURN):
            await self.node.pass_seconds(1)
            await asyncio.sleep(0.15)
            now = (_CGROUPS / f"{self.burning}/cpu.max").read_text()
            if now == last == f"{self.ceiling} 100000\n":
                break
            last = now

    @property
    def burning(self) -> str:
        pod = next(pod for pod in self.pods if pod.name == _BURNING)
        return pod.container_folder(pod.containers[0])

    @property
    def ceiling(self) -> int:
        pod = next(pod for pod in self.pods if pod.name == _BURNING)
        limit = pod.containers[0].amounts.cpu_limit or 0
        return limit * int(RAISED_BY_HALF["cfsQuotaBurstPercent"])

    def _happen(self, event: str) -> None:
        if event == "come":
            self.pods.append(LATE_POD)
            self._start(LATE_POD)
        elif event == "go":
            self.pods.remove(LATE_POD)
            self._end(LATE_POD)
        elif event in ("burn", "rest"):
            process = self.processes.pop(self.burning)
            process.kill()
            process.wait()
            burning = [sys.executable, "-c", "while True: pass"]
            self._enter(self.burning, subprocess.Popen(burning) if event == "burn" else _idle_process())

    async def run(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        self.node.api.put(NODES, self._node)
        self.node.show_slo(BASE)
        self.node.pods = [pod.document() for pod in self.pods]
        remaining = list(STEPS)
        while remaining:
            closed = remaining[0].closed
            self.node.closed_gates = tuple(closed)
            self.node.kubelet_is_up = True
            async with self.node.running():
                while remaining and remaining[0].closed == closed:
                    found.append(await self.take(remaining.pop(0)))
        return found


def _make_parent(folder: str) -> None:
    (_CGROUPS / folder).mkdir()
    (_CGROUPS / folder / "cgroup.subtree_control").write_text(_CONTROLLERS)


def _idle_process() -> subprocess.Popen[bytes]:
    """It enters a cgroup when it has nothing to do any more, so that an idle pod uses no CPU at all."""
    process = subprocess.Popen(["sleep", "infinity"])
    # Its name, then its state.
    while Path(f"/proc/{process.pid}/stat").read_text().split()[1:3] != ["(sleep)", "S"]:
        time.sleep(0.01)
    return process


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        (_CGROUPS / "cgroup.subtree_control").write_text(_CONTROLLERS)
        guest = Guest(Path(folder))
        ending.callback(guest.end)
        steps = asyncio.run(guest.run())
    print(json.dumps({"steps": steps}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
