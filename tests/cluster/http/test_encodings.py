"""Responses in YAML and in protobuf, and documents that clients keep."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from koordinator.cluster.protobuf.decoding import decode
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, request

PROTOBUF = "application/vnd.kubernetes.protobuf"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
NAMESPACE = "/api/v1/namespaces/default"


def _responses(*requests: tuple[str, Mapping[str, str]]) -> list[HttpResponse]:
    async def main() -> list[HttpResponse]:
        found = []
        async with memory_server() as server:
            for path, headers in requests:
                connection = Connection(server)
                response = await connection.send(request("GET", path, b"", **headers))
                assert response is not None
                found.append(response)
                await connection.close()
        return found

    return asyncio.run(main())


@pytest.fixture(scope="module")
def namespace() -> dict[str, HttpResponse]:
    accepted = ("application/json", "application/yaml", PROTOBUF)
    found = _responses(*((NAMESPACE, {"Accept": accept}) for accept in accepted))
    return dict(zip(accepted, found, strict=True))


def test_an_object_in_yaml(namespace: dict[str, HttpResponse]) -> None:
    response = namespace["application/yaml"]
    assert response.headers["content-type"] == "application/yaml"
    expected = namespace["application/json"].document
    assert yaml.safe_load(response.body)["metadata"]["name"] == expected["metadata"]["name"]


def test_an_object_in_protobuf(namespace: dict[str, HttpResponse]) -> None:
    response = namespace[PROTOBUF]
    assert response.headers["content-type"] == PROTOBUF
    decoded, expected = decode(response.body, None), namespace["application/json"].document
    for document in (decoded, expected):
        del document["metadata"]["uid"], document["metadata"]["creationTimestamp"]
    assert decoded == expected


def test_an_error_is_written_in_the_encoding_that_was_asked_for() -> None:
    (response,) = _responses((f"{NAMESPACE}/configmaps/none", {"Accept": PROTOBUF}))
    status = decode(response.body, None)
    assert (response.status, status["kind"], status["reason"]) == (404, "Status", "NotFound")


@pytest.mark.parametrize(
    ("path", "accept"),
    [("/apis", PROTOBUF), ("/apis/apps", PROTOBUF), ("/apis/apps/v1", PROTOBUF)]
    + [(path, f"{PROTOBUF};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList") for path in ("/api", "/apis")],
)
def test_discovery_in_every_encoding(path: str, accept: str) -> None:
    encodings = (accept, accept.replace(PROTOBUF, "application/json"), accept.replace(PROTOBUF, "application/yaml"))
    in_protobuf, in_json, in_yaml = _responses(*((path, {"Accept": each}) for each in encodings))
    assert in_protobuf.headers["content-type"].startswith(PROTOBUF)
    assert yaml.safe_load(in_yaml.body) == in_json.document
    assert _without_empty(decode(in_protobuf.body, None)) == _without_empty(in_json.document)


def _without_empty(value: Any) -> Any:
    """Protobuf does not say whether a text that is empty is there."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := _without_empty(item)) not in ("", {}, [], None)}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def test_the_version_is_there_in_json_alone() -> None:
    (refused,) = _responses(("/version", {"Accept": PROTOBUF}))
    assert (refused.status, refused.headers["content-type"]) == (406, "application/json")


def test_responses_are_not_kept_by_proxies(namespace: dict[str, HttpResponse]) -> None:
    assert namespace["application/json"].headers["cache-control"] == "no-cache, private"


@pytest.mark.parametrize(
    ("path", "accept", "caching"),
    [
        ("/api", DISCOVERY, "public"),
        ("/apis", DISCOVERY, "public"),
        ("/openapi/v2", "application/json", "no-cache, private"),
        ("/openapi/v3/apis/apps/v1", "application/json", "no-cache, private"),
    ],
)
def test_a_document_that_has_not_changed_is_not_sent_again(path: str, accept: str, caching: str) -> None:
    (first,) = _responses((path, {"Accept": accept}))
    assert (first.status, first.headers["cache-control"], first.headers["vary"]) == (200, caching, "Accept")
    etag = first.headers["etag"]
    same, other = _responses(
        (path, {"Accept": accept, "If-None-Match": etag}), (path, {"Accept": accept, "If-None-Match": '"other"'})
    )
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
    assert (other.status, other.body) == (200, first.body)


def test_the_hash_of_the_index_names_a_document_for_good() -> None:
    (index,) = _responses(("/openapi/v3", {}))
    url = index.document["paths"]["apis/apps/v1"]["serverRelativeURL"]
    current, outdated = _responses((url, {}), ("/openapi/v3/apis/apps/v1?hash=0", {}))
    assert (current.status, current.headers["cache-control"]) == (200, "public, immutable")
    assert current.headers["etag"].strip('"') == url.partition("=")[2]
    assert (outdated.status, outdated.headers["location"]) == (301, url)


def test_api_versions_say_where_the_server_is() -> None:
    (response,) = _responses(("/api", {"Host": "127.0.0.1:6443"}))
    addresses = response.document["serverAddressByClientCIDRs"]
    assert addresses == [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]
