"""AdmissionReview, v1 and v1beta1, to what handlers are asked; what they answer back to AdmissionReview.

The two versions differ in their name alone; the answer carries the one that was asked in.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from koordinator.api import codec
from koordinator.api.meta import WireStruct
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.admission import AdmissionAnswer, AdmissionRequest, Document, Operation
from koordinator.manager.webhook.json_patch import make_patch

V1: Final = "admission.k8s.io/v1"
V1BETA1: Final = "admission.k8s.io/v1beta1"
_KIND: Final = "AdmissionReview"
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")


class ReviewError(KoordinatorError):
    """What arrived is not an AdmissionReview that can be answered."""


class _Resource(WireStruct):
    group: str = ""
    version: str = ""
    resource: str = ""


class _User(WireStruct):
    username: str = ""


class _Request(WireStruct):
    uid: str = ""
    resource: _Resource = _Resource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: _User = _User()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False


class _Review(WireStruct):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


_decode_review = codec.decoder(_Review)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Review:
    """A question, and the version that its answer has to be written in."""

    request: AdmissionRequest
    api_version: str


def decode_review(body: bytes) -> Review:
    """Read one question. Raises ReviewError saying what is wrong with it."""
    if not body:
        raise ReviewError("request body is empty")
    try:
        review = _decode_review(body)
    except codec.DecodeError as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from error
    if review.kind != _KIND or review.api_version not in (V1, V1BETA1):
        got = f"{review.api_version or 'no apiVersion'}, {review.kind or 'no kind'}"
        raise ReviewError(f"{got}: expected an {_KIND} of {V1} or {V1BETA1}")
    request = review.request
    if request is None:
        raise ReviewError(f"the {_KIND} has no request")
    if request.operation not in _OPERATIONS:
        raise ReviewError(f"request.operation: {request.operation!r}: allowed are {', '.join(_OPERATIONS)}")
    return Review(_admission_request(request, cast("Operation", request.operation)), review.api_version)


def _admission_request(request: _Request, operation: Operation) -> AdmissionRequest:
    return AdmissionRequest(
        operation=operation,
        group=request.resource.group,
        version=request.resource.version,
        resource=request.resource.resource,
        sub_resource=request.sub_resource,
        namespace=request.namespace,
        name=request.name,
        user_name=request.user_info.username,
        object=request.object,
        old_object=request.old_object,
        dry_run=request.dry_run,
        uid=request.uid,
    )


def encode_answer(answer: AdmissionAnswer, request: AdmissionRequest | None, api_version: str = V1) -> bytes:
    """The bytes of an answer. ``request`` is None where it could not be read."""
    status: Document = {"metadata": {}, "code": answer.code}
    if answer.message:
        status["message"] = answer.message
    if answer.reason:
        status["reason"] = answer.reason
    response: Document = {"uid": request.uid if request is not None else "", "allowed": answer.allowed}
    if answer.allowed and answer.changed is not None and request is not None:
        patch = make_patch(_changeable(request), answer.changed)
        if patch:
            response["patch"] = base64.b64encode(_encoder.encode(patch)).decode("ascii")
            response["patchType"] = "JSONPatch"
    response["status"] = status
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return _encoder.encode({"kind": _KIND, "apiVersion": api_version, "response": response})


def _changeable(request: AdmissionRequest) -> Document:
    if request.object is None:
        raise ReviewError(f"{request.operation} of {request.resource}: there is no object that could be changed")
    return request.object
