"""An abnormal node under ``koord up``: batch pods stay away from it, and both the node and the pod say why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from koordinator.api.kinds import CONFIG_MAPS, NODES, PODS
from koordinator.api.node import Node
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from tests.e2e.running import eventually, koord_up
from tests.e2e.test_explain import is_rejected, koord
from tests.waiting import once

BATCH_CPU: Final = "kubernetes.io/batch-cpu"
FAULT: Final = "simulation.koordinator.sh/fault"
_PROGRAMS: Final = "--only=apiserver,nodes,manager,scheduler"
SCENARIO: Final = """
nodeGroups: [{name: node, count: 2}]
timing: {speed: 60}
"""
CONFIGURATION: Final = {
    "enable": True,
    "updateTimeThresholdSeconds": 1,
    "extensions": {"abnormalNodes": {"raiseAfterSeconds": 2, "clearAfterSeconds": 2}},
}


async def node_once(client: KubeClient, name: str, holds: Callable[[Node], bool]) -> Node:
    return await once(client, NODES, lambda node: node.metadata.name == name and holds(node))


def offers(node: Node) -> bool:
    amount = node.status.allocatable.get(BATCH_CPU)
    return amount is not None and amount.value > 1000


def is_emptied(node: Node) -> bool:
    marks = [each for each in node.status.conditions if each.type == "ColocationAbnormal" and each.status == "True"]
    return bool(marks) and BATCH_CPU not in node.status.allocatable


def batch_pod(name: str, **spec: Any) -> dict[str, Any]:
    amounts = {BATCH_CPU: "1000", "kubernetes.io/batch-memory": "1Gi"}
    container = {"name": "main", "image": "example", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": "koord-batch",
            "containers": [container],
            **spec,
        },
    }


async def say(client: KubeClient, fault: str | None) -> None:
    await client.patch(NODES, "node-0", {"metadata": {"annotations": {FAULT: fault}}}, PatchType.MERGE)


async def explained(data: Path, kind: str, name: str, *options: str) -> str:
    status, text, error = await koord("explain", kind, name, f"--data={data}", *options)
    assert status == 0, error
    return text


def lacking(document: dict[str, Any], name: str) -> list[str]:
    """What keeps a pod off a node."""
    return [
        detail
        for node in document["closestNodes"]
        if node["node"] == name
        for lack in node["lacks"]
        for detail in lack["details"]
    ]


def test_batch_pods_stay_away_from_an_abnormal_node_and_are_told_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "scenario.yaml").write_text(SCENARIO)

    async def scenario() -> None:
        async with koord_up(data, _PROGRAMS, "--nodes=2", f"--scenario={tmp_path / 'scenario.yaml'}") as up:
            client = await up.client()
            try:
                await story(client)
            finally:
                await client.close()

    async def story(client: KubeClient) -> None:
        configuration = {"data": {"colocation-config": json.dumps(CONFIGURATION)}}
        await client.patch(CONFIG_MAPS, "slo-controller-config", configuration, PatchType.MERGE, "koordinator-system")
        await node_once(client, "node-0", offers)
        await say(client, "usageAboveCapacity")
        node = await node_once(client, "node-0", is_emptied)
        (mark,) = (each for each in node.status.conditions if each.type == "ColocationAbnormal")

        await client.create(PODS, batch_pod("elsewhere"), "default")
        await client.create(PODS, batch_pod("here", nodeSelector={"kubernetes.io/hostname": "node-0"}), "default")
        placed = await eventually(client, "elsewhere", lambda pod: bool(pod.spec.node_name), "bound")
        assert placed.spec.node_name == "node-1"
        await eventually(client, "here", is_rejected, "rejected")
        document = json.loads(await explained(data, "pod", "here", "-o=json"))
        assert f"Insufficient {BATCH_CPU}" in document["message"]
        assert any(each.startswith(f"{BATCH_CPU}: short by 1000") for each in lacking(document, "node-0"))

        text = await explained(data, "node", "node-0")
        since = f"{mark.last_transition_time:%Y-%m-%dT%H:%M:%SZ}"
        said = "the node is said to use more than it has, for 2 seconds and more"
        assert f"abnormal since {since}: {said} (UsageAboveCapacity)" in text
        assert f"{BATCH_CPU} is not offered: {said}" in text
        document = json.loads(await explained(data, "node", "node-0", "-o=json"))
        assert document["overcommit"]["abnormal"] == [{"reason": "UsageAboveCapacity", "message": said}]
        assert document["overcommit"]["abnormalSince"] == since

        await say(client, None)
        await eventually(client, "here", lambda pod: bool(pod.spec.node_name), "bound once the node was well")

    asyncio.run(scenario())
