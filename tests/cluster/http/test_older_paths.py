"""Older paths that the real server still serves: watches by path, the collection of bindings, namespaces/finalize."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tests.cluster.embedded import ApiClient, HttpResponse, config_map, embedded_api, pod

T = TypeVar("T")
DEFAULT = "/api/v1/namespaces/default"
WATCH = "/api/v1/watch/namespaces/default"
BINDING = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
NAMESPACE = "/api/v1/namespaces/n"


def _run(scenario: Callable[[ApiClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with embedded_api() as client:
            return await scenario(client)

    return asyncio.run(main())


def _response(method: str, path: str, body: Any = None) -> HttpResponse:
    return _run(lambda client: client.request(method, path, body))


async def _with_config_maps(client: ApiClient) -> None:
    for name in "ab":
        await client.post(f"{DEFAULT}/configmaps", config_map(name))


@pytest.mark.parametrize(("path", "names"), [(f"{WATCH}/configmaps", ["a", "b"]), (f"{WATCH}/configmaps/b", ["b"])])
def test_a_watch_is_a_path(path: str, names: list[str]) -> None:
    async def scenario(client: ApiClient) -> list[str]:
        await _with_config_maps(client)
        async with client.watch(f"{path}?watch=false") as events:
            return [(await anext(events))["object"]["metadata"]["name"] for _ in names]

    assert _run(scenario) == names


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_watch_is_only_read(method: str) -> None:
    assert _response(method, f"{WATCH}/configmaps/a").status == 405


def test_the_parameter_of_an_object_has_no_effect() -> None:
    async def scenario(client: ApiClient) -> Any:
        await _with_config_maps(client)
        return await client.get(f"{DEFAULT}/configmaps/a?watch=true")

    assert _run(scenario)["kind"] == "ConfigMap"


@pytest.mark.parametrize("value", ["0", "false", "FALSE"])
def test_a_watch_can_be_declined(value: str) -> None:
    assert _response("GET", f"{DEFAULT}/configmaps?watch={value}").body["kind"] == "ConfigMapList"


def test_the_collection_of_bindings_binds() -> None:
    async def scenario(client: ApiClient) -> tuple[HttpResponse, Any]:
        await client.post(f"{DEFAULT}/pods", pod("p"))
        return await client.request("POST", f"{DEFAULT}/bindings", BINDING), await client.get(f"{DEFAULT}/pods/p")

    response, bound = _run(scenario)
    assert (response.status, response.body["status"], bound["spec"]["nodeName"]) == (201, "Success", "n")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/bindings", {"target": {"name": "n"}}, 400),
        ("POST", "/bindings", BINDING, 404),
        ("GET", "/bindings", None, 405),
        ("GET", "/bindings/p", None, 404),
    ],
)
def test_other_bindings_are_refused(method: str, path: str, body: Any, status: int) -> None:
    assert _response(method, DEFAULT + path, body).status == status


async def _held(client: ApiClient, *finalizers: str) -> HttpResponse:
    await client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    held = {"metadata": {"name": "n"}, "spec": {"finalizers": list(finalizers)}}
    return await client.request("PUT", f"{NAMESPACE}/finalize", held)


def test_finalize_sets_the_finalizers_of_a_namespace() -> None:
    response = _run(lambda client: _held(client, "x.y/z"))
    assert (response.status, response.body["spec"], response.body["status"]) == (
        200,
        {"finalizers": ["x.y/z"]},
        {"phase": "Active"},
    )


def test_a_namespace_that_nothing_holds_any_more_goes() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await _held(client, "x.y/z")
        waiting = await client.request("DELETE", NAMESPACE)
        await client.request("PUT", f"{NAMESPACE}/finalize", {"metadata": {"name": "n"}})
        return [waiting.status, (await client.request("GET", NAMESPACE)).status]

    assert _run(scenario) == [200, 404]


@pytest.mark.parametrize("finalizer", ["Bad name", "nodomain"])
def test_a_finalizer_has_an_owner(finalizer: str) -> None:
    response = _run(lambda client: _held(client, finalizer))
    assert (response.status, response.body["details"]["causes"][0]["field"]) == (422, "spec.finalizers[0]")


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "POST"])
def test_finalize_is_only_put(method: str) -> None:
    assert _response(method, f"{NAMESPACE}/finalize", {}).status == 405


def test_a_namespace_has_no_time_to_end() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        return (await client.request("DELETE", NAMESPACE)).body

    assert "deletionGracePeriodSeconds" not in _run(scenario)["metadata"]


@pytest.mark.parametrize("content_type", ["application/x-patch", "application/apply-patch+cbor"])
def test_an_unknown_patch_format_is_refused_before_the_object_is_looked_for(content_type: str) -> None:
    request = _run(lambda c: c.request("PATCH", f"{DEFAULT}/configmaps/none", b"{}", content_type=content_type))
    assert request.status == 415
