"""Subresources that need a kubelet: each says what is missing, never that its path is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tests.cluster.embedded import ApiClient, HttpResponse, embedded_api, pod

T = TypeVar("T")
PODS = "/api/v1/namespaces/default/pods"
_NODE = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"containerRuntimeVersion": "simulated://1.0.0"}}}
_KUBELETS_NODE = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.0"}}}


def _run(scenario: Callable[[ApiClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with embedded_api() as client:
            return await scenario(client)

    return asyncio.run(main())


def _response(
    method: str, path: str, *, node: dict[str, Any] = _NODE, bound: bool = True, body: Any = None
) -> HttpResponse:
    async def scenario(client: ApiClient) -> HttpResponse:
        await client.post("/api/v1/nodes", node)
        await client.post(PODS, pod("p", **({"nodeName": "n"} if bound else {})))
        return await client.request(method, path, body)

    return _run(scenario)


@pytest.mark.parametrize(
    ("method", "subresource", "missing"),
    [
        ("GET", "log?container=main&follow=true", "no logs"),
        ("GET", "exec?command=ls", "no command can run in it"),
        ("POST", "exec?command=ls", "no command can run in it"),
        ("GET", "attach", "nothing to attach to"),
        ("POST", "attach", "nothing to attach to"),
        ("GET", "portforward", "no port to forward to"),
        ("POST", "portforward", "no port to forward to"),
        ("GET", "proxy/some/path", "no port to forward to"),
    ],
)
def test_a_simulated_pod_says_what_it_lacks(method: str, subresource: str, missing: str) -> None:
    response = _response(method, f"{PODS}/p/{subresource}")
    assert (response.status, response.body["kind"], response.body["reason"]) == (400, "Status", "BadRequest")
    assert response.body["details"] == {"name": "p", "kind": "pods"}
    assert response.body["message"].startswith('pod "p" is simulated: it has no containers, so ')
    assert missing in response.body["message"]


def test_a_pod_of_a_real_kubelet_is_not_called_simulated() -> None:
    response = _response("GET", f"{PODS}/p/log", node=_KUBELETS_NODE)
    assert (response.status, response.body["message"]) == (
        400,
        'this API server connects to no kubelet, so it cannot fetch the logs of pod "p" from node "n"',
    )


def test_a_pod_without_a_node_is_refused_as_by_the_real_server() -> None:
    response = _response("POST", f"{PODS}/p/exec?command=ls", bound=False)
    assert (response.status, response.body["message"]) == (400, "pod p does not have a host assigned")


def test_the_log_of_a_pod_without_a_node_is_empty() -> None:
    assert _response("GET", f"{PODS}/p/log", bound=False).status == 200


@pytest.mark.parametrize("subresource", ["log", "exec", "proxy"])
def test_a_missing_pod_is_not_found(subresource: str) -> None:
    response = _response("GET", f"{PODS}/missing/{subresource}")
    assert (response.status, response.body["details"]) == (404, {"name": "missing", "kind": "pods"})


def test_the_port_in_the_name_of_a_proxied_pod_is_not_part_of_its_name() -> None:
    assert "is simulated" in _response("GET", f"{PODS}/https:p:80/proxy/").body["message"]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("/api/v1/nodes/n/proxy/stats/summary", "nodes", 'node "n" is simulated: it has no kubelet to forward to'),
    ],
)
def test_what_else_is_missing_is_reported(path: str, kind: str, message: str) -> None:
    response = _response("GET", path)
    assert (response.status, response.body["details"]["kind"]) == (400, kind)
    assert message in response.body["message"]


@pytest.mark.parametrize(
    "path", [f"{PODS}/p/nonsense", "/api/v1/nowhere", "/apis/no.such/v1/things", "/nowhere", "/apis/no.such/v1"]
)
def test_an_unknown_path_has_details(path: str) -> None:
    """kubectl debug dereferences them without a look."""
    response = _response("GET", path)
    assert (response.status, response.body["reason"], response.body["details"]) == (404, "NotFound", {})


def test_a_method_that_a_path_does_not_take_has_details() -> None:
    response = _response("PUT", PODS, body={})
    assert (response.status, response.body["details"]) == (405, {})
