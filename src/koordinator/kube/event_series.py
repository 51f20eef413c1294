"""Events as they are kept before and after they are written: identity, series and the text limits of events.k8s.io."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectReference
from koordinator.api.timestamps import format_micro_time

_NOTE_LIMIT = 1024
_NOTE_SUFFIX = b" ..."
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

EVENTS_V1 = Kind("events.k8s.io", "v1", "events", "Event", Object)
"""Read back for its metadata alone: nothing that the recorder wrote is taken from the server."""


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Sizes and times (seconds); upstream's where it has them."""

    capacity: int = 10_000
    """Events that wait to be written; the oldest are dropped beyond it, essential ones last."""
    series_capacity: int = 20_000
    """Events whose repetitions are joined; the oldest series end beyond it."""
    writers: int = 4
    series_end: float = 360.0
    series_refresh: float = 1800.0
    retry_initial: float = 0.5
    retry_maximum: float = 30.0
    tries: int = 12
    """For events that are not essential."""
    essential_reasons: Collection[str] = frozenset({"Scheduled"})
    """Neither filtered nor given up while the API server is away."""


class EventKey(NamedTuple):
    """Events that agree in all of this are one series. As upstream's, it has the version of ``regarding``."""

    type: str
    action: str
    reason: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None


@dataclass(slots=True, eq=False)
class EventEntry:
    """One event object on the server, written or about to be."""

    key: EventKey
    name: str
    namespace: str
    note: str
    event_time: datetime
    essential: bool
    last_observed: datetime
    refreshed: datetime
    count: int = 1
    written_count: int = 0
    tries: int = 0
    dropped: bool = field(default=False)

    def document(self, instance: str) -> dict[str, Any]:
        """The body that creates it."""
        key = self.key
        body: dict[str, Any] = {
            "apiVersion": EVENTS_V1.api_version,
            "kind": EVENTS_V1.name,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": format_micro_time(self.event_time),
            "reportingController": key.controller,
            "reportingInstance": instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": _reference_document(key.regarding),
            "note": self.note,
            "type": key.type,
        }
        if key.related is not None:
            body["related"] = _reference_document(key.related)
        if self.count > 1:
            body["series"] = self.series()
        return body

    def series(self) -> dict[str, Any]:
        return {"count": self.count, "lastObservedTime": format_micro_time(self.last_observed)}


def reference_to(kind: Kind[Any], obj: Object) -> ObjectReference:
    """The reference that events carry; the kind is named because listed objects do not say theirs."""
    metadata = obj.metadata
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.name,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def _reference_document(reference: ObjectReference) -> dict[str, str]:
    document = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "resourceVersion": reference.resource_version,
        "fieldPath": reference.field_path,
    }
    return {name: value for name, value in document.items() if value}


def event_name(about: str, nanoseconds: int) -> str:
    """``NAME.HEXNANOS``; a random name where that is none that the API takes."""
    name = f"{about}.{nanoseconds:x}"
    return name if len(name) <= 253 and _DNS_SUBDOMAIN.fullmatch(name) else str(uuid4())


def limit_note(note: str) -> str:
    """At most 1,024 bytes, cut between characters and marked with " ..." as kube-scheduler does."""
    encoded = note.encode()
    if len(encoded) <= _NOTE_LIMIT:
        return note
    return (encoded[: _NOTE_LIMIT - len(_NOTE_SUFFIX)].decode(errors="ignore").encode() + _NOTE_SUFFIX).decode()
