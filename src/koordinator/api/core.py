"""The remaining core kinds that are read: namespaces, configuration, priority classes, events."""

from __future__ import annotations

from koordinator.api.meta import Object, ObjectReference, WireStruct
from koordinator.api.timestamps import Time


class NamespaceSpec(WireStruct):
    finalizers: list[str] = []


class NamespaceStatus(WireStruct):
    phase: str = ""


class Namespace(Object):
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ConfigMap(Object):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Object):
    """``data`` is base64 text, as on the wire; never logged."""

    type: str = ""
    data: dict[str, str] = {}


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


class EventSource(WireStruct):
    component: str = ""
    host: str = ""


class EventSeries(WireStruct):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object):
    """core/v1 Event, with the fields that events.k8s.io added to it."""

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    action: str = ""
    count: int = 0
    source: EventSource = EventSource()
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
