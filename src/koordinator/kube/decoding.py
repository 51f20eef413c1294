"""Responses to objects: one malformed object costs its reader that object, not the list or the watch it is in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from koordinator.api import codec
from koordinator.api.kinds import Kind
from koordinator.api.meta import ListMeta, Object, ObjectMeta, Status, StatusDetails, WireStruct
from koordinator.kube.errors import ApiStatusError, MalformedObjectError, TransportError
from koordinator.kube.interface import ListPage, Malformed

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
D = TypeVar("D")
_DEEPEST: Final = 100
_BODY_EXCERPT = 300
SLICE_BYTES: Final = 16 << 10
"""Of JSON: about a millisecond."""
# As the API server writes it; who writes it in another way is understood too.
_STATUS: Final = b'{"kind":"Status",'


class _TypedList(WireStruct, Generic[T]):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class _RawList(WireStruct):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class _Kind(WireStruct):
    kind: str = ""


def decode_object(kind: Kind[T], body: bytes, what: str) -> T:
    """The object of a response. Raises MalformedObjectError naming the request and the field."""
    try:
        return codec.decode(body, kind.type)
    except codec.DecodeError as error:
        raise MalformedObjectError(f"{what}: the {kind.name} answered cannot be read: {error}") from error


def decode_created(kind: Kind[T], body: bytes, what: str) -> T:
    """As ``decode_object``; for the Status that a binding or an eviction returns, an object of that kind alone."""
    try:
        if body.startswith(_STATUS) or codec.decode(body, _Kind).kind == "Status":
            return cast("T", _status_as(kind.type))
    except codec.DecodeError as error:
        raise MalformedObjectError(f"{what}: the response cannot be read: {error}") from error
    return decode_object(kind, body, what)


class _Deleted(WireStruct):
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    details: StatusDetails | None = None


def decode_deleted(kind: Kind[T], body: bytes) -> tuple[T | None, str]:
    """The response to a deletion: the object if it is there still, because it ends later or waits for finalizers; the
    uid if it is gone. Neither, where that cannot be read: the server has accepted the deletion all the same."""
    try:
        deleted = codec.decode(body, _Deleted)
        if deleted.kind == "Status":
            return None, "" if deleted.details is None else deleted.details.uid
        if deleted.metadata.finalizers or deleted.metadata.deletion_grace_period_seconds:
            return codec.decode(body, kind.type), ""
    except codec.DecodeError as error:
        logger.debug("the response to the deletion of a %s cannot be read: %s", kind.name, error)
        return None, ""
    return None, deleted.metadata.uid


@cache
def _status_as(expected: type[Object]) -> Object:
    return expected(api_version="v1", kind="Status")


def decode_list(kind: Kind[T], body: bytes, what: str) -> ListPage[T]:
    """A page in one pass; item by item only where that fails."""
    try:
        page = codec.decode(body, _TypedList[kind.type])  # type: ignore[name-defined]
        return _page(page.metadata, page.items or [], [])
    except codec.DecodeError:
        return _decode_items(kind, body, what)


async def decode_list_in_slices(kind: Kind[T], body: bytes, what: str) -> ListPage[T]:
    """As ``decode_list``, for programs that serve others meanwhile: it yields to the event loop in between. Takes a
    quarter more CPU."""
    page = _raw_list(body, what)
    raws = page.items or []
    together = max(1, SLICE_BYTES * len(raws) // len(body))
    found: list[T | Malformed] = []
    for start in range(0, len(raws), together):
        found += [decode_item(kind, raw) for raw in raws[start : start + together]]
        await asyncio.sleep(0)
    return _sorted_page(page.metadata, found)


def _decode_items(kind: Kind[T], body: bytes, what: str) -> ListPage[T]:
    page = _raw_list(body, what)
    return _sorted_page(page.metadata, [decode_item(kind, raw) for raw in page.items or []])


def _raw_list(body: bytes, what: str) -> _RawList:
    try:
        return decode_around(body, _RawList)
    except codec.DecodeError as error:
        raise TransportError(f"{what}: the response is not a list: {error}") from error


def decode_around(body: bytes, expected: type[D]) -> D:
    """Decode what is around objects. One of them may be nested deeper than any decoder goes: it is cut, so that it
    alone is malformed. Raises DecodeError."""
    try:
        return codec.decode(body, expected)
    except codec.NestingError:
        return codec.decode(codec.without_nesting(body, _DEEPEST), expected)


def _sorted_page(metadata: ListMeta, found: Sequence[T | Malformed]) -> ListPage[T]:
    items = [item for item in found if not isinstance(item, Malformed)]
    return _page(metadata, items, [item for item in found if isinstance(item, Malformed)])


def _page(metadata: ListMeta, items: list[T], malformed: list[Malformed]) -> ListPage[T]:
    return ListPage(items, malformed, metadata.resource_version, metadata.continue_, metadata.remaining_item_count)


def decode_item(kind: Kind[T], raw: msgspec.Raw | bytes) -> T | Malformed:
    """One object of a list or a watch."""
    try:
        if codec.NESTED in bytes(raw):
            raise codec.NestingError(codec.TOO_DEEP)
        return codec.decode(raw, kind.type)
    except codec.DecodeError as error:
        return _malformed(kind, raw, error)


def _malformed(kind: Kind[Any], raw: msgspec.Raw | bytes, error: codec.DecodeError) -> Malformed:
    document = codec.decode_any(codec.without_nesting(bytes(raw), _DEEPEST))

    def text(part: str, name: str) -> str:
        found = document.get(part) if isinstance(document, dict) else None
        value = found.get(name) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""

    return Malformed(
        kind,
        text("metadata", "namespace"),
        text("metadata", "name"),
        text("metadata", "uid"),
        text("metadata", "resourceVersion"),
        str(error),
        text("spec", "nodeName"),
        text("status", "phase"),
    )


def status_error(code: int, headers: Mapping[str, str], body: bytes) -> ApiStatusError:
    """The failure in a response; bodies that are not a Status (a proxy's page, say) are quoted in part."""
    pause = retry_after_seconds(headers)
    try:
        status = codec.decode(body, Status)
    except codec.DecodeError:
        status = Status()
    if status.status != "Failure":
        text = body[:_BODY_EXCERPT].decode("utf-8", "replace").strip()
        return ApiStatusError(code, "", text or "the server gave no message", retry_after=pause)
    return error_from_status(status, code, pause)


def error_from_status(status: Status, code: int = 0, retry_after: float | None = None) -> ApiStatusError:
    """The exception for a Status, from a response or from an ERROR event of a watch."""
    if retry_after is None and status.details.retry_after_seconds > 0:
        retry_after = float(status.details.retry_after_seconds)
    return ApiStatusError(status.code or code, status.reason, status.message, status.details, retry_after)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The Retry-After header in seconds; API servers never send its date form, which counts as absent."""
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None
