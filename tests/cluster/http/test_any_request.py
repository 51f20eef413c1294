"""Whatever a client sends, it gets a response that says what is wrong, and the server goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Resource
from tests.cluster.corpus import resource_of, written
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, request
from tests.examples import examples

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO")
PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json")
CONTENT_TYPES = (
    *PATCHES,
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)
PARAMETERS = (
    "dryRun", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector",
    "gracePeriodSeconds", "propagationPolicy", "fieldManager", "fieldValidation", "timeout", "includeObject",
    "sendInitialEvents", "orphanDependents", "timeoutSeconds",
)  # fmt: skip
TIMEOUT = 504
"""Of a resource version that is still to come, as the real server responds."""

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
OBJECTS = written("strategy/objects.yaml")
HEADER_TEXT = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)


def _collection(resource: Resource) -> str:
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{base}/namespaces/default/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"


COLLECTIONS = sorted({_collection(resource) for resource in BUILTIN_RESOURCES})


@st.composite
def damaged(draw: st.DrawFn, objects: st.SearchStrategy[Document]) -> bytes:
    """An object that was in order, with another value in one place."""
    document: Any = copied(draw(objects))
    place = document
    while True:
        names: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        name = draw(st.sampled_from(names))
        below = place[name]
        if not below or not isinstance(below, (dict, list)) or draw(st.integers(0, 3)) == 0:
            place[name] = draw(VALUES)
            return msgspec.json.encode(document)
        place = below


@st.composite
def json_patches(draw: st.DrawFn) -> bytes:
    path = (
        st.sampled_from(("", "/", "/metadata", "/metadata/labels", "/spec/-", "/data/0", "/metadata/name")) | st.text()
    )
    operations = st.fixed_dictionaries(
        {"op": st.sampled_from(("add", "remove", "replace", "move", "copy", "test")) | VALUES, "path": path | VALUES},
        optional={"from": path | VALUES, "value": VALUES},
    )
    return msgspec.json.encode(draw(st.lists(operations, max_size=5)))


BODIES = (
    st.binary(max_size=60)
    | VALUES.map(msgspec.json.encode)
    | damaged(st.sampled_from(OBJECTS))
    | json_patches()
    | st.just(b"")
)
PATHS = (
    st.builds(
        lambda collection, rest: "/".join((collection, *rest)),
        st.sampled_from(COLLECTIONS),
        st.lists(
            st.sampled_from(("a", "default", "kube-system", "status", "scale", "binding", "eviction", "finalize"))
            | st.text(max_size=6).map(lambda text: quote(text, safe="", errors="surrogatepass")),
            max_size=3,
        ),
    )
    | st.sampled_from(("/", "/api", "/apis", "/version", "/healthz", "/openapi/v2", "/openapi/v3", "/apis/apps"))
    | st.text(st.characters(codec="ascii", exclude_categories=("Cc", "Zs")), max_size=20).map(lambda text: f"/{text}")
    | st.binary(max_size=8).map(lambda raw: "/api/v1/" + quote(raw, safe=""))
)
QUERIES = st.dictionaries(
    st.sampled_from(PARAMETERS) | st.text(max_size=5),
    st.sampled_from(("All", "true", "1", "-1", "x", "0", "99999999999999999999")) | st.text(max_size=10),
    max_size=3,
).map(lambda query: "&".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in query.items()))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    headers = {"Content_Type": draw(st.sampled_from(CONTENT_TYPES) | HEADER_TEXT)}
    if draw(st.booleans()):
        headers["Accept"] = draw(
            st.sampled_from(("*/*", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io")) | HEADER_TEXT
        )
    if draw(st.integers(0, 9)) == 0:
        headers["Authorization"] = draw(HEADER_TEXT)
    if draw(st.integers(0, 9)) == 0:
        headers[draw(st.sampled_from(("Content_Encoding", "Transfer_Encoding", "Expect", "Impersonate_User")))] = draw(
            st.sampled_from(("gzip", "chunked", "100-continue", "jane")) | HEADER_TEXT
        )
    query = draw(QUERIES)
    path = draw(PATHS) + (f"?{query}" if query else "")
    return request(draw(st.sampled_from(METHODS)), path, draw(BODIES), **headers)


def _check(response: HttpResponse, sent: bytes) -> None:
    # The real server, too, calls a strategic merge patch whose list item lacks the merge key an internal error.
    lacks_merge_key = "does not contain declared merge key" in str(response.body)
    assert response.status < 500 or response.status == TIMEOUT or lacks_merge_key, (sent, response)
    if response.headers.get("content-type", "").startswith("application/json") and response.body:
        document = response.document
        if response.status >= 400:
            assert (document["kind"], document["status"], document["code"]) == ("Status", "Failure", response.status)
            assert document["message"], (sent, response)


async def _response(sent: bytes) -> HttpResponse | None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    async with memory_server() as server:
        connection = Connection(server)
        response = await connection.send(sent)
        await connection.close()
    assert not problems, problems
    return response


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_any_request_is_answered(sent: bytes) -> None:
    response = asyncio.run(_response(sent))
    if response is not None:
        _check(response, sent)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_do_no_harm(sent: bytes) -> None:
    response = asyncio.run(_response(sent))
    if response is not None:
        _check(response, sent)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(OBJECTS), st.data())
def test_any_change_of_an_object_is_answered(original: Document, data: st.DataObject) -> None:
    """Creation, then an update or a patch of what is stored."""
    resource = resource_of(original)
    path, name = _collection(resource), original["metadata"]["name"]
    body = data.draw(damaged(st.just(original)) | BODIES)
    method, media = data.draw(st.sampled_from([("PUT", "application/json"), *(("PATCH", patch) for patch in PATCHES)]))

    async def change() -> list[tuple[bytes, HttpResponse | None]]:
        async with memory_server() as server:
            object_ = {**copied(original), "metadata": {**original["metadata"], "namespace": "default"}}
            if not resource.namespaced:
                del object_["metadata"]["namespace"]
            reported = []
            for sent in (
                request("POST", f"{path}?dryRun=All", body, Content_Type="application/json"),
                request("POST", path, msgspec.json.encode(object_), Content_Type="application/json"),
                request(method, f"{path}/{name}", body, Content_Type=media),
                request("GET", f"{path}/{name}"),
            ):
                connection = Connection(server)
                reported.append((sent, await connection.send(sent)))
                await connection.close()
            return reported

    for sent, response in asyncio.run(change()):
        assert response is not None
        _check(response, sent)


MALFORMED = (
    b"{", b"[]", b"1", b'"x"', b'{"kind":5}', b'{"apiVersion":[]}', b'{"metadata":[]}', b'{"metadata":"x"}',
    b'{"metadata":{"name":5}}', b'{"metadata":{"name":"a","labels":5}}', b'{"metadata":{"name":"a","labels":{"a":[]}}}',
    b'{"metadata":{"name":"a","ownerReferences":{}}}', b'{"metadata":{"name":"a","finalizers":[{}]}}', b"\xff\xfe",
)  # fmt: skip


@pytest.mark.parametrize("resource", BUILTIN_RESOURCES, ids=lambda resource: f"{resource.group}-{resource.plural}")
def test_malformed_bodies_are_the_clients_fault(resource: Resource, caplog: pytest.LogCaptureFixture) -> None:
    """On every verb of every kind."""
    path = _collection(resource)
    cases = [("POST", path, "application/json"), ("PUT", f"{path}/a", "application/json")]
    cases += [("PATCH", f"{path}/a", media) for media in PATCHES]
    methods = {"status": "PUT", "scale": "PUT", "binding": "POST", "eviction": "POST"}
    served = [name for name in resource.subresources if name in methods]
    cases += [(methods[name], f"{path}/a/{name}", "application/json") for name in served]

    async def send_all() -> list[tuple[bytes, HttpResponse | None]]:
        async with memory_server() as server:
            reported = []
            for method, where, media in cases:
                for body in MALFORMED:
                    connection = Connection(server)
                    sent = request(method, where, body, Content_Type=media)
                    reported.append((sent, await connection.send(sent)))
                    await connection.close()
            return reported

    with caplog.at_level(logging.ERROR):
        responses = asyncio.run(send_all())
    for sent, response in responses:
        assert response is not None
        assert 400 <= response.status < 500, (sent, response)
        _check(response, sent)
    assert not caplog.records
