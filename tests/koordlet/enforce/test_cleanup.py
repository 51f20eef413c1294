"""koordlet --cleanup: files are as kubelet has them, whatever koordlet has enforced before it was killed."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.annotations import RESOURCE_STATUS
from koordinator.koordlet.enforce.cleanup import CleanupError
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, parse_container_id
from tests.koordlet.node_under_test import POD_FOLDER, NodeUnderTest, pod
from tests.node.traffic_control_kernel import TrafficControlKernel

BEST_EFFORT = "kubepods/besteffort"
CONTAINER = f"{POD_FOLDER}/c0"
KUBELET = {
    f"{BEST_EFFORT}/cpu.max": "max 100000",
    f"{POD_FOLDER}/cpu.max": "100000 100000",
    f"{CONTAINER}/cpu.max": "100000 100000",
    f"{POD_FOLDER}/cpu.max.burst": "0",
    f"{CONTAINER}/cpu.max.burst": "0",
    f"{POD_FOLDER}/memory.min": "0",
    f"{POD_FOLDER}/memory.low": "0",
    "kubepods/memory.min": "0",
    "kubepods/memory.low": "0",
}
SLO: dict[str, Any] = {
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65},
    "resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 60}}},
}


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    """A pod with a limit of one CPU, as kubelet has made it."""
    node = NodeUnderTest(tmp_path)
    node.gates = ("CgroupReconcile",)
    node.pods[0]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    for path, content in KUBELET.items():
        node.machine.write(f"/sys/fs/cgroup/{path}", f"{content}\n")
    node.add_capacity()
    node.show_slo(SLO)
    return node


def shown(node: NodeUnderTest) -> dict[str, str]:
    return {path: (node.machine.root / "sys/fs/cgroup" / path).read_text().strip() for path in KUBELET}


async def enforce(node: NodeUnderTest) -> None:
    async with node.running():
        await node.pass_seconds(20)


def test_all_is_as_kubelet_has_it(node: NodeUnderTest) -> None:
    async def story() -> int:
        await enforce(node)
        changed = {path for path, content in shown(node).items() if content != KUBELET[path]}
        assert {f"{BEST_EFFORT}/cpu.max", f"{CONTAINER}/cpu.max.burst", f"{POD_FOLDER}/memory.min"} <= changed
        return await node.clean_up()

    done = asyncio.run(story())
    assert shown(node) == KUBELET
    assert done >= len(KUBELET)


def test_a_config_map_that_makes_koordlet_observe_only_keeps_no_values_in_force(node: NodeUnderTest) -> None:
    """Its gates count all the same: what memory QoS has protected is taken back only where that is on."""
    node.gates, node.follows_configuration = (), True
    node.configure(feature_gates="CgroupReconcile=true")

    async def story() -> None:
        await enforce(node)
        assert shown(node)[f"{POD_FOLDER}/memory.min"] != "0"
        node.configure(feature_gates="CgroupReconcile=true", observe_only="true")
        await node.clean_up()

    asyncio.run(story())
    assert shown(node) == KUBELET


def test_limits_that_the_runtime_keeps_twice_are_taken_back_twice(node: NodeUnderTest) -> None:
    """crun does with systemd, in a folder below that of the container."""
    node.kubelet_configuration = {"cgroupDriver": "systemd"}
    status = node.pods[0]["status"]
    layout = CgroupLayout("", CgroupVersion.V2, CgroupDriver.SYSTEMD)
    pod = layout.pod(node.pods[0]["metadata"]["uid"], status["qosClass"])
    container = layout.container(pod, parse_container_id(status["containerStatuses"][0]["containerID"]))
    for folder in (pod, container, f"{container}/container"):
        for name, content in {"cpu.max": "100000 100000", "cpu.max.burst": "0"}.items():
            node.machine.write(f"/sys/fs/cgroup/{folder}/{name}", f"{content}\n")

    def burst() -> str:
        return (node.machine.root / f"sys/fs/cgroup/{container}/container/cpu.max.burst").read_text().strip()

    async def story() -> str:
        await enforce(node)
        enforced = burst()
        await node.clean_up()
        return enforced

    assert asyncio.run(story()) != "0"
    assert burst() == "0"


def test_pods_have_all_cpus_and_the_quotas_of_kubelet_again(node: NodeUnderTest) -> None:
    """Of a pod that the scheduler has given a CPU, which therefore had no quota, and of one that shares the others."""
    node.machine.write_numa_memory(0, 16 << 20)
    annotations = {RESOURCE_STATUS: '{"cpuset": "3"}'}
    node.pods.append(pod("db", "0000-db") | {"spec": node.pods[0]["spec"]})
    node.pods[1]["metadata"] |= {"labels": {"koordinator.sh/qosClass": "LSR"}, "annotations": annotations}
    node.pods[1]["status"]["containerStatuses"][0]["containerID"] = "containerd://c1"
    other = "kubepods/burstable/pod0000-db/c1"
    for folder in (CONTAINER, other):
        node.machine.write(f"/sys/fs/cgroup/{folder}/cpuset.cpus", "0-3\n")
        node.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "100000 100000\n")

    def has(folder: str, name: str) -> str:
        return (node.machine.root / "sys/fs/cgroup" / folder / name).read_text().strip()

    def cpus() -> list[str]:
        return [has(CONTAINER, "cpuset.cpus"), has(other, "cpuset.cpus"), has(other, "cpu.max").split()[0]]

    async def story() -> list[str]:
        await enforce(node)
        enforced = cpus()
        await node.clean_up()
        return enforced

    assert asyncio.run(story()) == ["0-2", "3", "max"]
    assert cpus() == ["0-3", "0-3", "100000"]


def test_a_node_on_which_nothing_was_enforced_stays_as_it_is(node: NodeUnderTest) -> None:
    asyncio.run(node.clean_up())
    assert shown(node) == KUBELET


def test_what_somebody_else_protects_is_left_alone(node: NodeUnderTest) -> None:
    """Kubelet may protect memory by itself; with its gate off, koordlet has not."""
    node.gates = ()
    node.machine.write(f"/sys/fs/cgroup/{POD_FOLDER}/memory.min", "4096\n")
    asyncio.run(node.clean_up())
    assert shown(node)[f"{POD_FOLDER}/memory.min"] == "4096"


def test_what_the_kernel_refuses_is_named(node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_WRONLY and str(path).endswith(f"{BEST_EFFORT}/cpu.max"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        return opened(path, flags, mode)

    async def story() -> None:
        await enforce(node)
        monkeypatch.setattr(os, "open", refuse)
        await node.clean_up()

    with pytest.raises(CleanupError, match=rf"1 files are not as kubelet has them: \S+{BEST_EFFORT}/cpu.max: refused"):
        asyncio.run(story())


def test_a_kubelet_that_is_away_is_not_waited_for_forever(node: NodeUnderTest) -> None:
    node.has_address = False
    with pytest.raises(CleanupError, match="have not responded within 60 s"):
        asyncio.run(node.clean_up())


def test_the_nodes_network_is_as_the_kernel_made_it(node: NodeUnderTest) -> None:
    kernel = TrafficControlKernel("eth0")
    node.traffic_control, node.gates = kernel.access, ("TCNetworkQoS", "AuditEvents")
    node.show_slo({"systemStrategy": {"totalNetworkBandwidth": "800M"}})
    node.pods[0]["status"]["podIP"] = "10.1.0.1"
    before = kernel.devices["eth0"]

    async def story() -> None:
        await enforce(node)
        assert kernel.classes()[1] == (0, 100_000_000, 100_000_000, 0)
        assert kernel.sets["ls_class"] == {"10.1.0.1"}
        await node.clean_up()

    asyncio.run(story())
    assert (kernel.devices["eth0"], kernel.sets, kernel.rules) == (before, {}, [])
    assert "TCNetworkQoS" in (node.machine.root / "audit/audit.log").read_text()
