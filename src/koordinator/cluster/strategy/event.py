"""Events: core/v1 and events.k8s.io/v1 are two views of the same stored objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.object_strategy import FieldLabels
from koordinator.cluster.strategy.table import Table, age, lookup

_RENAMED: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "source": "deprecatedSource",
    "reportingComponent": "reportingController",
}
"""core/v1 field -> events.k8s.io/v1 field; all others have one name."""
_FIELDS: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def to_events_group(core: Document) -> Document:
    """An event of core/v1 as events.k8s.io/v1 shows it."""
    event = {_RENAMED.get(name, name): value for name, value in core.items()}
    if event.get("series"):
        event["series"] = {"count": 0, "lastObservedTime": None, **event["series"]}
    return {**event, "apiVersion": "events.k8s.io/v1", "kind": "Event"}


def to_core(event: Document) -> Document:
    """An event of events.k8s.io/v1 as it is stored: in core/v1."""
    original = {new: old for old, new in _RENAMED.items()}
    return {**{original.get(name, name): value for name, value in event.items()}, "apiVersion": "v1", "kind": "Event"}


def event_field_labels(api_version: str) -> FieldLabels:
    """Readers of the field labels that either version supports."""
    subject = "involvedObject" if api_version == "v1" else "regarding"
    component = "reportingComponent" if api_version == "v1" else "reportingController"
    source = "source" if api_version == "v1" else "deprecatedSource"
    readers = {f"{subject}.{name}": _reader(subject, name) for name in _FIELDS}
    readers |= {name: _reader(name) for name in ("reason", "type")}
    readers |= {component: _reader(component), "source": _reader(source, "component")}
    return readers


def _reader(*path: str) -> Callable[[Document], str]:
    return lambda obj: lookup(obj, path) or ""


class EventTable(Table):
    """LAST SEEN, TYPE, REASON, OBJECT, MESSAGE; one row says how often and since when."""

    def row(self, obj: Document, now: datetime) -> list[Any]:
        event = obj if "involvedObject" in obj else to_core(obj)
        first = age(event.get("firstTimestamp") or event.get("eventTime"), now)
        last = age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
        count = event.get("count") or 1
        if series := event.get("series"):
            last, count = age(series.get("lastObservedTime"), now), series.get("count") or count
        subject = event["involvedObject"]
        about = f"{(subject.get('kind') or '').lower()}/{subject.get('name') or ''}" if subject.get("name") else ""
        return [
            last,
            event.get("type") or "",
            event.get("reason") or "",
            about or (subject.get("kind") or "").lower(),
            subject.get("fieldPath") or "",
            _source(event),
            (event.get("message") or "").strip(),
            first,
            count,
            event["metadata"].get("name") or "",
        ]


def _source(event: Document) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


EVENT_TABLE: Final = EventTable(
    (
        Column("Last Seen"),
        Column("Type"),
        Column("Reason"),
        Column("Object"),
        Column("Subobject", priority=1),
        Column("Source", priority=1),
        Column("Message"),
        Column("First Seen", priority=1),
        Column("Count", priority=1),
        Column("Name", format="name", priority=1),
    ),
    (),
)
