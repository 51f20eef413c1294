"""Events: core/v1 and events.k8s.io/v1 are two views of the same stored objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import label_key
from koordinator.cluster.resource import Cause, Column
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.strategy.object_strategy import FieldLabels
from koordinator.cluster.strategy.rules import immutable
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
    source = (("source" if api_version == "v1" else "deprecatedSource"), "component")
    readers = {f"{subject}.{name}": _reader(subject, name) for name in _FIELDS}
    readers |= {name: _reader(name) for name in ("reason", "type")}
    # What reports by the newer version names no source.
    readers |= {component: _reader(component), "source": lambda obj: lookup(obj, source) or obj.get(component) or ""}
    return readers


def _reader(*path: str) -> Callable[[Document], str]:
    return lambda obj: lookup(obj, path) or ""


# What an event must say: little where it comes by core/v1, which is older.


_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "note": 1024}
_FROZEN: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reportingController",
    "reportingInstance", "type", "action", "related", "eventTime",
)  # fmt: skip

_TEXTS: Final = ("reason", "message", "reportingController", "reportingInstance", "type", "action")


def check_core_event(obj: Document, old: Document | None) -> list[Cause]:
    return _namespaces(obj["metadata"], obj["involvedObject"])


def check_event(obj: Document, old: Document | None) -> list[Cause]:
    """Of events.k8s.io/v1."""
    # A namespace that is there is taken for good.
    checks_namespace = not obj["regarding"].get("namespace")
    causes = _namespaces(obj["metadata"], obj["regarding"]) if checks_namespace else []
    if old is None and not obj.get("eventTime"):
        causes.append(required("eventTime"))
    if old is None:
        kind = obj.get("type") or ""
        if kind not in ("Normal", "Warning"):
            causes.append(invalid("type", "", f"has invalid value: {kind}"))
    causes += _reporter(obj)
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            causes.append(invalid("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            causes.append(required("series.lastObservedTime"))
    return causes if old is None else causes + immutable(_as_core(obj), _as_core(old), _FROZEN, _TEXTS)


def _as_core(event: Document) -> Document:
    core = to_core(event)
    core["reportingController"] = core.pop("reportingComponent", None)
    return core


def _namespaces(metadata: Document, subject: Document) -> list[Cause]:
    namespace, of = metadata.get("namespace") or "", subject.get("namespace") or ""
    # What is about no namespace is reported in the default one.
    fits = of == namespace or (not of and namespace == "default")
    return [] if fits else [invalid("involvedObject.namespace", of, "does not match event.namespace")]


def _reporter(event: Document) -> list[Cause]:
    causes: list[Cause] = []
    controller = event.get("reportingController") or ""
    if not controller:
        causes.append(required("reportingController"))
    causes += [invalid("reportingController", controller, detail) for detail in label_key(controller)]
    for name, limit in _LIMITS.items():
        text = event.get(name) or ""
        if not text and name != "note":
            causes.append(required(name))
        if len(text.encode()) > limit:
            shown = "message" if name == "note" else name
            causes.append(invalid(shown, "", f"can have at most {limit} characters"))
    return causes


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
