"""AdmissionReview: the question that is sent, and the response that is understood."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.webhook_configuration import REVIEW_VERSIONS
from koordinator.cluster.verbs.environment import Attributes

# What goes wrong with a call, and what a webhook's refusal looks like to the client.


class CallError(KoordinatorError):
    """A webhook gave no usable response; its failure policy says what follows. ``reason`` is for a person."""

    def __init__(self, webhook: str, reason: str) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook)}: {reason}")
        self.reason = reason


def internal_error(message: str) -> ApiError:
    """What every failure inside of the server becomes."""
    cause = {"message": message}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [cause]})


def dry_run_unsupported(webhook: str) -> ApiError:
    return bad_request(f"admission webhook {quoted(webhook)} does not support dry run")


def timed_out() -> ApiError:
    """The request's own time is over."""
    message = "Timeout: request did not complete within the allotted timeout"
    return ApiError(504, "Timeout", message, {})


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_PLAIN_TEXT: Final = (
    "json: cannot unmarshal string into Go value of type "
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
"""The real server takes what is no JSON for YAML, and a page of HTML or text for a string in it."""
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}


class UndecodableResponse(KoordinatorError):
    """A response that is no AdmissionReview at all."""


class InvalidResponse(KoordinatorError):
    """An AdmissionReview that breaks the contract."""


class Refusal(msgspec.Struct):
    """What a webhook's Status says; the server passes it on."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: dict[str, Any] | None = None


class _Response(msgspec.Struct):
    uid: str | None = None
    allowed: bool | None = None
    status: Refusal | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    apiVersion: str | None = None
    kind: str | None = None
    response: _Response | None = None


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """What a webhook decided."""

    allowed: bool
    refusal: Refusal
    warnings: Sequence[str]
    patch: bytes
    """JSON; empty when nothing is to be changed."""
    patch_type: str


def preferred_version(accepted: Sequence[str]) -> str:
    """The first version in the webhook's order that we speak. Raises InvalidResponse."""
    for version in accepted:
        if version in REVIEW_VERSIONS:
            return version
    listed = ", ".join(REVIEW_VERSIONS)
    raise InvalidResponse(f"webhook does not accept known AdmissionReview versions ({listed})")


def question(attributes: Attributes, resource: Resource, objects: tuple[Document | None, Document | None]) -> Document:
    """``request``, but for its uid. ``resource`` is the version that the webhook accepts, ``objects`` new and old."""
    target = attributes.target
    requested, obj = target.resource, objects[0]
    name = target.name or ((obj or {}).get("metadata") or {}).get("name") or ""
    request: Document = {
        "kind": _kind(attributes, resource),
        "resource": _resource(resource),
        "requestKind": _kind(attributes, requested),
        "requestResource": _resource(requested),
        "operation": attributes.operation,
        "userInfo": attributes.request.user.document(),
        "object": objects[0],
        "oldObject": objects[1],
        "dryRun": attributes.request.dry_run,
        "options": _options(attributes),
    }
    named = {
        "name": name,
        "namespace": attributes.namespace,
        "subResource": target.subresource,
        "requestSubResource": target.subresource,
    }
    return {**request, **{field: value for field, value in named.items() if value}}


def encode(request: Document, version: str, uid: str) -> bytes:
    return msgspec.json.encode({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": {"uid": uid, **request}})


def parse_response(body: bytes, version: str, uid: str, *, mutating: bool) -> AdmissionResponse:
    """Raises UndecodableResponse and InvalidResponse."""
    review = _decode(body, version)
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    patch = _patch(response)
    if version == "v1":
        _check(review, response, uid, patch, mutating=mutating)
    # v1beta1 has only one type, and its responses did not have to carry it.
    patch_type = response.patchType or "" if version == "v1" else "JSONPatch"
    warnings = response.warnings or ()
    allowed, refusal = bool(response.allowed), response.status or Refusal()
    return AdmissionResponse(allowed, refusal, warnings, patch if mutating else b"", patch_type)


def _options(attributes: Attributes) -> Document:
    if attributes.delete_options is not None:
        return attributes.delete_options.document()
    return attributes.request.document(_OPTIONS[attributes.operation])


def _kind(attributes: Attributes, resource: Resource) -> Document:
    group, version, kind = attributes.body_kind or (resource.group, resource.version, resource.kind)
    return {"group": group, "version": version, "kind": kind}


def _resource(resource: Resource) -> Document:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _decode(body: bytes, version: str) -> _Review:
    try:
        review = msgspec.json.decode(body, type=_Review)
    except msgspec.ValidationError as error:
        raise UndecodableResponse(f"json: cannot unmarshal the response: {error}") from error
    except msgspec.DecodeError as error:
        why = str(error) if body.lstrip()[:1] in (b"{", b"[") else _PLAIN_TEXT
        raise UndecodableResponse(f"couldn't get version/kind; json parse error: {why}") from error
    found, kind = review.apiVersion or f"{_GROUP}/{version}", review.kind or _KIND
    group, _, spoken = found.rpartition("/")
    if (group, kind) != (_GROUP, _KIND):
        raise UndecodableResponse(f"no kind {quoted(kind)} is registered for version {quoted(found)}")
    if spoken != version:
        what = f"converting ({spoken}.AdmissionReview) to ({version}.AdmissionReview)"
        raise UndecodableResponse(f"{what}: unknown conversion")
    return review


def _patch(response: _Response) -> bytes:
    try:
        return base64.b64decode(response.patch or "", validate=True)
    except binascii.Error as error:
        raise UndecodableResponse(f"illegal base64 data in response.patch: {error}") from error


def _check(review: _Review, response: _Response, uid: str, patch: bytes, *, mutating: bool) -> None:
    if response.uid != uid:
        raise InvalidResponse(f"expected response.uid={quoted(uid)}, got {quoted(response.uid or '')}")
    if (review.apiVersion, review.kind) != (f"{_GROUP}/v1", _KIND):
        found = f"{review.apiVersion or '/'}, Kind={review.kind or ''}"
        raise InvalidResponse(f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got {found}")
    if not mutating:
        for name, value in (("patch", patch or None), ("patchType", response.patchType)):
            if value is not None:
                raise InvalidResponse(f"validating webhook may not return response.{name}")
        return
    if patch and response.patchType is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if not patch and response.patchType is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    if response.patchType == "":
        raise InvalidResponse('webhook returned invalid response.patchType of ""')
