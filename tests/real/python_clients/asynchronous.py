"""What the end-to-end tests of kubernetes_asyncio do, without nodes: ``python asynchronous.py KUBECONFIG``.

It runs in an environment that has the package ``kubernetes_asyncio`` and prints a line for each step.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

from kubernetes_asyncio import client, config, watch  # type: ignore[import-not-found]
from kubernetes_asyncio.client.api_client import ApiClient  # type: ignore[import-not-found]
from kubernetes_asyncio.dynamic import DynamicClient  # type: ignore[import-not-found]


async def core(connection: Any, name: str) -> None:
    api = client.CoreV1Api(connection)
    await api.create_namespaced_config_map("default", {"metadata": {"name": name}, "data": {"a": "b"}})
    patched = await api.patch_namespaced_config_map(name, "default", {"data": {"c": "d"}})
    assert patched.data == {"a": "b", "c": "d"}
    found = await api.list_namespaced_config_map("default", limit=500)
    assert name in [each.metadata.name for each in found.items]
    await api.delete_namespaced_config_map(name, "default")


async def batch(connection: Any, name: str) -> None:
    api = client.BatchV1Api(connection)
    template = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    await api.create_namespaced_job("default", {"metadata": {"name": name}, "spec": {"template": template}})
    assert (await api.read_namespaced_job(name, "default")).metadata.name == name
    await api.delete_namespaced_job(name, "default", propagation_policy="Background")


async def watching(connection: Any, name: str) -> None:
    api = client.CoreV1Api(connection)
    start = (await api.list_namespace()).metadata.resource_version
    await api.create_namespace({"metadata": {"name": name}})
    async with watch.Watch().stream(api.list_namespace, resource_version=start, timeout_seconds=5) as stream:
        async for event in stream:
            if event["object"].metadata.name == name:
                assert event["type"] == "ADDED"
                break
    await api.delete_namespace(name)


async def dynamically(connection: Any, name: str) -> None:
    """A kind that is found by discovery."""
    api = await DynamicClient(connection)
    services = await api.resources.get(api_version="v1", kind="Service")
    body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80, "name": "http"}]}}
    created = await services.create(body=body, namespace="default")
    assert created.metadata.name == name
    await services.patch(
        body={"metadata": {"labels": {"a": "b"}}}, name=name, namespace="default",
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert (await services.get(name=name, namespace="default")).metadata.labels.a == "b"
    await services.delete(name=name, namespace="default")


async def main() -> None:
    await config.load_kube_config(sys.argv[1])
    async with ApiClient() as connection:
        for step in (core, batch, watching, dynamically):
            await step(connection, f"e2e-{uuid.uuid4().hex[:8]}")
            sys.stdout.write(f"{step.__name__}\n")


if __name__ == "__main__":
    asyncio.run(main())
