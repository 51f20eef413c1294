"""Conversion of custom resources by the webhook of their definition, where their versions have different forms.

An object is stored in the form of one version, which its bytes name. Whoever reads it in another version gets what the
webhook makes of it; what is written in another version is converted before it is stored. A webhook may change anything
but the identity of an object: of its metadata only labels and annotations are taken over.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.cluster.admission_webhooks.client import RequestError
from koordinator.cluster.admission_webhooks.configuration import ClientConfig
from koordinator.cluster.errors import ApiError
from koordinator.cluster.strategy.metadata import validate_annotations, validate_labels

_GROUP: Final = "apiextensions.k8s.io"
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_SECONDS: Final = 30.0
_BATCH_OBJECTS: Final = 500
_BATCH_BYTES: Final = 1 << 20
"""A batch ends with the object that reaches it."""
_IDENTITY: Final = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
_TAKEN_OVER: Final = ("labels", "annotations")

PostReview = Callable[[ClientConfig, bytes, float], Awaitable[bytes]]
"""(where, body, seconds) -> the body of a successful response. Raises RequestError."""


class ConversionError(Exception):
    """A response that cannot be used; the text follows on "conversion webhook for KIND"."""


class WebhookConversion:
    """That of one definition. Implements ``koordinator.cluster.resource.Conversion``."""

    def __init__(self, post: PostReview, spec: Document) -> None:
        """``spec`` is the definition's, with the strategy Webhook."""
        webhook = spec["conversion"]["webhook"]
        self._client = ClientConfig.parse(webhook["clientConfig"])
        versions = webhook.get("conversionReviewVersions") or ()
        self._review_version = next((version for version in versions if version in _REVIEW_VERSIONS), "")
        self._post = post
        self._kind: str = spec["names"]["kind"]

    async def convert(self, objects: Sequence[Document], api_version: str) -> list[Document]:
        """Each in the wanted version, in the same order; those that have it are not sent. Raises ApiError 500."""
        result = list(objects)
        waiting = [index for index, obj in enumerate(objects) if obj["apiVersion"] != api_version]
        for batch in _batches(objects, waiting):
            sent = [objects[index] for index in batch]
            try:
                converted = await self._ask(sent, api_version)
            except ConversionError as error:
                message = f"conversion webhook for {sent[0]['apiVersion']}, Kind={self._kind} {error}"
                raise ApiError(500, "", message) from error
            for index, obj in zip(batch, converted, strict=True):
                result[index] = obj
        return result

    async def _ask(self, objects: Sequence[Document], api_version: str) -> list[Document]:
        if not self._review_version:
            raise ConversionError("failed: no supported conversion review versions")
        uid = str(uuid.uuid4())
        review_version = f"{_GROUP}/{self._review_version}"
        review = {
            "kind": "ConversionReview",
            "apiVersion": review_version,
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
        }
        try:
            body = await self._post(self._client, msgspec.json.encode(review), _SECONDS)
        except RequestError as error:
            # The client speaks of webhooks for admission.
            raise ConversionError(f"failed: {str(error).removeprefix('failed to call webhook: ')}") from error
        converted = _converted_objects(body, review_version, uid)
        if len(converted) != len(objects):
            raise ConversionError(f"returned {len(converted)} objects, expected {len(objects)}")
        pairs = zip(objects, converted, strict=True)
        if len(objects) == 1:
            return [_checked(*pair, api_version, ("object at index 0", "object", "metadata")) for pair in pairs]
        return [
            _checked(
                *pair,
                api_version,
                (f"converted object at index {index}",) * 2 + (f"metadata in object at index {index}",),
            )
            for index, pair in enumerate(pairs)
        ]


def _batches(objects: Sequence[Document], waiting: Sequence[int]) -> Iterator[list[int]]:
    """Parts that a webhook reads, and responds to, within the bounds of a response."""
    batch: list[int] = []
    size = 0
    for index in waiting:
        batch.append(index)
        size += len(msgspec.json.encode(objects[index]))
        if len(batch) >= _BATCH_OBJECTS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _converted_objects(body: bytes, review_version: str, uid: str) -> list[Any]:
    try:
        review = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConversionError(f"failed: {error}") from error
    said = f"{review.get('apiVersion') or ''}, Kind={review.get('kind') or ''}"
    expected = f"{review_version}, Kind=ConversionReview"
    if said != expected:
        raise ConversionError(f"failed: expected webhook response of {expected}, got {said}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise ConversionError("failed: no response provided")
    if response.get("uid") != uid and review_version.endswith("/v1"):
        raise ConversionError(f'failed: expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result")
    status = result if isinstance(result, dict) else {}
    if status.get("status") != "Success":
        why = f"response.result.status was '{status.get('status') or ''}', not 'Success'"
        raise ConversionError(f"failed: {status.get('message') or why}")
    converted = response.get("convertedObjects") or []
    return converted if isinstance(converted, list) else []


_Places = tuple[str, str, str]
"""What the messages call the object, where its type, its identity or its metadata is wrong."""


def _checked(before: Document, after: Any, api_version: str, places: _Places) -> Document:
    """The converted object, with the metadata that a conversion does not change. Raises ConversionError."""
    of_type, of_identity, of_metadata = (f"returned invalid {place}:" for place in places)
    if not isinstance(after, dict):
        raise ConversionError(f"{of_type} it is no object")
    for field, title, expected in (("apiVersion", "groupVersion", api_version), ("kind", "kind", before["kind"])):
        if after.get(field) != expected:
            found = after.get(field) or ""
            raise ConversionError(f"{of_type} invalid {title} (expected {expected}, received {found})")
    metadata = after.get("metadata")
    if not isinstance(metadata, dict):
        raise ConversionError(f"{of_metadata} missing metadata in converted object")
    for field, title in _IDENTITY:
        expected, found = before["metadata"].get(field) or "", metadata.get(field) or ""
        if expected != found:
            raise ConversionError(f"{of_identity} must have the same {title}: {expected} != {found}")
    return {**after, "metadata": _kept(before["metadata"], metadata, of_metadata)}


def _kept(before: Document, after: Document, where: str) -> Document:
    kept: Document = copied(before)
    for field, validate in zip(_TAKEN_OVER, (validate_labels, validate_annotations), strict=True):
        kept.pop(field, None)
        texts = after.get(field)
        if texts is None:
            continue
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ConversionError(f"{where} metadata.{field} must be texts in converted object")
        if causes := validate(texts, f"metadata.{field}"):
            raise ConversionError(f"{where} {causes[0].field}: {causes[0].message}")
        kept[field] = texts
    return kept
