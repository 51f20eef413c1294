"""The Service of the API server itself, and the objects that show the cluster IPs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from koordinator.cluster.server import ServerOptions
from tests.cluster.embedded import ApiClient, embedded_api

Document = dict[str, Any]
_SERVICES = "/api/v1/namespaces/default/services"
_ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
_MANAGED = {"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}


def _asked(question: Callable[[ApiClient], Awaitable[Any]], options: ServerOptions | None = None) -> Any:
    async def main() -> Any:
        async with embedded_api(options) as client:
            return await question(client)

    return asyncio.run(main())


async def _event(client: ApiClient, path: str, kind: str, name: str) -> Document:
    """The first one of its kind about an object."""
    async with client.watch(path) as events:
        async for event in events:
            if (event["type"], event["object"]["metadata"]["name"]) == (kind, name):
                found: Document = event["object"]
                return found
    raise AssertionError(f"no {kind} of {name}")


def test_the_server_is_found_by_a_service() -> None:
    async def question(client: ApiClient) -> Any:
        port = int(client.api.url.rpartition(":")[2])
        service = await client.get(f"{_SERVICES}/kubernetes")
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
        return (
            port,
            service,
            await client.get(slices),
            await client.get("/api/v1/namespaces/default/endpoints/kubernetes"),
        )

    port, service, found, endpoints = _asked(question)
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert service["spec"]["clusterIPs"] == ["10.96.0.1"]
    (of_service,) = service["spec"]["ports"]
    assert (of_service["port"], of_service["targetPort"]) == (443, port)
    assert (found["endpoints"][0]["addresses"], found["ports"][0]["port"]) == (["127.0.0.1"], port)
    (subset,) = endpoints["subsets"]
    assert (subset["addresses"], subset["ports"][0]["port"]) == ([{"ip": "127.0.0.1"}], port)


def test_it_follows_the_port_of_the_next_start(tmp_path: Path) -> None:
    async def question(client: ApiClient) -> Any:
        found = await client.get("/api/v1/namespaces/default/endpoints/kubernetes")
        return client.api.url.rpartition(":")[2] == str(found["subsets"][0]["ports"][0]["port"])

    assert [_asked(question, ServerOptions(data=tmp_path)) for _ in range(2)] == [True, True]


def test_the_range_of_cluster_ips_is_shown() -> None:
    found = _asked(lambda client: client.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes"))
    (condition,) = found["status"]["conditions"]
    assert (found["spec"], condition["type"], condition["status"]) == ({"cidrs": ["10.96.0.0/12"]}, "Ready", "True")


def test_an_address_comes_and_goes_with_its_service() -> None:
    async def question(client: ApiClient) -> Any:
        service = await client.post(_SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
        address = service["spec"]["clusterIP"]
        added = await _event(client, _ADDRESSES, "ADDED", address)
        await client.request("DELETE", f"{_SERVICES}/web")
        await _event(client, _ADDRESSES + "?resourceVersion=1", "DELETED", address)
        return added

    added = _asked(question)
    assert added["metadata"]["labels"] == _MANAGED
    assert added["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}


def test_addresses_are_put_right_at_the_start(tmp_path: Path) -> None:
    options = ServerOptions(data=tmp_path)

    async def leave(client: ApiClient) -> None:
        spec = {"parentRef": {"resource": "services", "namespace": "default", "name": "gone"}}
        await client.post(_ADDRESSES, {"metadata": {"name": "10.96.9.9", "labels": _MANAGED}, "spec": spec})
        await client.post(_ADDRESSES, {"metadata": {"name": "10.96.9.8"}, "spec": spec})

    async def question(client: ApiClient) -> Any:
        await _event(client, _ADDRESSES + "?resourceVersion=1", "DELETED", "10.96.9.9")
        return [item["metadata"]["name"] for item in (await client.get(_ADDRESSES))["items"]]

    _asked(leave, options)
    assert _asked(question, options) == ["10.96.0.1", "10.96.9.8"]
