"""Block I/O through the whole agent: disks of sysfs, a claim of the API, limits in files, events for authors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import NODE_SLOS, PERSISTENT_VOLUME_CLAIMS
from koordinator.koordlet.enforce.claim_volumes import ClaimVolumes
from koordinator.kube.errors import TransportError
from koordinator.kube.event_series import EVENTS_V1
from tests.in_memory_api import InMemoryApi
from tests.koordlet.node_under_test import NODE, POD_FOLDER, UID, NodeUnderTest

CLAIM = ("shop", "data")
BEST_EFFORT = "kubepods/besteffort"


def bind_claim(api: InMemoryApi) -> None:
    metadata = {"namespace": "shop", "name": "data"}
    api.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": {"volumeName": "pv-1"}})


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    """With one disk, on which the volume of the pod is mounted."""
    node = NodeUnderTest(tmp_path)
    node.gates = ("BlkIOReconcile",)
    node.machine.write("/sys/class/block/sda/dev", "8:0\n")
    node.machine.write("/sys/class/block/sda/device/model", "disk\n")
    point = f"{tmp_path}/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount"
    node.machine.write("/proc/1/mountinfo", f"36 35 8:0 / {point} rw - ext4 /dev/sda rw\n")
    for folder in (BEST_EFFORT, POD_FOLDER):
        node.machine.write(f"/sys/fs/cgroup/{folder}/io.max", "")
        node.machine.write(f"/sys/fs/cgroup/{folder}/io.weight", "default 100\n")
    return node


def limit_best_effort(node: NodeUnderTest, name: str, **config: int) -> None:
    blocks = [{"name": name, "type": "device", "ioCfg": config}]
    node.show_slo({"resourceQOSStrategy": {"beClass": {"blkioQOS": {"enable": True, "blocks": blocks}}}})


def content(node: NodeUnderTest, path: str) -> str:
    return (node.machine.root / f"sys/fs/cgroup/{path}").read_text()


def run(node: NodeUnderTest, seconds: int = 5) -> None:
    async def story() -> None:
        async with node.running():
            await node.pass_seconds(seconds)

    asyncio.run(story())


def test_best_effort_pods_are_limited(node: NodeUnderTest) -> None:
    limit_best_effort(node, "/dev/sda", ioWeightPercent=30)
    run(node)
    assert content(node, f"{BEST_EFFORT}/io.weight") == "8:0 30"


def test_the_volume_of_an_annotated_pod_is_limited(node: NodeUnderTest) -> None:
    bind_claim(node.api)
    node.show_slo({})
    (pod,) = node.pods
    pod["spec"]["volumes"] = [{"name": "store", "persistentVolumeClaim": {"claimName": "data"}}]
    blocks = [{"name": "store", "type": "podvolume", "ioCfg": {"ioWeightPercent": 7}}]
    pod["metadata"]["annotations"] = {"koordinator.sh/blkioQOS": json.dumps({"blocks": blocks})}
    run(node, 25)
    assert content(node, f"{POD_FOLDER}/io.weight") == "8:0 7"


def test_the_author_of_an_unknown_disk_is_reported_once(node: NodeUnderTest) -> None:
    limit_best_effort(node, "/dev/none", readBPS=1)
    run(node)
    events: list[dict[str, Any]] = node.api.all(EVENTS_V1)
    notes = [event["note"] for event in events if event["regarding"]["name"] == NODE]
    path = "resourceQOSStrategy.beClass.blkioQOS.blocks[0].name"
    assert notes == [f"{path}: the device '/dev/none' is on no disk of this node, or on more than one"]


def test_without_the_gate_nothing_is_written(node: NodeUnderTest) -> None:
    node.gates = ()
    limit_best_effort(node, "/dev/sda", ioWeightPercent=30)
    run(node)
    assert node.api.all(NODE_SLOS)
    assert content(node, f"{BEST_EFFORT}/io.weight") == "default 100\n"


def test_a_claim_is_requested_until_it_is_bound_and_then_kept() -> None:
    api = InMemoryApi()
    volumes = ClaimVolumes(api.client(), lambda: frozenset({CLAIM}))
    asyncio.run(volumes.refresh())
    assert volumes.names == {}
    bind_claim(api)
    asyncio.run(volumes.refresh())
    api.remove(PERSISTENT_VOLUME_CLAIMS, "data", "shop")
    asyncio.run(volumes.refresh())
    assert volumes.names == {CLAIM: "pv-1"}


def test_an_api_server_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    api = InMemoryApi()
    api.fault = lambda requested, done: TransportError("connection refused")
    volumes = ClaimVolumes(api.client(), lambda: frozenset({CLAIM}))
    asyncio.run(volumes.refresh())
    asyncio.run(volumes.refresh())
    assert caplog.text.count("the volume of the claim shop/data is not known: connection refused") == 1


def test_a_claim_that_nobody_needs_is_forgotten() -> None:
    api = InMemoryApi()
    bind_claim(api)
    needed = {CLAIM}
    volumes = ClaimVolumes(api.client(), lambda: frozenset(needed))
    asyncio.run(volumes.refresh())
    needed.clear()
    asyncio.run(volumes.refresh())
    assert volumes.names == {}
