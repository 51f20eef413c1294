"""AdmissionReview in and out, byte for byte."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from koordinator.manager.webhook.admission import AdmissionRequest, AdmissionResponse
from koordinator.manager.webhook.review import ReviewError, decode_review, encode_response
from tests.manager.webhook.reviews import POD, answered, review

REQUEST = decode_review(review()).request


def test_a_question_is_read_whole() -> None:
    assert (
        AdmissionRequest(
            operation="CREATE",
            group="",
            version="v1",
            resource="pods",
            namespace="default",
            name="web",
            user_name="somebody",
            object=POD,
            uid="705ab4f5",
        )
        == REQUEST
    )


def test_the_status_of_a_node_is_a_sub_resource() -> None:
    found = decode_review(
        review(
            operation="UPDATE",
            resource={"group": "", "version": "v1", "resource": "nodes"},
            subResource="status",
            object={"metadata": {"name": "new"}},
            oldObject={"metadata": {"name": "old"}},
            dryRun=True,
        )
    ).request
    assert (found.resource, found.sub_resource, found.dry_run) == ("nodes", "status", True)
    assert (found.object, found.old_object) == ({"metadata": {"name": "new"}}, {"metadata": {"name": "old"}})


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_response_is_in_the_version_of_the_question(version: str) -> None:
    requested = decode_review(review(version))
    document = json.loads(encode_response(AdmissionResponse(), requested.request, requested.api_version))
    assert (document["kind"], document["apiVersion"]) == ("AdmissionReview", f"admission.k8s.io/{version}")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            AdmissionResponse(),
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":'
            b'{"uid":"705ab4f5","allowed":true,"status":{"metadata":{},"code":200}}}',
        ),
        (
            AdmissionResponse(changed={**POD, "metadata": {"name": "web", "labels": {"app": "api"}}}),
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":'
            b'{"uid":"705ab4f5","allowed":true,"patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9tZXRhZGF0YS9sYWJlbHMvYXBwIi'
            b'widmFsdWUiOiJhcGkifV0=","patchType":"JSONPatch","status":{"metadata":{},"code":200}}}',
        ),
        (
            AdmissionResponse(allowed=False, code=403, message="no", reason="Forbidden"),
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":'
            b'{"uid":"705ab4f5","allowed":false,'
            b'"status":{"metadata":{},"code":403,"message":"no","reason":"Forbidden"}}}',
        ),
        (
            AdmissionResponse(warnings=["look"]),
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":'
            b'{"uid":"705ab4f5","allowed":true,"status":{"metadata":{},"code":200},"warnings":["look"]}}',
        ),
    ],
    ids=["allowed", "changed", "denied", "warned"],
)
def test_responses_are_written_as_api_servers_read_them(response: AdmissionResponse, expected: bytes) -> None:
    assert encode_response(response, REQUEST) == expected


def test_an_object_that_was_handed_back_as_it_was_needs_no_patch() -> None:
    assert "patch" not in answered(encode_response(AdmissionResponse(changed=deepcopy(POD)), REQUEST))


def test_what_is_refused_is_not_changed() -> None:
    response = AdmissionResponse(allowed=False, code=400, changed={"metadata": {}})
    assert "patch" not in answered(encode_response(response, REQUEST))


def test_only_an_object_that_is_there_can_be_changed() -> None:
    deleted = decode_review(review(operation="DELETE", object=None, oldObject=POD)).request
    with pytest.raises(ReviewError, match="DELETE of pods"):
        encode_response(AdmissionResponse(changed={}), deleted)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "request body is empty"),
        (b"{", "not JSON"),
        (b"[]", "not an AdmissionReview"),
        (b"\xff\xfe", "not JSON"),
        (b"{}", "no apiVersion, no kind"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{}}', "admission.k8s.io/v2"),
        (b'{"kind":"Pod","apiVersion":"v1"}', "v1, Pod"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', "has no request"),
        (review(operation="PATCH"), "request.operation: 'PATCH'"),
        (review(object=[]), "request.object"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_question_is_refused_with_the_reason(body: bytes, said: str) -> None:
    with pytest.raises(ReviewError, match=said):
        decode_review(body)


def test_numbers_keep_their_value() -> None:
    document = {"a": 9007199254740993, "b": 0.1, "c": 1}
    found = decode_review(review(object=document)).request.object
    assert found == document
    patch = answered(encode_response(AdmissionResponse(changed={**document, "d": 2**60}), REQUEST))["patch"]
    assert {"op": "add", "path": "/d", "value": 2**60} in patch
