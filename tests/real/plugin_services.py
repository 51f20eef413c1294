"""A cluster in which every plugin of the chart's profile has something to show on its services."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api import annotations as keys
from koordinator.api import labels
from koordinator.api.kinds import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.manifests import custom_resource_definitions
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.real_world.broken_documents import device_document, topology_document

NODE: Final = "full"
_CPUS: Final = 8
_GANGS: Final = 4
_MEMBERS: Final = 2
_GPU: Final = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
_DEVICE: Final = {**_GPU, "koordinator.sh/gpu-memory": "16Gi"}
_CHART: Final = Path(__file__).parents[1] / "scheduler/configuration/chart_profile.yaml"
CHART_PROFILE: Final[Mapping[str, Any]] = yaml.safe_load(_CHART.read_text())["profiles"][0]
_BASE: Final = "/apis/v1/plugins"
PATHS: Final = (
    f"{_BASE}/Coscheduling/gangs",
    f"{_BASE}/Coscheduling/gang/default/bound",
    f"{_BASE}/Coscheduling/gang/default/waiting",
    f"{_BASE}/Coscheduling/gang/default/annotated",
    f"{_BASE}/Coscheduling/gang/default/undeclared",
    f"{_BASE}/Coscheduling/gang/default/nobody",
    f"{_BASE}/DeviceShare/nodeDeviceSummaries",
    f"{_BASE}/DeviceShare/nodeDeviceSummaries/{NODE}",
    f"{_BASE}/DeviceShare/nodeDeviceSummaries/nowhere",
    f"{_BASE}/ElasticQuota/quotas",
    f"{_BASE}/ElasticQuota/quotas/team",
    f"{_BASE}/ElasticQuota/quotas/team?includePods=true",
    f"{_BASE}/ElasticQuota/quotas/nobody",
    f"{_BASE}/NodeNUMAResource/nodes/{NODE}",
    f"{_BASE}/NodeNUMAResource/nodes/nowhere",
    f"{_BASE}/Reservation/nodeReservations/{NODE}",
    f"{_BASE}/Reservation/nodeReservations/nowhere",
    f"{_BASE}/Reservation/reservationSelectorIndex",
    f"{_BASE}/Reservation/reservationSelectorIndex?detail=true",
)


async def build(client: KubeClient) -> None:
    for document in custom_resource_definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
    await _create_node(client)
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 4} for cpu in range(_CPUS)]
    topology = topology_document("4", {keys.CPU_TOPOLOGY: json.dumps({"detail": detail})}, ["node-0", "node-1"])
    await create(client, NODE_RESOURCE_TOPOLOGIES, _named({**topology, "topologyPolicies": ["None"]}))
    await create(client, DEVICES, _named(device_document(resources=_DEVICE)))
    size = {"cpu": "2", "memory": "2Gi"}
    await create(client, ELASTIC_QUOTAS, {"metadata": {"name": "team"}, "spec": {"min": size, "max": size}}, "default")
    for name in ("bound", "waiting"):
        await create(client, POD_GROUPS, {"metadata": {"name": name}, "spec": {"minMember": _MEMBERS}}, "default")
    template = {"spec": pod("", {"cpu": "1", "memory": "1Gi"})["spec"]}
    owners = [{"labelSelector": {"matchLabels": {"own": "it"}}}]
    spec = {"template": template, "owners": owners, "allocateOnce": False, "ttl": "24h"}
    reserved = await create(client, RESERVATIONS, {"metadata": {"name": "kept"}, "spec": spec})
    status = {"phase": "Available", "nodeName": NODE, "allocatable": {"cpu": "1", "memory": "1Gi"}}
    await client.patch(RESERVATIONS, "kept", {"status": status}, PatchType.MERGE, subresource="status")
    for document in _pods(reserved.metadata.uid):
        await create(client, PODS, document, "default")


def _pods(reservation_uid: str) -> list[dict[str, Any]]:
    device = {"gpu": [{"minor": 0, "resources": _DEVICE}]}
    owned = {"name": "kept", "uid": reservation_uid}
    small = {"cpu": "500m", "memory": "100Mi"}
    incomplete = {keys.GANG_NAME: "annotated", keys.GANG_MIN_AVAILABLE: "3"}
    return [
        *(pod(f"bound-{number}", small, NODE, labels={labels.POD_GROUP: "bound"}) for number in range(_MEMBERS)),
        pod("waiting-0", small, labels={labels.POD_GROUP: "waiting"}),
        pod("annotated-0", small, annotations=incomplete),
        pod("undeclared-0", small, labels={labels.POD_GROUP: "undeclared"}),
        pod("of-team", small, NODE, labels={labels.QUOTA_NAME: "team"}),
        pod("device", {**small, **_GPU}, NODE, annotations={keys.DEVICE_ALLOCATED: json.dumps(device)}),
        pod(
            "cpus",
            {"cpu": "2", "memory": "100Mi"},
            NODE,
            labels={labels.QOS_CLASS: "LSR"},
            annotations={keys.RESOURCE_STATUS: json.dumps({"cpuset": "0-1"})},
        ),
        pod(
            "owner",
            small,
            NODE,
            labels={"own": "it"},
            annotations={keys.RESERVATION_ALLOCATED: json.dumps(owned)},
        ),
    ]


def pod(name: str, requests: Mapping[str, str], node: str = "", *, port: int = 0, **metadata: Any) -> dict[str, Any]:
    resources = {"requests": dict(requests), "limits": dict(requests)}
    container: dict[str, Any] = {"name": "main", "image": "x", "resources": resources}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    spec: dict[str, Any] = {"schedulerName": "koord-scheduler", "containers": [container]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


async def touch(client: KubeClient) -> None:
    """Change the pods that the original forgets if it sees them before its Reservations and topologies."""
    for name in ("owner", "cpus"):
        change = {"metadata": {"annotations": {"touched": str(time.monotonic_ns())}}}
        await client.patch(PODS, name, change, PatchType.MERGE, "default")


def is_shown(documents: Mapping[str, tuple[int, str, Any]]) -> bool:
    """Whether the program leads, and has seen all that ``build`` has made."""
    gangs, gang, devices, numa, reservations = (
        documents[f"{_BASE}/{path}"]
        for path in (
            "Coscheduling/gangs",
            "Coscheduling/gang/default/bound",
            "DeviceShare/nodeDeviceSummaries",
            f"NodeNUMAResource/nodes/{NODE}",
            f"Reservation/nodeReservations/{NODE}",
        )
    )
    if any(each[0] != HTTPStatus.OK for each in (gangs, gang, devices, numa, reservations)):
        return False
    (allocated,) = [each.get("allocateSet") for each in devices[2].values()] or [None]
    users = [each.get("assignedPods") for each in reservations[2].get("items", ())]
    seen = len(gangs[2]) == _GANGS and len(gang[2]["boundChildren"]) == _MEMBERS
    return seen and bool(allocated) and bool(numa[2].get("allocatedPods")) and users != [] and all(users)


async def _create_node(client: KubeClient) -> None:
    amounts = {"cpu": str(_CPUS), "memory": "32Gi", "pods": "20", **_DEVICE}
    await client.create(NODES, {"metadata": {"name": NODE}})
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await client.patch(NODES, NODE, status, PatchType.MERGE, subresource="status")


def _named(document: Mapping[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "name": NODE}}


async def create(client: KubeClient, kind: Kind[Any], document: dict[str, Any], namespace: str = "") -> Any:
    """Create an object as soon as the server serves its kind."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.create(kind, document, namespace)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                await asyncio.sleep(0.1)
