"""What Kubernetes' conformance tests found, each in one request; tests/real/test_conformance.py runs them whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document
from tests.cluster.certificate_requests import request_spec
from tests.cluster.http.memory_server import Connection, HttpResponse, memory_server, request

_JSON = "application/json"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def _responses(*requests: tuple[str, str, bytes, str]) -> Sequence[HttpResponse]:
    async def main() -> Sequence[HttpResponse]:
        found = []
        async with memory_server() as server:
            for method, path, body, accept in requests:
                connection = Connection(server)
                sent = request(method, path, body, Accept=accept, Content_Type=_JSON)
                response = await connection.send(sent)
                assert response is not None
                found.append(response)
                await connection.close()
        return found

    return asyncio.run(main())


def _made_and_listed(path: str, obj: Any, listed: str) -> list[Document]:
    made, found = _responses(("POST", path, msgspec.json.encode(obj), _JSON), ("GET", listed, b"", _JSON))
    assert made.status == 201, made.document
    items: list[Document] = found.document["items"]
    return items


def test_the_source_of_an_event_is_who_reports_it() -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"namespace": "default"},
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "a",
        "reason": "r",
        "type": "Normal",
    }
    listed = _made_and_listed(_EVENTS, event, "/api/v1/namespaces/default/events?fieldSelector=source%3Dc")
    assert [each["metadata"]["name"] for each in listed] == ["e"]


def test_certificate_requests_are_selected_by_their_signer() -> None:
    spec = request_spec()
    listed = f"{_REQUESTS}?fieldSelector=spec.signerName%3Dexample.com/s"
    assert len(_made_and_listed(_REQUESTS, {"metadata": {"name": "c"}, "spec": spec}, listed)) == 1


def test_a_review_is_no_table() -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    (response,) = _responses(("POST", path, msgspec.json.encode(review), _TABLE))
    assert (response.status, response.document["reason"]) == (406, "NotAcceptable")


def test_strict_errors_of_a_built_in_kind_are_in_the_order_of_its_text() -> None:
    body = b'{"metadata": {"name": "d"}, "spec": {"unknown": 1, "replicas": 2, "replicas": 3, "other": 1}}'
    (response,) = _responses(
        ("POST", "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict", body, _JSON)
    )
    errors = 'unknown field "spec.unknown", duplicate field "spec.replicas", unknown field "spec.other"'
    assert response.document["message"].endswith(f"strict decoding error: {errors}")


@pytest.mark.parametrize(
    ("path", "obj", "kind"),
    [
        ("/api/v1/namespaces/default/services", {"spec": {"ports": [{"port": 80}]}}, "Service"),
        ("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "a/b"}, "StorageClass"),
        ("/api/v1/namespaces/default/configmaps", {}, "Status"),
        ("/api/v1/namespaces/default/endpoints", {}, "Status"),
    ],
)
def test_some_kinds_are_returned_when_they_are_deleted(path: str, obj: Document, kind: str) -> None:
    """The official Python client reads the response into that type."""
    body = msgspec.json.encode({"metadata": {"name": "gone"}, **obj})
    _, deleted = _responses(("POST", path, body, _JSON), ("DELETE", f"{path}/gone", b"", _JSON))
    assert (deleted.status, deleted.document["kind"]) == (200, kind)
