"""The nodes, node metrics and pods that scheduler benchmarks run on, written to any API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from typing import Any

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.timestamps import format_time
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

_CONCURRENCY = 64


def node(number: int, zones: int = 3) -> dict[str, Any]:
    name = f"node-{number:05d}"
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "256", "ephemeral-storage": "500Gi"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % zones}"},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def node_metric_status(number: int, now: datetime) -> dict[str, Any]:
    # A spread of load from 5 % to 35 % of the node, the same in every run.
    share = 5 + number * 7 % 31
    usage = {"cpu": f"{32_000 * share // 100}m", "memory": str(128 * 2**30 * share // 100)}
    return {"updateTime": format_time(now), "nodeMetric": {"nodeUsage": {"resources": usage}}}


def pod(name: str, *, scheduler_name: str, cpu: str = "500m", memory: str = "512Mi") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "labels": {"app": "equal"}},
        "spec": {"schedulerName": scheduler_name, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


async def together(work: Iterable[Awaitable[Any]], concurrency: int = _CONCURRENCY) -> None:
    """Await all of ``work``, at most ``concurrency`` at a time; the first failure ends it."""
    iterator = iter(work)

    async def worker() -> None:
        for item in iterator:
            await item

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())


async def install_definitions(client: Client) -> None:
    """The CustomResourceDefinitions, and the namespace of the scheduler's lease."""
    for definition in custom_resource_definitions():
        await _create(client, CUSTOM_RESOURCE_DEFINITIONS, definition)
    await _create(client, NAMESPACES, {"metadata": {"name": "koordinator-system"}})


async def create_nodes(client: Client, count: int, node_metrics: Kind[Any]) -> None:
    now = datetime.now(UTC)

    async def one(number: int) -> None:
        document = node(number)
        name = document["metadata"]["name"]
        await _create(client, NODES, document)
        await _create(client, node_metrics, {"metadata": {"name": name}, "spec": {}})
        status = {"status": node_metric_status(number, now)}
        await client.patch(node_metrics, name, status, PatchType.MERGE, subresource="status")

    await together(one(number) for number in range(count))


async def create_pods(client: Client, documents: Iterable[dict[str, Any]], namespace: str = "default") -> None:
    await together(_create(client, PODS, document, namespace) for document in documents)


async def _create(client: Client, kind: Kind[Any], document: dict[str, Any], namespace: str = "") -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    try:
        await client.create(kind, body, namespace)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
