"""AdmissionReview, v1 and v1beta1: decoded into requests for handlers, encoded with their responses and patches.

The two versions differ only in their names; the response has the version of the request.

The JSON patch (RFC 6902) is made here, since every pod creation needs one: the library that applies patches elsewhere
needs 5 ms for a pod of four containers, which is the whole time budget of an admission, and this code a fiftieth of
that.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from koordinator.api import codec
from koordinator.api.meta import WireStruct
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.admission import AdmissionRequest, AdmissionResponse, Document, Operation

V1: Final = "admission.k8s.io/v1"
V1BETA1: Final = "admission.k8s.io/v1beta1"
_KIND: Final = "AdmissionReview"
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_encoder = msgspec.json.Encoder()
Patch = list[dict[str, Any]]
_encode = msgspec.json.Encoder().encode


class ReviewError(KoordinatorError):
    """The body is not an AdmissionReview that can be responded to."""


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


@dataclass(frozen=True, slots=True)
class Review:
    """A request, and the version that its response must have."""

    request: AdmissionRequest
    api_version: str


def decode_review(body: bytes) -> Review:
    """Decode one request. Raises ReviewError saying what is wrong with it."""
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


def encode_response(response: AdmissionResponse, request: AdmissionRequest | None, api_version: str = V1) -> bytes:
    """Encode a response. ``request`` is None where it could not be decoded."""
    status: Document = {"metadata": {}, "code": response.code}
    if response.message:
        status["message"] = response.message
    if response.reason:
        status["reason"] = response.reason
    body: Document = {"uid": request.uid if request is not None else "", "allowed": response.allowed}
    if response.allowed and response.changed is not None and request is not None:
        patch = make_patch(_changeable(request), response.changed)
        if patch:
            body["patch"] = base64.b64encode(_encoder.encode(patch)).decode("ascii")
            body["patchType"] = "JSONPatch"
    body["status"] = status
    if response.warnings:
        body["warnings"] = list(response.warnings)
    return _encoder.encode({"kind": _KIND, "apiVersion": api_version, "response": body})


def _changeable(request: AdmissionRequest) -> Document:
    if request.object is None:
        raise ReviewError(f"{request.operation} of {request.resource}: there is no object that could be changed")
    return request.object


def make_patch(old: Any, new: Any) -> Patch:
    """The operations that turn ``old`` into ``new``; empty when they are equal."""
    patch: Patch = []
    _compare(old, new, "", patch)
    return patch


def _compare(old: Any, new: Any, path: str, patch: Patch) -> None:
    if old is new:
        return
    if type(old) is dict and type(new) is dict:
        _compare_objects(old, new, path, patch)
    elif type(old) is list and type(new) is list:
        _compare_lists(old, new, path, patch)
    elif type(old) is not type(new) or old != new:
        patch.append({"op": "replace", "path": path, "value": new})


def _compare_objects(old: dict[str, Any], new: dict[str, Any], path: str, patch: Patch) -> None:
    for key in old:
        if key not in new:
            patch.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
    for key, value in new.items():
        if key in old:
            before = old[key]
            if before is not value:
                _compare(before, value, f"{path}/{_escaped(key)}", patch)
        else:
            patch.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})


def _compare_lists(old: list[Any], new: list[Any], path: str, patch: Patch) -> None:
    """Common items at both ends stay; between them, items are compared in pairs and the rest is removed or added."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and _same(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    pairs = shorter - end
    for index in range(start, pairs):
        _compare(old[index], new[index], f"{path}/{index}", patch)
    for index in reversed(range(pairs, len(old) - end)):
        patch.append({"op": "remove", "path": f"{path}/{index}"})
    for index in range(pairs, len(new) - end):
        patch.append({"op": "add", "path": f"{path}/{index}", "value": new[index]})


def _same(old: Any, new: Any) -> bool:
    """Compared as JSON text, which is many times faster than recursion, and where true differs from 1."""
    return old is new or _encode(old) == _encode(new)


def _escaped(key: str) -> str:
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key
