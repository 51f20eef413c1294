"""Our own client and the embedded API understand each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koordinator.api.kinds import PODS
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import PatchType
from tests.cluster.embedded import pod


def test_a_pod_is_created_watched_patched_and_deleted(embedded_kubeconfig: Path) -> None:
    async def main() -> list[str]:
        client = await connect(ClientOptions(kubeconfig=str(embedded_kubeconfig)))
        try:
            listed = await client.list(PODS)
            await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod("p")}, "default")
            await client.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE, "default")
            await client.delete(PODS, "p", "default")
            seen: list[str] = []
            async for event in client.watch(PODS, resource_version=listed.resource_version):
                seen.append(event.type)
                if event.type == "DELETED":
                    break
            return seen
        finally:
            await client.close()

    assert asyncio.run(main()) == ["ADDED", "MODIFIED", "DELETED"]
