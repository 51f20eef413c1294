"""Step after step of policy on version 2 of cgroups, through the whole agent: which CPUs every cgroup may use.

The expected sets are worked out by hand from the specification: the node has eight CPUs on four cores, of which an LSR
pod has CPU 6 and an LSE pod CPU 7. What needs no cpuset is in tests/real/test_cgroup2_steps.py, on a real kernel.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import NODES
from tests.koordlet.node_under_test import NODE, NodeUnderTest

_SECONDS = 12
"""Sets grow by one CPU in a second."""
_ROOT = "kubepods/besteffort"
_FOLDERS = {
    "lsr": "kubepods/poduid-lsr",
    "lse": "kubepods/poduid-lse",
    "ls": "kubepods/burstable/poduid-ls",
    "be": f"{_ROOT}/poduid-be",
}


@dataclass(frozen=True)
class Step:
    """``best_effort`` is what best-effort pods get, ``shared`` what LS pods share, as lists of CPUs."""

    name: str
    best_effort: str
    settings: dict[str, Any] = field(default_factory=dict)
    cores: float = 2.0
    """Of the node that are in use, by nobody that is best-effort."""
    shared: str = "0-5"
    absent: tuple[str, ...] = ()
    """Pods that are gone."""


STEPS = [
    Step("3.2 CPUs are left", "0-3"),
    Step("all that is not of others", "0-5", {"cpuSuppressThresholdPercent": 90}),
    Step("more than there are", "0-6", {"cpuSuppressThresholdPercent": 100}, cores=0.5),
    Step("less than two", "0-1", {"cpuSuppressThresholdPercent": 30}),
    Step("nothing at all", "0-1", {"cpuSuppressThresholdPercent": 10}),
    Step("an odd number", "0-2", {"cpuSuppressThresholdPercent": 40}, cores=0.5),
    Step("a floor", "0-4", {"cpuSuppressThresholdPercent": 10, "cpuSuppressMinPercent": 60}),
    Step("a value that cannot be", "0-4", {"cpuSuppressThresholdPercent": 1000}),
    Step("switched off", "0-6", {"enable": False}),
    Step("on again", "0-3"),
    Step("the other policy", "0-6", {"cpuSuppressPolicy": "cfsQuota"}),
    Step("a policy that does not exist", "0-3", {"cpuSuppressPolicy": "nonsense"}),
    Step("the LSR pod ends", "0-3", shared="0-6", absent=("lsr",)),
    Step("all that is left by the LSE pod", "0-5", {"cpuSuppressThresholdPercent": 90}, shared="0-6", absent=("lsr",)),
    Step("nobody has CPUs of its own", "0-7", {"enable": False}, shared="0-7", absent=("lsr", "lse")),
    Step("both are there again", "0-3"),
]


def _pod(name: str, qos: str, kubernetes_qos: str, cpuset: str = "") -> dict[str, Any]:
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpuset})} if cpuset else {}
    labels = {"koordinator.sh/qosClass": qos}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": status,
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
        "status": {
            "phase": "Running",
            "qosClass": kubernetes_qos,
            "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}"}],
        },
    }


_PODS = {
    "lsr": _pod("lsr", "LSR", "Guaranteed", "6"),
    "lse": _pod("lse", "LSE", "Guaranteed", "7"),
    "ls": _pod("ls", "LS", "Burstable"),
    "be": _pod("be", "BE", "BestEffort"),
}


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    made = NodeUnderTest(tmp_path)
    made.pod_is_there = False
    made.machine.write_cpus([(0, cpu // 2, 0) for cpu in range(8)])
    made.machine.write_numa_memory(0, 16 << 20)
    containers = (f"{folder}/{name}" for name, folder in _FOLDERS.items())
    for folder in ("kubepods", "kubepods/burstable", _ROOT, *_FOLDERS.values(), *containers):
        made.machine.write(f"/sys/fs/cgroup/{folder}/cpuset.cpus", "0-7\n")
        made.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "max 100000\n")
    amounts = {"cpu": "8", "memory": "16Gi"}
    document = made.api.document(NODES, NODE)
    made.api.put(NODES, {**document, "status": {**document["status"], "capacity": amounts, "allocatable": amounts}})
    return made


def _shown(node: NodeUnderTest, folder: str) -> str:
    return (node.machine.root / f"sys/fs/cgroup/{folder}/cpuset.cpus").read_text().strip()


def _wanted(step: Step) -> dict[str, str]:
    own = {"lsr": "6", "lse": "7", "ls": step.shared, "be": step.best_effort}
    containers = {f"{folder}/{name}": own[name] for name, folder in _FOLDERS.items() if name not in step.absent}
    return {_ROOT: step.best_effort, _FOLDERS["be"]: step.best_effort, **containers}


def test_every_step_leaves_the_cpus_that_the_specification_says(node: NodeUnderTest) -> None:
    wrong: dict[str, dict[str, tuple[str, str]]] = {}

    async def story() -> None:
        node.show_slo({})
        async with node.running():
            for step in STEPS:
                threshold = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset"}
                node.show_slo({"resourceUsedThresholdWithBE": threshold | step.settings})
                node.pods = [pod for name, pod in _PODS.items() if name not in step.absent]
                node.node_cores = step.cores
                await node.pass_seconds(_SECONDS)
                wanted = _wanted(step)
                found = {path: (text, shown) for path, text in wanted.items() if (shown := _shown(node, path)) != text}
                if found:
                    wrong[step.name] = found

    node.pods = list(_PODS.values())
    asyncio.run(story())
    assert wrong == {}
