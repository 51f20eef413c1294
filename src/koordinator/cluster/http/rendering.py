"""Objects, lists and watch events as bytes, in the form that was negotiated."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.negotiation import Form
from koordinator.cluster.http.table import TableRenderer
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.encoding import decode, wire
from koordinator.cluster.verbs.list import ObjectList
from koordinator.cluster.verbs.watch import WatchEvent

_encode = msgspec.json.Encoder().encode
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Renderer(Protocol):
    """One form of the objects of one kind."""

    def one(self, stored: Stored) -> bytes: ...

    def many(self, found: ObjectList) -> bytes: ...

    def event_object(self, stored: Stored) -> bytes: ...

    def bookmark(self, metadata: Document) -> bytes: ...


def renderer(form: Form, resource: Resource, include_object: str, now: datetime) -> Renderer:
    """``include_object`` is the query parameter of tables: None, Metadata (the default) or Object."""
    if form == "table":
        return TableRenderer(resource, include_object, now)
    return MetadataRenderer(resource) if form == "metadata" else PlainRenderer(resource)


def events(render: Renderer, batch: Sequence[WatchEvent]) -> bytes:
    """One line per event, all in one write."""
    return b"".join(
        b'{"type":"%s","object":%s}\n' % (event.type.encode(), _event_object(render, event)) for event in batch
    )


def error_event(error: ApiError) -> bytes:
    return _encode({"type": "ERROR", "object": error.status()}) + b"\n"


def _event_object(render: Renderer, event: WatchEvent) -> bytes:
    if event.type != "BOOKMARK":
        return render.event_object(event.stored)
    metadata: Document = {"resourceVersion": str(event.stored.revision), "creationTimestamp": None}
    if event.initial_events_end:
        metadata["annotations"] = _INITIAL_EVENTS_END
    return render.bookmark(metadata)


class PlainRenderer:
    """Whole objects, spliced from their stored bytes."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        return wire(self._resource, stored)

    def many(self, found: ObjectList) -> bytes:
        resource = self._resource
        head = _encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": found.metadata()})
        return head[:-1] + b',"items":[' + b",".join([wire(resource, stored) for stored in found.items]) + b"]}"

    def event_object(self, stored: Stored) -> bytes:
        return wire(self._resource, stored)

    def bookmark(self, metadata: Document) -> bytes:
        resource = self._resource
        return _encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


class MetadataRenderer:
    """PartialObjectMetadata, for clients that need names, labels and owners alone."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        return self.bookmark(decode(self._resource, stored)["metadata"])

    def many(self, found: ObjectList) -> bytes:
        head = _encode(
            {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": found.metadata()}
        )
        return head[:-1] + b',"items":[' + b",".join([self.one(stored) for stored in found.items]) + b"]}"

    def event_object(self, stored: Stored) -> bytes:
        return self.one(stored)

    def bookmark(self, metadata: Document) -> bytes:
        return _encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
