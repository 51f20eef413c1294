"""From what a verb returns to the bytes of a response: JSON, tables, lists, watch events, Status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.negotiation import Form, Representation
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.read import ObjectList
from koordinator.cluster.verbs.target import decode, list_item, wire
from koordinator.cluster.verbs.watch import WatchEvent, WatchSession

Pieces = Sequence[bytes]
"""A body to be put together."""

# Responses that are not objects: statuses, documents, plain text.


_encode = msgspec.json.Encoder().encode

_HEADERS: Final = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
_PART: Final = 128 << 10
"""Bytes of a list that are handed to the connection at once."""
_LONGEST_IN_ALL: Final = 4096
"""Characters; when the texts come to more, each is cut."""
_LONGEST_CUT: Final = 256


def json_response(body: bytes | Payload, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    """``warnings`` become Warning headers, which kubectl prints."""
    response = web.Response(body=body, status=status, headers=_HEADERS)
    if warnings:
        for header in warning_headers(warnings):
            response.headers.add("Warning", header)
    return response


def list_response(pieces: Pieces, warnings: Iterable[str] = ()) -> web.Response:
    """A long list is put together while the client reads it, so that it is never in memory a second time as a whole."""
    size = sum(map(len, pieces))
    return json_response(b"".join(pieces) if size <= _PART else _InParts(pieces, size), warnings=warnings)


class _InParts(Payload):
    """A body of ``size`` bytes that is written part by part."""

    def __init__(self, pieces: Pieces, size: int) -> None:
        super().__init__(pieces, content_type="application/json")
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        part: list[bytes] = []
        size = 0
        for piece in self._value:
            part.append(piece)
            size += len(piece)
            if size >= _PART:
                # Waits where the client has not read what was sent before.
                await writer.write(b"".join(part))
                part, size = [], 0
        if part:
            await writer.write(b"".join(part))


def document_response(document: Any, status: int = 200) -> web.Response:
    return json_response(_encode(document), status)


def failure(error: ApiError) -> web.Response:
    response = json_response(_encode(error.status()), error.code, error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def success(details: Document | None = None, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    body: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    if status != 200:
        body["code"] = status
    return json_response(_encode(body), status, warnings)


def deleted_details(resource: Resource, stored: Stored) -> Document:
    """What kubectl waits for after a deletion: the uid that must be gone."""
    metadata = decode(resource, stored)["metadata"]
    details: Document = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
    return {**details, "group": resource.group} if resource.group else details


def warning_headers(texts: Iterable[str]) -> list[str]:
    """The values of the headers: each text once, without those beyond the limit of a response."""
    unique = dict.fromkeys(map(_printable, texts))
    unique.pop("", None)
    if sum(map(len, unique)) <= _LONGEST_IN_ALL:
        return [_header(text) for text in unique]
    headers, written = [], 0
    for text in unique:
        if written >= _LONGEST_IN_ALL:
            break
        cut = text[:_LONGEST_CUT]
        written += len(cut)
        headers.append(_header(cut))
    return headers


def _printable(text: str) -> str:
    """A header ends with its line, and control characters would be at home in a terminal."""
    if text.isprintable():
        return text
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown.strip()


def _header(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


# ``kubectl get``: rows of cells that the kind's strategy makes, with as much of the object as was requested.


class TableRenderer:
    """Of a watch only the first event names the columns, so one renderer serves one response."""

    def __init__(self, resource: Resource, include_object: str, now: datetime) -> None:
        self._resource = resource
        self._include = include_object or "Metadata"
        self._now = now
        self._columns_sent = False

    def one(self, stored: Stored) -> bytes:
        return _encode(self._table({"resourceVersion": str(stored.revision)}, [self._row(stored)]))

    def many(self, found: ObjectList) -> Pieces:
        return [_encode(self._table(found.metadata(), [self._row(stored) for stored in found.items]))]

    def bookmark(self, metadata: Document) -> bytes:
        cells = [""] * len(self._resource.strategy.columns())
        obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        revision = {"resourceVersion": metadata["resourceVersion"]}
        return _encode(self._table(revision, [{"cells": cells, "object": obj}]))

    def _table(self, metadata: Document, rows: list[Document]) -> Document:
        columns = [] if self._columns_sent else [asdict(column) for column in self._resource.strategy.columns()]
        self._columns_sent = True
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        }

    def _row(self, stored: Stored) -> Document:
        obj = decode(self._resource, stored)
        row: Document = {"cells": self._resource.strategy.row(obj, self._now)}
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        return row


# Objects, lists and watch events as bytes, in the form that was negotiated.


_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Renderer(Protocol):
    """One form of the objects of one kind."""

    def one(self, stored: Stored) -> bytes: ...

    def many(self, found: ObjectList) -> Pieces: ...

    def bookmark(self, metadata: Document) -> bytes: ...


def renderer(form: Form, resource: Resource, include_object: str, now: datetime) -> Renderer:
    """``include_object`` is the query parameter of tables: None, Metadata (the default) or Object."""
    if form == "table":
        return TableRenderer(resource, include_object, now)
    return MetadataRenderer(resource) if form == "metadata" else PlainRenderer(resource)


def event_line(render: Renderer, event: WatchEvent) -> bytes:
    """Of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (event.type.encode(), _event_object(render, event))


def error_event(error: ApiError) -> bytes:
    return _encode({"type": "ERROR", "object": error.status()}) + b"\n"


def _event_object(render: Renderer, event: WatchEvent) -> bytes:
    if event.type != "BOOKMARK":
        return render.one(event.stored)
    metadata: Document = {"resourceVersion": str(event.stored.revision)}
    if event.initial_events_end:
        metadata["annotations"] = _INITIAL_EVENTS_END
    return render.bookmark(metadata)


class PlainRenderer:
    """Whole objects, spliced from their stored bytes."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        return wire(self._resource, stored)

    def many(self, found: ObjectList) -> Pieces:
        resource = self._resource
        head = _encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": found.metadata()})
        pieces: list[bytes] = [head[:-1] + b',"items":[']
        for stored in found.items:
            pieces += list_item(resource, stored)
            pieces.append(b",")
        if found.items:
            del pieces[-1]
        pieces.append(b"]}")
        return pieces

    def bookmark(self, metadata: Document) -> bytes:
        resource = self._resource
        return _encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


class MetadataRenderer:
    """PartialObjectMetadata, for clients that need names, labels and owners alone."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        return self.bookmark(decode(self._resource, stored)["metadata"])

    def many(self, found: ObjectList) -> Pieces:
        head = _encode(
            {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": found.metadata()}
        )
        return [head[:-1] + b',"items":[' + b",".join([self.one(stored) for stored in found.items]) + b"]}"]

    def bookmark(self, metadata: Document) -> bytes:
        return _encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})


# A watch as a chunked response: a line of JSON per event.


_LOG = logging.getLogger(__name__)


Join = Callable[[Sequence[WatchEvent]], bytes]
"""From a batch of events to its lines, for one write."""


async def stream_watch(
    request: web.BaseRequest, session: WatchSession, agreed: Representation, join: Join
) -> web.StreamResponse:
    """Ends when the watch does. The headers go out before the first event: clients wait for them."""
    response = web.StreamResponse(headers={"Content-Type": agreed.stream_type, "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(request)

    async def send(batch: Sequence[WatchEvent]) -> None:
        await response.write(join(batch))

    try:
        error = await session.run(send)
    except ConnectionAbortedError as aborted:
        _LOG.warning("the watch of %s is dropped: %s", request.path_qs, aborted)
        if request.transport is not None:
            request.transport.abort()  # with all that is buffered for it
        return response
    if error is not None:
        await response.write(agreed.frame(error_event(error)))
    return response
