"""Moments of a real node, recorded for the whole agent to be played over again.

To record anew, on a node whose kubelet has a read-only port, as root:

    python -m tests.koordlet.recording KUBECONFIG NODE FILE

With cgroup version 2, on a kernel without a kubelet (such as a guest of user-mode Linux), as root; pods are
processes in cgroups that are named as kubelet and containerd name them:

    python -m tests.koordlet.recording FILE
"""

from __future__ import annotations

import glob
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SECONDS = 5
_MOMENTS = 7
_MACHINE = (
    "proc/stat",
    "proc/meminfo",
    "sys/bus/node/devices/node*/meminfo",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/*_list",
    "sys/devices/system/cpu/cpu[0-9]*/cache/index*/level",
    "sys/devices/system/cpu/cpu[0-9]*/cache/index*/type",
    "sys/devices/system/cpu/cpu[0-9]*/cache/index*/id",
    "sys/devices/system/cpu/cpu[0-9]*/cache/index*/shared_cpu_list",
)
_CGROUP = {
    "cpuacct": ("cpuacct.usage",),
    "cpu": ("cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "cpuset": ("cpuset.cpus",),
    "memory": ("memory.stat", "memory.numa_stat", "memory.usage_in_bytes"),
}
_FOLDERS = ("kubepods", "host-latency-sensitive")


@dataclass(frozen=True)
class Recording:
    """Files by path at each moment, those left out that are as before, and what kubelet and the API server said."""

    seconds: int
    node: dict[str, Any]
    pods: dict[str, Any]
    moments: list[dict[str, str]]

    @classmethod
    def read(cls, file: Path) -> Recording:
        return cls(**json.loads(file.read_text()))


def record(kubeconfig: str, name: str) -> dict[str, Any]:
    """Look at the machine a few times."""
    command = ["kubectl", "--kubeconfig", kubeconfig, "get", "node", name, "-o", "json"]
    node = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    with urllib.request.urlopen("http://127.0.0.1:10255/pods/") as response:
        pods = json.load(response)
    for pod in pods["items"]:
        pod["metadata"].pop("managedFields", None)
    status = {key: node["status"][key] for key in ("addresses", "daemonEndpoints", "allocatable")}
    return {
        "seconds": _SECONDS,
        "node": {"metadata": {"name": name}, "status": status},
        "pods": pods,
        "moments": _moments(_paths),
    }


def _moments(paths: Callable[[], list[str]]) -> list[dict[str, str]]:
    moments: list[dict[str, str]] = []
    known: dict[str, str] = {}
    for _ in range(_MOMENTS):
        files = {path: Path(path).read_text() for path in paths()}
        moments.append({path: content for path, content in files.items() if known.get(path) != content})
        known = files
        time.sleep(_SECONDS)
    return moments


def _machine_paths() -> list[str]:
    return [path for pattern in _MACHINE for path in glob.glob(f"/{pattern}")]


def _paths() -> list[str]:
    paths = _machine_paths()
    for controller, names in _CGROUP.items():
        for folder in _FOLDERS:
            for file in names:
                paths += glob.glob(f"/sys/fs/cgroup/{controller}/{folder}/**/{file}", recursive=True)
    return paths


_ROOT = Path("/sys/fs/cgroup")
_BUSY = "while :; do :; done"
_HOLDING_MEMORY = "x=$(head -c 8000000 /dev/zero | tr '\\0' x); while :; do sleep 1; done"


@dataclass(frozen=True)
class _Workload:
    """A process, and the pod that it stands for: none for a program beside Kubernetes."""

    folders: tuple[str, ...]
    command: str
    cpu_max: str = "max 100000"
    name: str = ""
    qos: str = ""
    koordinator_qos: str = ""

    @property
    def folder(self) -> Path:
        return _ROOT.joinpath(*self.folders)

    def pod(self) -> dict[str, Any]:
        uid, container = f"0000-{self.name}", f"c0{self.name}"
        resources = {"requests": {"cpu": "100m", "memory": "16Mi"}} if self.qos == "Burstable" else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "uid": uid,
                "labels": {"koordinator.sh/qosClass": self.koordinator_qos},
            },
            "spec": {"nodeName": "guest", "containers": [{"name": "c", "image": "i", "resources": resources}]},
            "status": {
                "phase": "Running",
                "qosClass": self.qos,
                "containerStatuses": [{"name": "c", "containerID": f"containerd://{container}"}],
            },
        }


def _pod_folders(name: str, qos: str) -> tuple[str, ...]:
    prefix = f"kubepods-{qos.lower()}"
    return "kubepods.slice", f"{prefix}.slice", f"{prefix}-pod0000_{name}.slice", f"cri-containerd-c0{name}.scope"


_WORKLOADS = (
    _Workload(_pod_folders("web", "Burstable"), _BUSY, "10000 100000", "web", "Burstable", "LS"),
    _Workload(_pod_folders("cache", "Burstable"), _HOLDING_MEMORY, name="cache", qos="Burstable", koordinator_qos="LS"),
    _Workload(_pod_folders("job", "BestEffort"), _BUSY, "30000 100000", "job", "BestEffort", "BE"),
    _Workload(("host-latency-sensitive", "nginx"), _BUSY, "5000 100000"),
)


def record_version_2() -> dict[str, Any]:
    """Look a few times at a machine on which these processes run."""
    running = [_start(workload) for workload in _WORKLOADS]
    try:
        time.sleep(_SECONDS)
        moments = _moments(_version_2_paths)
    finally:
        for process in running:
            process.kill()
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    allocatable = {"cpu": "1", "memory": "512Mi", "pods": "110"}
    return {
        "seconds": _SECONDS,
        "node": {"metadata": {"name": "guest"}, "status": {"addresses": [address], "allocatable": allocatable}},
        "pods": {"kind": "PodList", "items": [workload.pod() for workload in _WORKLOADS if workload.name]},
        "moments": moments,
    }


def _start(workload: _Workload) -> subprocess.Popen[bytes]:
    folder = _ROOT
    for name in workload.folders:
        (folder / "cgroup.subtree_control").write_text("+cpu +memory")
        folder = folder / name
        folder.mkdir(exist_ok=True)
    (folder / "cpu.max").write_text(workload.cpu_max)
    return subprocess.Popen(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; {workload.command}"])


def _version_2_paths() -> list[str]:
    names = ("cpu.stat", "cpu.max", "memory.stat", "memory.current")
    folders = {_ROOT.joinpath(*workload.folders[:depth]) for workload in _WORKLOADS for depth in range(1, 5)}
    paths = [f"{folder}/{name}" for folder in sorted(folders) for name in names]
    return [*_machine_paths(), str(_ROOT / "cgroup.controllers"), *paths]


if __name__ == "__main__":
    made = record(*sys.argv[1:3]) if len(sys.argv) == 4 else record_version_2()
    Path(sys.argv[-1]).write_text(json.dumps(made, indent=1) + "\n")
