"""The nodes and node metrics that scheduler benchmarks run on, and how they and pods are written to any API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from typing import Any

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.api.timestamps import format_time
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

ZONES = 3
_CONCURRENCY = 64


def zone_of(number: int) -> str:
    """The zone of the node of this number."""
    return f"zone-{number % ZONES}"


def node(number: int) -> dict[str, Any]:
    name = f"node-{number:05d}"
    amounts = {
        "cpu": "32",
        "memory": "128Gi",
        "pods": "256",
        "ephemeral-storage": "500Gi",
        BATCH_CPU: "16000",
        BATCH_MEMORY: "64Gi",
    }
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone_of(number)},
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
        await create(client, CUSTOM_RESOURCE_DEFINITIONS, definition)
    await create_namespace(client, "koordinator-system")


async def create_namespace(client: Client, name: str) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": name}})


async def create_priority_class(client: Client, name: str, value: int) -> None:
    await create(client, PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


async def create_nodes(client: Client, count: int, node_metrics: Kind[Any]) -> None:
    now = datetime.now(UTC)

    async def one(number: int) -> None:
        document = node(number)
        name = document["metadata"]["name"]
        await create(client, NODES, document)
        await create(client, node_metrics, {"metadata": {"name": name}, "spec": {}})
        status = {"status": node_metric_status(number, now)}
        await client.patch(node_metrics, name, status, PatchType.MERGE, subresource="status")

    await together(one(number) for number in range(count))


async def create_pods(client: Client, documents: Iterable[dict[str, Any]], namespace: str = "default") -> None:
    await together(create(client, PODS, document, namespace) for document in documents)


async def create(client: Client, kind: Kind[Any], document: dict[str, Any], namespace: str = "") -> None:
    """Create an object; one that exists already is left as it is."""
    body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    try:
        await client.create(kind, body, namespace)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
