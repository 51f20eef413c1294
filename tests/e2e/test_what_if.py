"""``koord what-if`` against a running ``koord up``: it changes nothing, and what it says then happens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from koordinator.api.kinds import NODES, PODS
from tests.e2e.running import eventually, koord_up, plain_pod
from tests.e2e.test_explain import koord


def _pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "Pod", **plain_pod(name, containers=[container])}


def test_pods_go_where_the_what_if_said_and_it_leaves_the_cluster_alone(tmp_path: Path) -> None:
    pods = [_pod("first", "3"), _pod("second", "5"), _pod("huge", "500")]
    plan, file, data = tmp_path / "plan.yaml", tmp_path / "snapshot", tmp_path / "data"
    plan.write_text(yaml.safe_dump_all(pods))

    async def scenario() -> tuple[dict[str, Any], list[str], dict[str, str], dict[str, Any]]:
        async with koord_up(data, "--only=apiserver,nodes,scheduler", "--nodes=3") as up:
            arguments = ("apply", "-f", str(plan), f"--data={data}", "-o=json", f"--save={file}")
            status, output, error = await koord("what-if", *arguments)
            assert status == 0, error
            client = await up.client()
            try:
                before = [pod.metadata.name for pod in (await client.list(PODS)).items]
                nodes = await client.list(NODES)
                assert not any(node.spec.unschedulable for node in nodes.items)
                for each in pods:
                    await client.create(PODS, each, "default")
                placed = {}
                for name in ("first", "second"):
                    found = await eventually(client, name, lambda pod: bool(pod.spec.node_name), "bound")
                    placed[name] = found.spec.node_name
                huge = await eventually(client, "huge", lambda pod: bool(pod.status.conditions), "rejected")
            finally:
                await client.close()
            condition = next(each for each in huge.status.conditions if each.type == "PodScheduled")
            return json.loads(output), before, placed, {"message": condition.message}

    outcome, before, placed, condition = asyncio.run(scenario())
    assert before == []
    assert outcome["scheduler"]["configuration"] == "the koord-scheduler of koord up (/configz)"
    predicted = {each["pod"].rpartition("/")[2]: each for each in outcome["placed"]}
    # Nodes of three sizes: no two have the same score.
    assert {each["nodesWithTheSameScore"] for each in predicted.values()} == {1}
    assert {name: each["node"] for name, each in predicted.items()} == placed
    (group,) = outcome["pending"]
    assert group["message"] == condition["message"]
    # Without the cluster the snapshot says the same.
    status, output, error = asyncio.run(koord("what-if", "apply", "-f", str(plan), f"--snapshot={file}", "-o=json"))
    assert status == 0, error
    assert json.loads(output)["placed"] == outcome["placed"]
