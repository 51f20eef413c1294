"""``koord explain`` against a running ``koord up``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.kube.event_series import EVENTS_V1
from tests.e2e.running import Up, eventually, koord_up, plain_pod
from tests.waiting import once


async def koord(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "koordinator.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"COLUMNS": "200", "PATH": "", "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]},
    )
    output, error = await process.communicate()
    return process.returncode, output.decode(), error.decode()


def too_large(name: str) -> dict[str, Any]:
    requests = {"cpu": "500", "memory": "1Gi"}
    return plain_pod(name, containers=[{"name": "main", "image": "example", "resources": {"requests": requests}}])


def is_rejected(pod: Pod) -> bool:
    return any(condition.reason == "Unschedulable" for condition in pod.status.conditions)


async def notes_about(up: Up, name: str) -> list[str]:
    client = await up.client()
    try:
        await once(client, EVENTS_V1, lambda event: event.metadata.name.startswith(f"{name}."), "default")
        body = json.loads(await client.raw("GET", EVENTS_V1.path("default")))
        return [item["note"] for item in body["items"] if item["regarding"]["name"] == name]
    finally:
        await client.close()


def test_a_pending_pod_and_a_node_are_explained(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, Any, Any, Pod, list[str], Any]:
        async with koord_up(tmp_path, "--only=apiserver,nodes,scheduler", "--nodes=3") as up:
            client = await up.client()
            try:
                await client.create(PODS, too_large("huge"), "default")
                pod = await eventually(client, "huge", is_rejected, "rejected")
                await client.create(PODS, plain_pod("web"), "default")
                web = await eventually(client, "web", lambda pod: bool(pod.spec.node_name), "bound")
            finally:
                await client.close()
            data = f"--data={tmp_path}"
            text = await koord("explain", "pod", "huge", data)
            assert text[0] == 0, text
            document = json.loads((await koord("explain", "pod", "default/huge", "-o=json", data))[1])
            placed = json.loads((await koord("explain", "pod", "web", "-o=json", data))[1])
            node = await koord("explain", "node", web.spec.node_name, "-o=json", data)
            assert node[0] == 0, node
            assert (await koord("explain", "node", web.spec.node_name, data))[0] == 0
            return text[1], document, placed, pod, await notes_about(up, "huge"), json.loads(node[1])

    text, document, placed, pod, notes, node = asyncio.run(scenario())
    condition = next(each for each in pod.status.conditions if each.type == "PodScheduled")
    assert document["message"] == condition.message == notes[0]
    assert document["message"] in " ".join(text.split())
    assert "(needs 500 cores, free" in text
    assert document["closestNodes"][0]["lacks"][0]["plugin"] == "NodeResourcesFit"
    assert placed["attempts"][-1]["result"] == "placed"
    assert placed["node"] == node["node"]
    assert {"cpu", "memory", "pods"} <= {resource["name"] for resource in node["resources"]}
    assert node["rejectedBy"][0]["examples"] == ["default/huge"]


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Path) -> None:
    status, output, error = asyncio.run(koord("explain", "pod", "web", f"--data={tmp_path}"))
    assert (status, output) == (1, "")
    assert error.startswith("koord: no scheduler found")
    assert len(error.splitlines()) == 1


def test_a_scheduler_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    status, _, error = asyncio.run(koord("explain", "pod", "web", "--scheduler=http://127.0.0.1:1"))
    assert status == 1
    assert error.startswith("koord: the scheduler at http://127.0.0.1:1 cannot be queried")
