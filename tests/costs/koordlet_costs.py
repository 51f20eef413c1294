"""What koordlet spends in a second on a node: with few pods the mean of a minute, so that it has all that comes once a
minute, with many that of a few seconds, which shows what each pod costs.

The gates are the default ones, with a NodeSLO that enables CPU suppression; a third of the pods is best-effort. Or
everything is enforced that benchmarks/koordlet_cost.py enforces.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordinator.api.kinds import NODES
from tests.costs.call_counter import CallCounter
from tests.costs.figures import Cost
from tests.koordlet.all_strategies import GATES, node_slo_spec, qos_of, resources_of
from tests.koordlet.node_under_test import GIB, MEMORY_STAT, NODE, NodeUnderTest

_CPUS: Final = 8
_FOLDERS: Final = ("kubepods", "kubepods/burstable", "kubepods/besteffort")


@dataclass(frozen=True)
class Shape:
    pods: int
    warm_up: int
    """Seconds before it counts."""
    seconds: int
    enforces_all: bool = False


SHAPES: Final[dict[str, Shape]] = {
    "10 pods": Shape(10, 65, 60),
    "50 pods": Shape(50, 12, 8),
    "105 pods, everything enforced": Shape(105, 12, 8, enforces_all=True),
}


class BusyNode(NodeUnderTest):
    """Cgroups as version 2 shows them, of so many pods of one container."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self._cpu_micros = 0
        self._of_pods: list[str] = []
        super().__init__(root)
        self.pod_is_there = False
        make = _enforced_pod if shape.enforces_all else _plain_pod
        self.pods = [make(number) for number in range(shape.pods)]
        self._of_pods = [folder for pod in self.pods for folder in _folders(pod)]
        self.machine.write_cpus([(0, cpu // 2, 0) for cpu in range(_CPUS)])
        self.machine.write_numa_memory(0, 16 << 20)
        self.machine.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
        if shape.enforces_all:
            self.gates = GATES
        for folder in ("", *_FOLDERS, *self._of_pods):
            self._make(folder)
        limited = [pod for pod in self.pods if "cpu" in pod["spec"]["containers"][0]["resources"]["limits"]]
        for folder in [folder for pod in limited for folder in _folders(pod)] if shape.enforces_all else ():
            self.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "2000 100000\n")
        batch = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"} if shape.enforces_all else {}
        amounts = {"cpu": str(_CPUS), "memory": "16Gi", "pods": "110", **batch}
        document = self.api.document(NODES, NODE)
        status = {**document["status"], "capacity": amounts, "allocatable": amounts}
        self.api.put(NODES, {**document, "status": status})
        self.show_slo(node_slo_spec() if shape.enforces_all else {"resourceUsedThresholdWithBE": {"enable": True}})

    def _make(self, folder: str) -> None:
        files = {
            "cpu.max": "max 100000\n",
            "cpu.max.burst": "0\n",
            "cpu.weight": "100\n",
            "cpuset.cpus": "\n",
            "cpuset.cpus.effective": f"0-{_CPUS - 1}\n",
            "memory.max": "max\n",
            "cgroup.procs": "",
            "cgroup.threads": "",
            "memory.numa_stat": "anon N0=8192\nfile N0=0\nunevictable N0=0\n",
        }
        memory = {"memory.high": "max\n", "memory.min": "0\n", "memory.low": "0\n", "memory.oom.group": "0\n"}
        for name, content in (files | memory if self.gates else files).items():
            self.machine.write(f"/sys/fs/cgroup/{folder}/{name}", content)

    def write_files(self) -> None:
        self.write_machine_files()
        self._cpu_micros += 20_000
        stat = f"usage_usec {self._cpu_micros}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
        for folder in (*_FOLDERS, *self._of_pods):
            self.machine.write(f"/sys/fs/cgroup/{folder}/cpu.stat", stat)
            self.machine.write(f"/sys/fs/cgroup/{folder}/memory.stat", MEMORY_STAT.format(GIB >> 6, 4096))


def _plain_pod(number: int) -> dict[str, Any]:
    """Every third one is best-effort."""
    qos = "BE" if number % 3 == 0 else "LS"
    requests = {"kubernetes.io/batch-cpu": "100"} if qos == "BE" else {"cpu": "100m"}
    return _pod(number, qos, {"requests": requests, "limits": requests})


def _enforced_pod(number: int) -> dict[str, Any]:
    qos = qos_of(number)
    resources, annotations = resources_of(qos, "c")
    return _pod(number, qos, resources, annotations)


def _pod(number: int, qos: str, resources: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "shop",
            "uid": f"uid-{number}",
            "labels": {"koordinator.sh/qosClass": qos},
            "annotations": annotations or {},
        },
        "spec": {
            "priority": 5500 if qos == "BE" else 9500,
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        },
        "status": {
            "phase": "Running",
            "qosClass": {"BE": "BestEffort", "LS": "Burstable", "LSR": "Guaranteed"}[qos],
            "containerStatuses": [{"name": "c", "containerID": f"containerd://c{number}"}],
        },
    }


def _folders(pod: dict[str, Any]) -> tuple[str, str]:
    qos = pod["status"]["qosClass"]
    parent = "" if qos == "Guaranteed" else f"/{qos.lower()}"
    folder = f"kubepods{parent}/pod{pod['metadata']['uid']}"
    return folder, f"{folder}/{pod['status']['containerStatuses'][0]['containerID'].removeprefix('containerd://')}"


def cost(shape: Shape) -> Cost:
    """Of a second, the same in every run."""
    with tempfile.TemporaryDirectory(prefix="koordlet-costs-") as folder:
        return asyncio.run(_cost(BusyNode(Path(folder), shape), shape))


async def _cost(node: BusyNode, shape: Shape) -> Cost:
    counter = CallCounter()
    async with node.running():
        await node.pass_seconds(shape.warm_up)
        with counter.counting():
            await node.pass_seconds(shape.seconds)
    return Cost.of(counter.calls, shape.seconds)
