"""memory.high and memory.min beside a kubelet with its gate MemoryQoS, through the whole agent.

The values of the kubelet are those of its source (kuberuntime_container_linux.go, helpers_linux.go and
qos_container_manager_linux.go of Kubernetes 1.35): what a container requests is memory.min of it, of its pod and of the
QoS classes, and memory.high is nine tenths of the way from there to its limit. The gate needs version 2 of cgroups.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from koordinator.node.kernel_files import UNLIMITED
from tests.koordlet.node_under_test import GIB, POD_FOLDER, NodeUnderTest

CLASSES = ("kubepods", "kubepods/burstable")
CONTAINER = f"{POD_FOLDER}/c0"
REQUEST = 8 * GIB
HIGH = REQUEST + 6 * GIB
"""Of a container without a limit, on a node of 16 GiB, but for a part of the way that is easier to read."""
OF_KUBELET = {
    **{f"{folder}/memory.min": str(REQUEST) for folder in (*CLASSES, POD_FOLDER, CONTAINER)},
    f"{CONTAINER}/memory.high": str(HIGH),
}
PROTECTED = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 0, "throttlingPercent": 25}


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    made = NodeUnderTest(tmp_path)
    made.gates = ("CgroupReconcile",)
    made.kubelet_configuration |= {"featureGates": {"MemoryQoS": True}, "memoryThrottlingFactor": 0.9}
    for folder in (*CLASSES, "kubepods/besteffort", POD_FOLDER, CONTAINER):
        for name, value in (("memory.min", "0"), ("memory.low", "0"), ("memory.high", "max")):
            shown = OF_KUBELET.get(f"{folder}/{name}", value)
            made.machine.write(f"/sys/fs/cgroup/{folder}/{name}", f"{shown}\n")
    return made


def _play(node: NodeUnderTest, *policies: dict[str, Any]) -> list[dict[str, str]]:
    """What the files that the kubelet has written show after each of the policies of LS pods."""
    shown: list[dict[str, str]] = []

    async def run() -> None:
        for policy in policies:
            node.show_slo({"resourceQOSStrategy": {"lsClass": {"memoryQOS": policy}}})
            node.kubelet_is_up = True
            async with node.running():
                await node.pass_seconds(10)
            shown.append(_shown(node))

    asyncio.run(run())
    return shown


def _shown(node: NodeUnderTest) -> dict[str, str]:
    return {path: (node.machine.root / "sys/fs/cgroup" / path).read_text().strip() for path in OF_KUBELET}


def test_what_the_kubelet_has_given_stays_where_memory_qos_is_off(node: NodeUnderTest) -> None:
    assert _play(node, {"enable": False}) == [OF_KUBELET]


def test_where_memory_qos_is_switched_off_what_the_kubelet_had_given_returns(node: NodeUnderTest) -> None:
    """Each policy meets an agent that has been started anew."""
    on, off = _play(node, PROTECTED, {"enable": False})
    assert on == {
        **{f"{folder}/memory.min": str(REQUEST) for folder in CLASSES},
        **{f"{folder}/memory.min": str(REQUEST // 2) for folder in (POD_FOLDER, CONTAINER)},
        f"{CONTAINER}/memory.high": str(REQUEST + 2 * GIB),
    }
    assert off == OF_KUBELET


def test_what_koordlet_does_not_throttle_the_kubelet_throttles(node: NodeUnderTest) -> None:
    (shown,) = _play(node, PROTECTED | {"throttlingPercent": 0})
    assert shown[f"{CONTAINER}/memory.high"] == str(HIGH)


def test_without_the_gate_what_is_there_is_no_value_of_the_kubelet(node: NodeUnderTest) -> None:
    """An earlier agent may have left it."""
    node.kubelet_configuration["featureGates"]["MemoryQoS"] = False
    (shown,) = _play(node, {"enable": False})
    # The kernel shows as "max" what these files keep as it was written.
    assert (shown[f"{CONTAINER}/memory.high"], shown[f"{CONTAINER}/memory.min"]) == (str(UNLIMITED), "0")
