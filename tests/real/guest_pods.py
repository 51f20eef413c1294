"""A whole agent on the kernel that it runs on, with version 2 of cgroups, and pods whose cgroups are as the kubelet's.

For programs that run as root in a virtual machine. The agent measures and writes everything itself; its clock goes by
the machine's, its kubelet and its API server are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from koordinator.api.kinds import NODES
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, ContainerID
from koordinator.node.host import Host
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.node_under_test import NODE, NodeUnderTest

CGROUPS = Path("/sys/fs/cgroup")
_TICK = 0.5


class GuestPods:
    """Start pods, and let the agent's time go by; ``end`` leaves no pod, so that another such node may follow."""

    def __init__(self, folder: Path, cpus: int, controllers: str, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> None:
        """``controllers`` are those of the cgroups of pods, such as ``+cpu +memory``."""
        self.layout = CgroupLayout(str(CGROUPS), CgroupVersion.V2, driver)
        self.node = NodeUnderTest(folder)
        self.node.machine.host = Host()
        self.node.kernel_files = MachineFiles()
        self.node.pod_is_there = False
        self.node.pods = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._controllers = controllers
        self._at = time.monotonic()
        for qos in ("Guaranteed", "Burstable", "BestEffort"):
            _make_cgroup(self.layout.qos(qos), controllers)
        amounts = {"cpu": str(cpus), "memory": "1Gi", "pods": "110"}
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        status = {"addresses": addresses, "allocatable": amounts, "capacity": amounts}
        self.node.api.put(NODES, {"metadata": {"name": NODE}, "status": status})

    def start(
        self,
        name: str,
        qos: str,
        command: Sequence[str] = ("sleep", "infinity"),
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """A pod of one container with one process: best-effort ones are so for Kubernetes, too, others burstable."""
        kubernetes_qos = "BestEffort" if qos == "BE" else "Burstable"
        _make_cgroup(self.layout.pod(f"uid-{name}", kubernetes_qos), self._controllers)
        metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "annotations": dict(annotations or {})}
        metadata["labels"] = {"koordinator.sh/qosClass": qos}
        status = {
            "phase": "Running",
            "qosClass": kubernetes_qos,
            "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}"}],
        }
        spec = {"containers": [{"name": "c", "image": "i", "resources": {}}]}
        self.node.pods.append({"metadata": metadata, "spec": spec, "status": status})
        _make_cgroup(self.container(name))
        entered = f'echo 0 > "{CGROUPS}/{self.container(name)}/cgroup.procs" && exec "$@"'
        self.processes[name] = subprocess.Popen(["sh", "-c", entered, "sh", *command])

    def label(self, name: str, **labels: str) -> None:
        """The pod has these labels of Koordinator's, too, from now on."""
        (pod,) = [pod for pod in self.node.pods if pod["metadata"]["name"] == name]
        pod["metadata"]["labels"] |= {f"koordinator.sh/{key.replace('_', '-')}": text for key, text in labels.items()}

    def container(self, name: str) -> str:
        """The cgroup of a pod's container."""
        (pod,) = [pod for pod in self.node.pods if pod["metadata"]["name"] == name]
        folder = self.layout.pod(f"uid-{name}", pod["status"]["qosClass"])
        return self.layout.container(folder, ContainerID("containerd", name))

    async def pass_until(self, is_reached: Callable[[], bool], most_seconds: float) -> bool:
        """Let time go by until something is so; whether it is."""
        deadline = time.monotonic() + most_seconds
        while not is_reached():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            passed, self._at = now - self._at, now
            await self.node.clock.advance(passed)
        return True

    async def pass_seconds(self, seconds: float) -> None:
        """Of the agent's and the machine's."""
        end = time.monotonic() + seconds
        await self.pass_until(lambda: time.monotonic() >= end, seconds + _TICK)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for folder in sorted((CGROUPS / self.layout.kubepods).rglob("*/"), reverse=True):
            folder.rmdir()
        (CGROUPS / self.layout.kubepods).rmdir()


def _make_cgroup(folder: str, controllers: str = "") -> None:
    """Below the root, which has the controllers already."""
    (CGROUPS / folder).mkdir(exist_ok=True)
    if controllers:
        (CGROUPS / folder / "cgroup.subtree_control").write_text(controllers)


def tell(story: Callable[[GuestPods], Awaitable[Any]], cpus: int, controllers: str) -> int:
    """The main function of a program in a virtual machine: it prints as JSON what the story has found."""
    (CGROUPS / "cgroup.subtree_control").write_text(controllers)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        guest = GuestPods(Path(folder), cpus, controllers)
        ending.callback(guest.end)

        async def told() -> Any:
            return await story(guest)

        found = asyncio.run(told())
    print(json.dumps(found))  # noqa: T201
    return 0
