"""A CPU that goes offline and returns, on version 1 of cgroups, through the whole agent.

The kernel takes an offline CPU out of every cpuset, and gives it back to the root alone. tests/real/
test_cpu_suppress_cgroup1.py shows the same on a real kernel.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.node.kernel_writer import RefusedWriteError
from tests.koordlet.node_under_test import NodeUnderTest

CPUS = 4
_ALL = f"0-{CPUS - 1}"
_ABOVE = ("", "kubepods", "kubepods/burstable", "kubepods/besteffort")
_PODS = {
    "shop": "kubepods/burstable/poduid-shop",
    "bank": "kubepods/poduid-bank",
    "batch": "kubepods/besteffort/poduid-batch",
}
FOLDERS = (*_ABOVE, *_PODS.values(), *(f"{folder}/{name}" for name, folder in _PODS.items()))
NOTICED = 70
"""Seconds: the CPUs of a node are read once a minute."""
OFF: dict[str, Any] = {"enable": False}
SUPPRESSED: dict[str, Any] = {"enable": True, "cpuSuppressThresholdPercent": 50, "cpuSuppressPolicy": "cpuset"}


class CpusetFiles(SimulatedFiles):
    """What the kernel of version 1 makes of ``cpuset.cpus``: no child has more than its parent."""

    def __init__(self, cpusets: Path) -> None:
        super().__init__()
        self._cpusets = cpusets

    def write(self, path: str, content: str) -> None:
        file = Path(path)
        if file.name == "cpuset.cpus" and file.is_relative_to(self._cpusets):
            wanted = parse_cpu_list(content.strip())
            if not wanted <= _cpus_of(file.parent.parent):
                raise RefusedWriteError(path, content, OSError(errno.EACCES, os.strerror(errno.EACCES)))
            if any(not _cpus_of(child) <= wanted for child in file.parent.iterdir() if child.is_dir()):
                raise RefusedWriteError(path, content, OSError(errno.EBUSY, os.strerror(errno.EBUSY)))
            content = f"{format_cpu_list(wanted)}\n"
        super().write(path, content)

    def take_offline(self, cpu: int) -> None:
        for file in self._cpusets.rglob("cpuset.cpus"):
            file.write_text(f"{format_cpu_list(_cpus_of(file.parent) - {cpu})}\n")

    def bring_online(self, cpu: int) -> None:
        (self._cpusets / "cpuset.cpus").write_text(f"{format_cpu_list(_cpus_of(self._cpusets) | {cpu})}\n")


def _cpus_of(folder: Path) -> frozenset[int]:
    return parse_cpu_list((folder / "cpuset.cpus").read_text().strip())


def _pod(name: str, qos: str, kubernetes_qos: str) -> dict[str, Any]:
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


def pods() -> list[dict[str, Any]]:
    """An LS pod, one of no class of ours and a best-effort pod."""
    return [
        _pod("shop", "LS", "Burstable"),
        _pod("bank", "", "Guaranteed"),
        _pod("batch", "BE", "BestEffort"),
    ]


class Node(NodeUnderTest):
    """A node on version 1, and a CPU that can be taken offline."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pod_is_there = False
        self.pods = pods()
        self.add_capacity()
        self.machine.write_numa_memory(0, 16 << 20)
        (root / "sys/fs/cgroup/cgroup.controllers").unlink()
        self.cpusets = root / "sys/fs/cgroup/cpuset"
        for folder in FOLDERS:
            self.machine.write(f"/sys/fs/cgroup/cpuset/{folder}/cpuset.cpus", f"{_ALL}\n")
            self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_quota_us", "-1\n")
            self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_period_us", "100000\n")
        self.cpuset_files = self.kernel_files = CpusetFiles(self.cpusets)

    def take_offline(self, cpu: int) -> None:
        """The one with the highest number."""
        self.machine.write("/sys/devices/system/cpu/online", f"0-{cpu - 1}\n")
        (self.machine.root / f"sys/devices/system/cpu/cpu{cpu}").rename(self.machine.root / "away")
        self.cpuset_files.take_offline(cpu)

    def bring_online(self, cpu: int) -> None:
        (self.machine.root / "away").rename(self.machine.root / f"sys/devices/system/cpu/cpu{cpu}")
        self.machine.write("/sys/devices/system/cpu/online", f"0-{cpu}\n")
        self.cpuset_files.bring_online(cpu)

    @property
    def shown(self) -> dict[str, str]:
        return {folder: format_cpu_list(_cpus_of(self.cpusets / folder)) for folder in FOLDERS}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def _play(node: Node, policy: dict[str, Any], *, away: int = NOTICED) -> dict[str, str]:
    """What the cgroups have when a CPU was away for some seconds and has returned."""

    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": policy})
        async with node.running():
            await node.pass_seconds(10)
            node.take_offline(CPUS - 1)
            await node.pass_seconds(away)
            node.bring_online(CPUS - 1)
            await node.pass_seconds(NOTICED)

    asyncio.run(run())
    return node.shown


def test_a_cpu_that_returns_comes_back_to_every_pod(node: Node) -> None:
    assert set(_play(node, OFF).values()) == {_ALL}


def test_it_comes_back_though_it_was_away_for_less_time_than_the_node_is_looked_at(node: Node) -> None:
    assert set(_play(node, OFF, away=3).values()) == {_ALL}


def test_it_comes_back_though_it_was_offline_before_the_agent_started(node: Node) -> None:
    node.take_offline(CPUS - 1)

    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": OFF})
        async with node.running():
            await node.pass_seconds(NOTICED)
            node.bring_online(CPUS - 1)
            await node.pass_seconds(NOTICED)

    asyncio.run(run())
    assert set(node.shown.values()) == {_ALL}


def test_while_best_effort_pods_are_suppressed_all_others_get_it_back(node: Node) -> None:
    shown = _play(node, SUPPRESSED)
    best_effort = {folder for folder in FOLDERS if "besteffort" in folder}
    assert {shown[folder] for folder in best_effort} == {"0-1"}
    assert {shown[folder] for folder in FOLDERS if folder not in best_effort} == {_ALL}


def test_it_comes_back_to_best_effort_pods_whose_suppression_ends_later(node: Node) -> None:
    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": SUPPRESSED})
        async with node.running():
            await node.pass_seconds(10)
            node.take_offline(CPUS - 1)
            await node.pass_seconds(NOTICED)
            node.bring_online(CPUS - 1)
            await node.pass_seconds(300)
            node.show_slo({"resourceUsedThresholdWithBE": OFF})
            await node.pass_seconds(5)

    asyncio.run(run())
    assert set(node.shown.values()) == {_ALL}


def test_cpus_that_an_administrator_keeps_from_all_pods_stay_with_him(node: Node) -> None:
    for folder in sorted(FOLDERS, key=len, reverse=True):
        if folder:
            node.cpuset_files.write(str(node.cpusets / folder / "cpuset.cpus"), "1-3")
    shown = _play(node, OFF)
    assert {shown[folder] for folder in FOLDERS if folder} == {"1-3"}


def test_cpus_that_an_administrator_takes_from_all_pods_meanwhile_stay_with_him(node: Node) -> None:
    async def run() -> None:
        node.show_slo({"resourceUsedThresholdWithBE": OFF})
        node.closed_gates = ("CPUSetAllocator", "BECPUSuppress")
        async with node.running():
            await node.pass_seconds(10)
            for folder in sorted(FOLDERS, key=len, reverse=True):
                if folder:
                    node.cpuset_files.write(str(node.cpusets / folder / "cpuset.cpus"), "0-2")
            await node.pass_seconds(NOTICED)

    asyncio.run(run())
    assert {node.shown[folder] for folder in FOLDERS if folder} == {"0-2"}
