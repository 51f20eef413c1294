"""The webhooks for the SLO ConfigMap and for nodes, asked by the embedded API over TLS."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.api.kinds import CONFIG_MAPS, NODES, Kind
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.manager import features
from tests.manager.test_on_embedded_api import NAMESPACE, installed, make_manager, running
from tests.manager.webhook.node.node_reviews import RATIO, RAW

NAME = "slo-controller-config"
GATES = (features.CONFIG_MAP_VALIDATING_WEBHOOK, features.NODE_VALIDATING_WEBHOOK, features.NODE_MUTATING_WEBHOOK)


def strategies(*groups: tuple[str, str]) -> dict[str, str]:
    """A group for each name and label."""
    nodes = [{"name": name, "nodeSelector": {"matchLabels": {label: "yes"}}} for name, label in groups]
    return {"resource-threshold-config": json.dumps({"nodeStrategies": nodes})}


async def write(client: KubeClient, data: dict[str, str]) -> None:
    labels = {"koordinator.sh/configmap-type": "slo-controller-config"}
    await client.create(CONFIG_MAPS, {"metadata": {"name": NAME, "labels": labels}, "data": data}, NAMESPACE)


async def refusal(client: KubeClient, kind: Kind[Any], name: str, patch: Document, namespace: str = "") -> str:
    """Why a patch was refused with code 400; empty if it was not."""
    try:
        await client.patch(kind, name, patch, PatchType.MERGE, namespace)
    except ApiStatusError as error:
        return error.message if error.is_bad_request else ""
    return ""


async def check_config_maps(client: KubeClient) -> None:
    with pytest.raises(ApiStatusError, match=r'___\{"reason":"ParseConfigFail"'):
        await write(client, {"colocation-config": "{"})
    await write(client, strategies(("a", "gpu"), ("b", "large")))
    overlap = {"data": strategies(("a", "gpu"), ("b", "gpu"))}
    assert "NodeStrategiesOverlap" in await refusal(client, CONFIG_MAPS, NAME, overlap, NAMESPACE)


async def check_labels(client: KubeClient) -> None:
    await client.create(NODES, {"metadata": {"name": "n1", "labels": {"gpu": "yes"}}})
    refused = ""
    while not refused:
        # Until the webhook has heard of the ConfigMap, it has nothing to refuse by.
        await client.patch(NODES, "n1", {"metadata": {"labels": {"large": None}}}, PatchType.MERGE)
        refused = await refusal(client, NODES, "n1", {"metadata": {"labels": {"large": "yes"}}})
    assert '"strategies":["a","b"],"exampleNodes":["n1"]' in refused


async def check_amplification(client: KubeClient) -> None:
    await client.create(NODES, {"metadata": {"name": "n2", "annotations": {RATIO: '{"cpu":1.5}'}}})

    async def report(**allocatable: str) -> tuple[dict[str, str], str | None]:
        status = {"status": {"allocatable": allocatable}}
        found = await client.patch(NODES, "n2", status, PatchType.MERGE, subresource="status")
        offered = {name: str(amount) for name, amount in found.status.allocatable.items()}
        return offered, found.metadata.annotations.get(RAW)

    assert await report(cpu="8") == ({"cpu": "12"}, '{"cpu":"8"}')
    assert await report(pods="110") == ({"cpu": "12", "pods": "110"}, '{"cpu":"8"}')
    assert await report(cpu="10") == ({"cpu": "15", "pods": "110"}, '{"cpu":"10"}')
    await client.patch(NODES, "n2", {"metadata": {"annotations": {RATIO: None}}}, PatchType.MERGE)
    assert await report(cpu="10") == ({"cpu": "10", "pods": "110"}, None)


def test_they_respond_to_the_api_server(tmp_path: Path) -> None:
    """One program for all of them, since it takes seconds to start."""

    async def scenario() -> None:
        async with (
            asyncio.timeout(60),
            installed(tmp_path) as client,
            running(make_manager(client, tmp_path / "certificates", "", *GATES)),
        ):
            await check_config_maps(client)
            await check_labels(client)
            await check_amplification(client)
            await client.delete(CONFIG_MAPS, NAME, NAMESPACE)

    asyncio.run(scenario())
