"""The whole server over HTTPS on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from tests.cluster.embedded import ApiClient, HttpResponse, config_map, embedded_api, pod

T = TypeVar("T")
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_GET_PODS = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _run(scenario: Callable[[ApiClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with embedded_api() as client:
            return await scenario(client)

    return asyncio.run(main())


def _response(method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
    return _run(lambda client: client.request(method, path, body, **headers))


def test_only_loopback_is_served() -> None:
    with pytest.raises(ConfigurationError, match="loopback"):
        EmbeddedApi(ServerOptions(address="0.0.0.0"))


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Basic eA==", "Bearer "])
def test_a_wrong_token_is_unauthorized(authorization: str) -> None:
    response = _response("GET", PODS, Authorization=authorization)
    assert (response.status, response.body["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz?verbose", "/readyz/ping"])
def test_health_is_reported(path: str) -> None:
    assert _response("GET", path).status == 200


def test_version_is_one_that_clients_of_1_35_accept() -> None:
    assert _response("GET", "/version").body["gitVersion"] == "v1.35.0"


def test_aggregated_discovery_names_subresources_that_are_served() -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    body = _response("GET", "/api", Accept=accept).body
    (version,) = body["items"][0]["versions"]
    (pods,) = [entry for entry in version["resources"] if entry["resource"] == "pods"]
    served = ["binding", "ephemeralcontainers", "eviction", "resize", "status"]
    assert sorted(entry["subresource"] for entry in pods["subresources"]) == served


def test_classic_discovery_lists_groups_and_resources() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any]:
        return await client.get("/apis"), await client.get("/apis/apps/v1")

    groups, resources = _run(scenario)
    assert "apps" in [group["name"] for group in groups["groups"]]
    names = [entry["name"] for entry in resources["resources"]]
    assert "deployments/status" in names
    assert names == sorted(names)


def test_the_preferred_version_of_autoscalers_is_the_second() -> None:
    group = _run(lambda client: client.get("/apis/autoscaling"))
    assert group["preferredVersion"]["version"] == "v2"


def test_finalize_is_listed_as_it_is_served() -> None:
    resources = _run(lambda client: client.get("/api/v1"))["resources"]
    (finalize,) = [entry for entry in resources if entry["name"] == "namespaces/finalize"]
    assert (finalize["kind"], finalize["verbs"]) == ("Namespace", ["update"])


@pytest.mark.parametrize(
    "path", ["/apis/none", "/apis/none/v1", "/api/v2", "/nothing", "/api/v1/nothings", "/api/v1/pods/p"]
)
def test_what_is_not_served_is_not_found(path: str) -> None:
    assert _response("GET", path).body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PODS),
        ("POST", "/api/v1/pods"),
        ("POST", PODS + "/p"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/version"),
    ],
)
def test_a_method_that_makes_no_sense_is_not_allowed(method: str, path: str) -> None:
    assert _response(method, path).status == 405


def test_system_objects_are_there() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any]:
        namespaces = await client.get("/api/v1/namespaces")
        return namespaces, await client.get("/apis/scheduling.k8s.io/v1/priorityclasses")

    namespaces, classes = _run(scenario)
    names = [item["metadata"]["name"] for item in namespaces["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert [item["value"] for item in classes["items"]] == [2_000_000_000, 2_000_001_000]


def test_an_unknown_body_format_is_refused() -> None:
    assert _response("POST", PODS, b"x", content_type="text/plain").status == 415


def test_a_patch_format_that_is_unknown_is_refused() -> None:
    async def scenario(client: ApiClient) -> HttpResponse:
        await client.post(PODS, pod("p"))
        return await client.request("PATCH", PODS + "/p", b"{}", content_type="application/x-patch")

    assert _run(scenario).status == 415


def test_a_body_that_is_no_json_is_refused() -> None:
    assert _response("POST", PODS, b"{").body["reason"] == "BadRequest"


def test_a_body_beyond_the_limit_is_refused() -> None:
    response = _response("POST", CONFIG_MAPS, config_map("c", {"a": "x" * (3 << 20)}))
    assert (response.status, response.body["reason"]) == (413, "RequestEntityTooLarge")


def test_yaml_bodies_are_read() -> None:
    body = b"metadata: {name: c, annotations: {when: '2026-01-01'}}\ndata: {a: b}"
    assert _response("POST", CONFIG_MAPS, body, content_type="application/yaml").body["data"] == {"a": "b"}


def test_an_unknown_field_is_warned_of() -> None:
    response = _response("POST", PODS, pod("p", nonsense=1))
    assert response.headers["Warning"] == '299 - "unknown field \\"spec.nonsense\\""'


def test_an_unknown_field_is_refused_in_strict_mode() -> None:
    response = _response("POST", PODS + "?fieldValidation=Strict", pod("p", nonsense=1))
    assert (response.status, "strict decoding error" in response.body["message"]) == (400, True)


def test_a_table_has_rows_with_metadata() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(PODS, pod("p"))
        return await client.get(PODS, Accept=TABLE)

    table = _run(scenario)
    names = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert (names[0], row["cells"][0], row["object"]["kind"]) == ("Name", "p", "PartialObjectMetadata")


def test_metadata_alone_can_be_requested() -> None:
    async def scenario(client: ApiClient) -> Any:
        await client.post(PODS, pod("p"))
        return await client.get(PODS, Accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")

    body = _run(scenario)
    assert (body["kind"], set(body["items"][0])) == ("PartialObjectMetadataList", {"kind", "apiVersion", "metadata"})


def test_delete_reports_the_uid_that_is_gone() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any]:
        created = await client.post(CONFIG_MAPS, config_map("c"))
        return created, (await client.request("DELETE", CONFIG_MAPS + "/c")).body

    created, status = _run(scenario)
    assert (status["status"], status["details"]["uid"]) == ("Success", created["metadata"]["uid"])


def test_a_watch_streams_lines() -> None:
    async def scenario(client: ApiClient) -> list[tuple[str, str]]:
        async with client.watch(CONFIG_MAPS) as events:
            await client.post(CONFIG_MAPS, config_map("c"))
            first = await anext(events)
            await client.request("DELETE", CONFIG_MAPS + "/c")
            return [(event["type"], event["object"]["kind"]) for event in (first, await anext(events))]

    assert _run(scenario) == [("ADDED", "ConfigMap"), ("DELETED", "ConfigMap")]


def test_a_watched_table_names_its_columns_once() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        async with client.watch(CONFIG_MAPS, Accept=TABLE) as events:
            await client.post(CONFIG_MAPS, config_map("a"))
            await client.post(CONFIG_MAPS, config_map("b"))
            return [len((await anext(events))["object"]["columnDefinitions"]) for _ in range(2)]

    assert _run(scenario) == [3, 0]


@pytest.mark.parametrize("group", ["/api/v1", "/apis/events.k8s.io/v1"])
def test_a_list_names_the_kind_of_its_items_once(group: str) -> None:
    async def scenario(client: ApiClient) -> Any:
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
        await client.post("/api/v1/namespaces/default/events", event)
        return await client.get(f"{group}/namespaces/default/events")

    listed = _run(scenario)
    assert listed["kind"] == "EventList"
    assert [item.keys() & {"kind", "apiVersion"} for item in listed["items"]] == [set()]


def test_a_list_that_is_sent_in_parts_is_whole() -> None:
    data = {"text": "x" * 50_000}

    async def scenario(client: ApiClient) -> tuple[HttpResponse, Any]:
        for name in "abcdefgh":
            await client.post(CONFIG_MAPS, {**config_map(name), "data": data})
        return await client.request("GET", CONFIG_MAPS), await client.get(f"{CONFIG_MAPS}/b")

    response, one = _run(scenario)
    items = {item["metadata"]["name"]: item for item in response.body["items"]}
    assert {name: item["data"] for name, item in items.items()} == dict.fromkeys("abcdefgh", data)
    assert items["b"]["metadata"] == one["metadata"]


def test_a_bookmark_of_a_table_is_in_a_row() -> None:
    query = "?allowWatchBookmarks=true"

    async def scenario(client: ApiClient) -> Any:
        async with client.watch(CONFIG_MAPS + query, Accept=TABLE) as events:
            return await anext(events)

    table = _run(scenario)["object"]
    (row,) = table["rows"]
    assert row["cells"] == ["", "", ""]
    assert row["object"]["metadata"] == {
        "resourceVersion": table["metadata"]["resourceVersion"],
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


def test_a_streaming_list_ends_with_a_bookmark() -> None:
    query = "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    async def scenario(client: ApiClient) -> Any:
        async with client.watch("/api/v1/namespaces" + query) as events:
            return [await anext(events) for _ in range(5)][-1]

    bookmark = _run(scenario)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_stop_ends_open_watches() -> None:
    async def main() -> list[Any]:
        async with embedded_api() as client, client.watch(CONFIG_MAPS + "?resourceVersion=1") as events:
            await client.api.stop()
            return [event async for event in events]

    assert asyncio.run(main()) == []


def test_binding_responds_with_a_status() -> None:
    async def scenario(client: ApiClient) -> list[tuple[int, str]]:
        await client.post(PODS, pod("p"))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
        responses = [await client.request("POST", PODS + "/p/binding", binding) for _ in range(2)]
        return [(response.status, response.body["status"]) for response in responses]

    assert _run(scenario) == [(201, "Success"), (409, "Failure")]


def test_events_are_one_collection_in_two_groups() -> None:
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Scheduled",
        "action": "Binding",
        "type": "Normal",
        "note": "placed",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "s",
        "reportingInstance": "s-1",
    }

    async def scenario(client: ApiClient) -> Any:
        await client.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
        return await client.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=p")

    listed = _run(scenario)
    (found,) = listed["items"]
    assert (listed["apiVersion"], found["message"], found["involvedObject"]["name"]) == ("v1", "placed", "p")


@pytest.mark.parametrize(
    ("path", "spec", "expected"),
    [
        ("authentication.k8s.io/v1/selfsubjectreviews", {}, {"userInfo"}),
        ("authentication.k8s.io/v1/tokenreviews", {"token": "wrong"}, {"user", "error"}),
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", {**_GET_PODS}, {"allowed"}),
        ("authorization.k8s.io/v1/subjectaccessreviews", {"user": "admin", **_GET_PODS}, {"allowed"}),
    ],
)
def test_reviews_are_answered(path: str, spec: dict[str, Any], expected: set[str]) -> None:
    response = _response("POST", "/apis/" + path, {"spec": spec})
    assert (response.status, set(response.body["status"])) == (201, expected)
