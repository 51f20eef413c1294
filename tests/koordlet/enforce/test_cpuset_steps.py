"""Step after step of policy on version 2 of cgroups, through the whole agent: which CPUs every cgroup may use.

The expected sets are worked out by hand from the specification: the node has eight CPUs on four cores, of which an LSR
pod has CPU 6 and an LSE pod CPU 7. The cgroups begin as the kubelet makes them, with an empty ``cpuset.cpus``, which
means the parent's. tests/real/test_cpu_suppress_cgroup2.py has the story of a best-effort pod on a real kernel, and
tests/real/test_cgroup2_steps.py what needs no cpuset.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.kinds import NODES
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.node.kernel_writer import RefusedWriteError
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


class CpusetFiles(SimulatedFiles):
    """What the kernel of version 2 makes of a write to ``cpuset.cpus``, seen on Linux 6.1."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def write(self, path: str, content: str) -> None:
        if path.endswith("/cpuset.cpus") and not content.strip():
            raise RefusedWriteError(path, content, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        super().write(path, content)
        if path.endswith("/cpuset.cpus"):
            self.show_effective(self._root, frozenset(range(8)))

    def show_effective(self, folder: Path, above: frozenset[int]) -> None:
        own = folder / "cpuset.cpus"
        effective = ((parse_cpu_list(own.read_text().strip()) & above) if own.exists() else above) or above
        (folder / "cpuset.cpus.effective").write_text(f"{format_cpu_list(effective)}\n")
        for child in sorted(folder.iterdir()):
            if child.is_dir():
                self.show_effective(child, effective)


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    made = NodeUnderTest(tmp_path)
    made.kernel_files = files = CpusetFiles(made.machine.root / "sys/fs/cgroup")
    made.pod_is_there = False
    made.machine.write_cpus([(0, cpu // 2, 0) for cpu in range(8)])
    made.machine.write_numa_memory(0, 16 << 20)
    containers = (f"{folder}/{name}" for name, folder in _FOLDERS.items())
    for folder in ("kubepods", "kubepods/burstable", _ROOT, *_FOLDERS.values(), *containers):
        made.machine.write(f"/sys/fs/cgroup/{folder}/cpuset.cpus", "\n")
        made.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "max 100000\n")
    files.show_effective(made.machine.root / "sys/fs/cgroup", frozenset(range(8)))
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


def _play(node: NodeUnderTest, *seconds_of: tuple[dict[str, Any], int]) -> None:
    """The LS pod and the best-effort pod under one policy after the other."""

    async def run() -> None:
        node.show_slo({})
        async with node.running():
            for threshold, seconds in seconds_of:
                node.show_slo({"resourceUsedThresholdWithBE": threshold})
                await node.pass_seconds(seconds)

    node.pods = [_PODS["ls"], _PODS["be"]]
    asyncio.run(run())


@pytest.mark.parametrize("kubepods", ["", "0-7"])
def test_without_suppression_an_empty_set_stays_empty(node: NodeUnderTest, kubepods: str) -> None:
    """As the kubelet has it: what is in force is what best-effort pods are to have."""
    if kubepods:
        node.kernel_files.write(f"{node.machine.host.cgroup}/kubepods/cpuset.cpus", kubepods)
    _play(node, ({"enable": False}, _SECONDS))
    shown = {folder: _shown(node, folder) for folder in (_ROOT, _FOLDERS["be"], f"{_FOLDERS['be']}/be")}
    assert set(shown.values()) == {""}, shown


def test_best_effort_pods_get_none_but_the_cpus_that_all_pods_have(node: NodeUnderTest) -> None:
    """To a cgroup with none of its parent's CPUs the kernel gives them all."""
    node.kernel_files.write(f"{node.machine.host.cgroup}/kubepods/cpuset.cpus", "4-7")
    _play(node, ({"enable": True, "cpuSuppressThresholdPercent": 30}, _SECONDS))
    assert {_shown(node, folder) for folder in (_ROOT, _FOLDERS["be"], f"{_FOLDERS['be']}/be")} == {"4-5"}
    effective = node.machine.root / f"sys/fs/cgroup/{_FOLDERS['be']}/be/cpuset.cpus.effective"
    assert effective.read_text().strip() == "4-5"


def test_a_pod_that_comes_while_others_are_suppressed_has_their_cpus_and_gets_more_with_them(
    node: NodeUnderTest,
) -> None:
    """Its cgroups are empty, so that they have what is above them, before and after."""
    late = f"{_ROOT}/poduid-late"

    def come() -> None:
        for folder in (late, f"{late}/late"):
            node.machine.write(f"/sys/fs/cgroup/{folder}/cpuset.cpus", "\n")
            node.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "max 100000\n")
        assert isinstance(node.kernel_files, CpusetFiles)
        node.kernel_files.show_effective(node.machine.root / "sys/fs/cgroup", frozenset(range(8)))

    def effective() -> str:
        return (node.machine.root / f"sys/fs/cgroup/{late}/late/cpuset.cpus.effective").read_text().strip()

    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 30}})
        async with node.running():
            await node.pass_seconds(_SECONDS)
            come()
            await node.pass_seconds(3)
            assert effective() == "0-1"
            node.show_slo({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 80}})
            await node.pass_seconds(_SECONDS)
            assert effective() == "0-4"
            node.show_slo({"resourceUsedThresholdWithBE": {"enable": False}})
            await node.pass_seconds(_SECONDS)
            assert effective() == "0-7"

    node.pods = [_PODS["ls"], _PODS["be"]]
    asyncio.run(run())


def test_where_the_controller_is_off_for_best_effort_pods_koordlet_waits_for_it(node: NodeUnderTest) -> None:
    folders = (_ROOT, _FOLDERS["be"], f"{_FOLDERS['be']}/be")
    cgroups = node.machine.root / "sys/fs/cgroup"
    for folder in folders:
        for name in ("cpuset.cpus", "cpuset.cpus.effective"):
            (cgroups / folder / name).unlink()

    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 30}})
        async with node.running():
            await node.pass_seconds(_SECONDS)
            for folder in folders:
                node.machine.write(f"/sys/fs/cgroup/{folder}/cpuset.cpus", "\n")
            assert isinstance(node.kernel_files, CpusetFiles)
            node.kernel_files.show_effective(cgroups, frozenset(range(8)))
            await node.pass_seconds(_SECONDS)
            assert {_shown(node, folder) for folder in folders} == {"0-1"}

    node.pods = [_PODS["ls"], _PODS["be"]]
    asyncio.run(run())
