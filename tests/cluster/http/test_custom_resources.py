"""CustomResourceDefinitions, from registration to removal, over HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from koordinator.api.document import Document
from tests.cluster.embedded import ApiClient, embedded_api

T = TypeVar("T")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.io/v1/namespaces/default/things"
BETA_THINGS = "/apis/example.io/v1beta1/namespaces/default/things"


def _version(name: str, *, storage: bool = False, served: bool = True) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }


def _definition(**changes: Any) -> Document:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [_version("v1", storage=True), _version("v1beta1")],
            **changes,
        },
    }


def _thing(**spec: Any) -> Document:
    return {"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def _run(scenario: Callable[[ApiClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with embedded_api() as client:
            await client.post(DEFINITIONS, _definition())
            return await scenario(client)

    return asyncio.run(main())


def test_a_kind_is_served_as_soon_as_it_is_defined() -> None:
    async def scenario(client: ApiClient) -> Document:
        created: Document = await client.post(THINGS, _thing(size=1))
        return created

    assert _run(scenario)["metadata"]["generation"] == 1


def test_versions_share_their_objects() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(THINGS, _thing(size=1))
        return await client.get(BETA_THINGS + "/t")

    found = _run(scenario)
    assert (found["apiVersion"], found["spec"]) == ("example.io/v1beta1", {"size": 1})


def test_in_a_list_each_names_its_kind() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(THINGS, _thing(size=1))
        return await client.get(THINGS)

    (item,) = _run(scenario)["items"]
    assert (item["apiVersion"], item["kind"]) == ("example.io/v1", "Thing")


def test_discovery_follows() -> None:
    async def scenario(client: ApiClient) -> Any:
        return await client.get("/apis/example.io")

    group = _run(scenario)
    assert [entry["version"] for entry in group["versions"]] == ["v1", "v1beta1"]


def test_status_and_spec_are_written_apart() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(THINGS, {**_thing(size=1), "status": {"dropped": True}})
        merge = "application/merge-patch+json"
        body = {"spec": {"size": 2}, "status": {"phase": "Done"}}
        return (await client.request("PATCH", THINGS + "/t/status", body, content_type=merge)).body

    found = _run(scenario)
    assert (found["spec"], found["status"], found["metadata"]["generation"]) == ({"size": 1}, {"phase": "Done"}, 1)


def test_an_update_needs_a_resource_version() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(THINGS, _thing(size=1))
        return await client.request("PUT", THINGS + "/t", _thing(size=2))

    response = _run(scenario)
    assert (response.status, response.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_printer_columns_make_the_table() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(THINGS, _thing(size=3))
        return await client.get(THINGS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")

    assert _run(scenario)["rows"][0]["cells"] == ["t", 3]


def test_a_version_that_is_no_longer_served_is_gone() -> None:
    async def scenario(client: ApiClient) -> int:
        versions = [_version("v1", storage=True), _version("v1beta1", served=False)]
        merge = "application/merge-patch+json"
        body = {"spec": {"versions": versions}}
        await client.request("PATCH", DEFINITIONS + "/things.example.io", body, content_type=merge)
        return (await client.request("GET", BETA_THINGS)).status

    assert _run(scenario) == 404


async def _gone(client: ApiClient, path: str, name: str, start: str) -> None:
    """Wait for the deletion of an object."""
    query = f"?fieldSelector=metadata.name={name}&resourceVersion={start}"
    async with asyncio.timeout(10), client.watch(path + query) as events:
        async for event in events:
            if event["type"] == "DELETED":
                return


def test_removing_the_definition_removes_the_objects() -> None:
    async def scenario(client: ApiClient) -> tuple[int, int]:
        created = await client.post(THINGS, _thing(size=1))
        await client.request("DELETE", DEFINITIONS + "/things.example.io")
        await _gone(client, DEFINITIONS, "things.example.io", created["metadata"]["resourceVersion"])
        unserved = (await client.request("GET", THINGS)).status
        await client.post(DEFINITIONS, _definition())
        return unserved, len((await client.get(THINGS))["items"])

    assert _run(scenario) == (404, 0)


def test_removing_a_namespace_removes_the_objects() -> None:
    async def scenario(client: ApiClient) -> int:
        created = await client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        path = THINGS.replace("default", "n")
        await client.post(path, _thing(size=1))
        await client.request("DELETE", "/api/v1/namespaces/n")
        await _gone(client, "/api/v1/namespaces", "n", created["metadata"]["resourceVersion"])
        return len((await client.get(path))["items"])

    assert _run(scenario) == 0


def test_no_definition_takes_a_built_in_kind_over() -> None:
    async def scenario(client: ApiClient) -> Any:
        names = {"plural": "leases", "kind": "Lease"}
        definition = _definition(group="coordination.k8s.io", names=names)
        definition["metadata"]["name"] = "leases.coordination.k8s.io"
        await client.post(DEFINITIONS, definition)
        await client.request("DELETE", DEFINITIONS + "/leases.coordination.k8s.io")
        return (await client.request("GET", "/apis/coordination.k8s.io/v1/leases")).status

    assert _run(scenario) == 200
