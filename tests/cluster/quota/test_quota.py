"""ResourceQuotas over HTTP: what is refused, in the real server's words, and what the status says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from koordinator.api.document import Document
from tests.cluster.embedded import ApiClient, HttpResponse, embedded_api, pod

T = TypeVar("T")
CORE = "/api/v1/namespaces/default"
MERGE = "application/merge-patch+json"


def _run(scenario: Callable[[ApiClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with embedded_api() as client, asyncio.timeout(20):
            return await scenario(client)

    return asyncio.run(main())


def _quota(hard: Document, **spec: Any) -> Document:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}


def _sized(name: str, cpu: str = "", memory: str = "", **spec: Any) -> Document:
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
    resources = {"requests": requests, "limits": {"memory": memory}} if memory else {"requests": requests}
    return pod(name, containers=[{"name": "main", "image": "i", "resources": resources}], **spec)


async def _used(client: ApiClient, wanted: Document) -> Document:
    """The status once it says so."""
    async with client.watch(f"{CORE}/resourcequotas") as events:
        async for event in events:
            status: Document = event["object"].get("status") or {}
            if status.get("used") == wanted:
                return status
    raise AssertionError(f"the watch ended before used was {wanted}")


async def _create(client: ApiClient, *pods: Document) -> list[HttpResponse]:
    return [await client.request("POST", f"{CORE}/pods", body) for body in pods]


def _codes(responses: list[HttpResponse]) -> list[int]:
    return [response.status for response in responses]


def _after_quota(hard: Document, *pods: Document, **spec: Any) -> list[HttpResponse]:
    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota(hard, **spec))
        return await _create(client, *pods)

    return _run(scenario)


def test_a_pod_beyond_the_count_is_refused() -> None:
    responses = _after_quota({"pods": "1"}, pod("a"), pod("b"))
    assert _codes(responses) == [201, 403]
    assert responses[1].body["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    assert responses[1].body["details"] == {"name": "b", "kind": "pods"}


def test_requests_and_limits_are_added_up() -> None:
    responses = _after_quota(
        {"requests.cpu": "1", "limits.memory": "1Gi"}, _sized("a", "600m", "512Mi"), _sized("b", "600m", "768Mi")
    )
    assert _codes(responses) == [201, 403]
    assert responses[1].body["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: limits.memory=768Mi,requests.cpu=600m, '
        "used: limits.memory=512Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1"
    )


def test_a_pod_that_does_not_say_what_it_needs_is_refused() -> None:
    (response,) = _after_quota({"requests.cpu": "1", "limits.memory": "1Gi", "pods": "2"}, pod("a"))
    assert response.body["message"] == (
        'pods "a" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )


def test_batch_resources_are_limited_by_their_requests() -> None:
    def batch(name: str) -> Document:
        amounts = {"kubernetes.io/batch-cpu": "600"}
        resources = {"requests": amounts, "limits": amounts}
        return pod(name, containers=[{"name": "main", "image": "i", "resources": resources}])

    responses = _after_quota({"requests.kubernetes.io/batch-cpu": "1000"}, batch("a"), batch("b"))
    assert _codes(responses) == [201, 403]


def test_pods_that_come_at_once_do_not_both_take_the_last_of_it() -> None:
    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "3"}))
        creations = (client.request("POST", f"{CORE}/pods", pod(f"p{number}")) for number in range(12))
        return list(await asyncio.gather(*creations))

    assert sorted(_codes(_run(scenario))) == [201] * 3 + [403] * 9


def test_what_was_there_before_the_quota_counts() -> None:
    async def scenario(client: ApiClient) -> tuple[Document, list[HttpResponse]]:
        await _create(client, _sized("a", "250m"), _sized("b", "250m"))
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "2", "requests.cpu": "1"}))
        return await _used(client, {"pods": "2", "requests.cpu": "500m"}), await _create(client, _sized("c", "1m"))

    status, responses = _run(scenario)
    assert (status["hard"], _codes(responses)) == ({"pods": "2", "requests.cpu": "1"}, [403])


def test_a_deleted_pod_counts_no_more() -> None:
    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "1"}))
        await _create(client, pod("a"))
        await _used(client, {"pods": "1"})
        await client.request("DELETE", f"{CORE}/pods/a")
        await _used(client, {"pods": "0"})
        return await _create(client, pod("b"))

    assert _codes(_run(scenario)) == [201]


def test_a_pod_that_has_ended_counts_as_an_object_alone() -> None:
    async def scenario(client: ApiClient) -> Document:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "1", "count/pods": "5", "requests.cpu": "1"}))
        await _create(client, _sized("a", "1"))
        ended = {"status": {"phase": "Succeeded"}}
        response = await client.request("PATCH", f"{CORE}/pods/a/status", ended, content_type=MERGE)
        assert response.status == 200
        return await _used(client, {"pods": "0", "count/pods": "1", "requests.cpu": "0"})

    assert _run(scenario)["used"]["count/pods"] == "1"


def test_a_failed_creation_takes_nothing() -> None:
    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "2"}))
        return await _create(client, pod("a"), pod("a"), pod("a"), pod("b"))

    assert _codes(_run(scenario)) == [201, 409, 409, 201]


def test_a_dry_run_is_checked_and_takes_nothing() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "1"}))
        dry = [await client.request("POST", f"{CORE}/pods?dryRun=All", pod("a")) for _ in range(2)]
        return _codes(
            [*dry, *await _create(client, pod("a")), await client.request("POST", f"{CORE}/pods?dryRun=All", pod("b"))]
        )

    assert _run(scenario) == [201, 201, 201, 403]


def test_a_larger_quota_lets_more_in() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "1"}))
        first = await _create(client, pod("a"), pod("b"))
        larger = {"spec": {"hard": {"pods": "2"}}}
        await client.request("PATCH", f"{CORE}/resourcequotas/q", larger, content_type=MERGE)
        return _codes([*first, *await _create(client, pod("b"))])

    assert _run(scenario) == [201, 403, 201]


def test_without_its_quota_a_namespace_is_unlimited() -> None:
    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "0"}))
        await client.request("DELETE", f"{CORE}/resourcequotas/q")
        return await _create(client, pod("a"))

    assert _codes(_run(scenario)) == [201]


@pytest.mark.parametrize(
    ("spec", "counted"),
    [
        ({"scopes": ["BestEffort"]}, ["plain"]),
        ({"scopes": ["NotBestEffort"]}, ["sized"]),
        ({"scopes": ["Terminating"]}, ["ending"]),
        ({"scopes": ["NotTerminating", "BestEffort"]}, ["plain"]),
        ({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}}, ["critical"]),
    ],
)  # fmt: skip
def test_a_scope_decides_which_pods_count(spec: Document, counted: list[str]) -> None:
    pods = [
        pod("plain"),
        _sized("sized", "1"),
        _sized("ending", "1", activeDeadlineSeconds=5),
        _sized("critical", "1", priorityClassName="system-node-critical", activeDeadlineSeconds=5),
    ]
    responses = _after_quota({"pods": "0"}, *pods, **spec)
    refused = [
        body["metadata"]["name"] for body, response in zip(pods, responses, strict=True) if response.status == 403
    ]
    expected = {"sized": ["sized", "ending", "critical"], "ending": ["ending", "critical"]}.get(counted[0], counted)
    assert refused == expected


@pytest.mark.parametrize(
    ("hard", "path", "body"),
    [
        ("configmaps", f"{CORE}/configmaps", {}),
        ("count/deployments.apps", "/apis/apps/v1/namespaces/default/deployments", {"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}}}),
        ("services.nodeports", f"{CORE}/services", {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
    ],
)  # fmt: skip
def test_other_kinds_are_counted_too(hard: str, path: str, body: Document) -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(f"{CORE}/resourcequotas", _quota({hard: "1"}))
        return _codes([await client.request("POST", path, {**body, "metadata": {"name": name}}) for name in "ab"])

    assert _run(scenario) == [201, 403]


def test_storage_of_claims_is_added_up() -> None:
    def claim(name: str) -> Document:
        resources = {"requests": {"storage": "3Gi"}}
        return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}

    async def scenario(client: ApiClient) -> HttpResponse:
        await client.post(f"{CORE}/resourcequotas", _quota({"requests.storage": "5Gi"}))
        await client.post(f"{CORE}/persistentvolumeclaims", claim("a"))
        return await client.request("POST", f"{CORE}/persistentvolumeclaims", claim("b"))

    assert (
        "requested: requests.storage=3Gi, used: requests.storage=3Gi, limited: requests.storage=5Gi"
        in (_run(scenario).body["message"])
    )


def test_another_namespace_is_not_limited() -> None:
    async def scenario(client: ApiClient) -> int:
        await client.post(f"{CORE}/resourcequotas", _quota({"pods": "0"}))
        return (await client.request("POST", "/api/v1/namespaces/kube-public/pods", pod("a"))).status

    assert _run(scenario) == 201


def test_what_nothing_counts_is_warned_of() -> None:
    async def scenario(client: ApiClient) -> HttpResponse:
        return await client.request("POST", f"{CORE}/resourcequotas", _quota({"pods": "1", "example.com/gadgets": "1"}))

    warning = _run(scenario).headers["Warning"]
    assert warning == '299 - "nothing in this cluster counts example.com/gadgets: it is not limited"'


def test_a_resize_counts_what_it_adds() -> None:
    def resized(cpu: str) -> Document:
        return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}

    async def scenario(client: ApiClient) -> list[HttpResponse]:
        await client.post(f"{CORE}/resourcequotas", _quota({"requests.cpu": "1"}))
        await _create(client, _sized("a", "600m"), _sized("b", "200m"))
        strategic = "application/strategic-merge-patch+json"
        steps = (("a", "900m"), ("a", "800m"), ("b", "300m"), ("a", "700m"), ("b", "300m"))
        return [
            await client.request("PATCH", f"{CORE}/pods/{name}/resize", resized(cpu), content_type=strategic)
            for name, cpu in steps
        ]

    responses = _run(scenario)
    assert _codes(responses) == [403, 200, 403, 200, 200]
    assert responses[0].body["message"] == (
        'pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, '
        "limited: requests.cpu=1"
    )
