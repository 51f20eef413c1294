"""Moments of a real node, recorded for the whole agent to be played over again.

To record anew, on a node whose kubelet has a read-only port, as root:

    python -m tests.koordlet.recording KUBECONFIG NODE FILE
"""

from __future__ import annotations

import glob
import json
import subprocess
import sys
import time
import urllib.request
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
    with urllib.request.urlopen("http://127.0.0.1:10255/pods/") as answer:
        pods = json.load(answer)
    for pod in pods["items"]:
        pod["metadata"].pop("managedFields", None)
    moments: list[dict[str, str]] = []
    known: dict[str, str] = {}
    for _ in range(_MOMENTS):
        files = {path: Path(path).read_text() for path in _paths()}
        moments.append({path: content for path, content in files.items() if known.get(path) != content})
        known = files
        time.sleep(_SECONDS)
    status = {key: node["status"][key] for key in ("addresses", "daemonEndpoints", "allocatable")}
    return {
        "seconds": _SECONDS,
        "node": {"metadata": {"name": name}, "status": status},
        "pods": pods,
        "moments": moments,
    }


def _paths() -> list[str]:
    paths = [path for pattern in _MACHINE for path in glob.glob(f"/{pattern}")]
    for controller, names in _CGROUP.items():
        for folder in _FOLDERS:
            for file in names:
                paths += glob.glob(f"/sys/fs/cgroup/{controller}/{folder}/**/{file}", recursive=True)
    return paths


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(record(*sys.argv[1:3]), indent=1) + "\n")
