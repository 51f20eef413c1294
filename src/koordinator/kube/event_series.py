"""Events as the recorder holds them before and after writing: identity, series and the text limits of events.k8s.io."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectReference
from koordinator.api.modification import Modification, event_metadata
from koordinator.api.timestamps import format_micro_time
from koordinator.base.clock import Clock

_NOTE_LIMIT = 1024
_CHARACTER_LIMIT = 4
_NOTE_SUFFIX = b" ..."
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

EVENTS_V1 = Kind("events.k8s.io", "v1", "events", "Event", Object)
"""Responses are decoded as metadata only, because the recorder needs nothing else of them."""
_API_VERSION = EVENTS_V1.api_version


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Sizes and times (seconds); upstream's values where upstream has them."""

    capacity: int = 10_000
    """Events that wait to be written; beyond it, the oldest are dropped, essential ones last."""
    series_capacity: int = 20_000
    """Events whose repetitions are joined into series; beyond it, the oldest series end."""
    writers: int = 8
    """The maximum of concurrent requests."""
    overdue: int = 32
    """The maximum of further requests that have had no answer for some seconds."""
    backlog_per_writer: int = 500
    """While the broadcaster gives way to other work, one more writer is active for every so many pending events."""
    series_end: float = 360.0
    series_refresh: float = 1800.0
    retry_initial: float = 0.5
    retry_maximum: float = 30.0
    tries: int = 12
    """The maximum of attempts for events that are not essential."""
    essential_reasons: Collection[str] = frozenset({"Scheduled"})
    """Events with these reasons pass the spam filter, and are retried for as long as the API server is unreachable."""

    def pause_after(self, tries: int) -> float:
        """Return the seconds to wait after ``tries`` failures in a row."""
        # 2**64 is far above any maximum; a larger exponent would only overflow.
        return min(self.retry_maximum, self.retry_initial * 2.0 ** min(tries - 1, 64))


class EventKey(NamedTuple):
    """Events that agree in all these fields form one series. As upstream, the version of ``regarding`` is included."""

    type: str
    action: str
    reason: str
    controller: str
    regarding: ObjectReference
    related: ObjectReference | None


class EventEntry(msgspec.Struct, eq=False, gc=False):
    """One event object, on the server or about to be written."""

    key: EventKey
    name: str
    namespace: str
    note: str
    event_time: datetime
    essential: bool
    last_observed: datetime
    refreshed: datetime
    modification: Modification | None = None
    """The record that the event carries; such an event forms no series."""
    count: int = 1
    written_count: int = 0
    tries: int = 0
    dropped: bool = False
    is_in_line: bool = False
    """Whether it waits for its turn to be written."""
    is_being_written: bool = False
    is_wanted_again: bool = False
    """Whether it has to be written again after that."""

    def encoded(self, instance: str) -> bytes:
        """Return the body of the POST that creates the event."""
        key = self.key
        event = _Event(
            _API_VERSION,
            EVENTS_V1.name,
            self._metadata(),
            _micro_time(self.event_time),
            key.controller,
            instance,
            key.action,
            key.reason,
            key.regarding,
            self.note,
            key.type,
            key.related,
            self._series() if self.count > 1 else None,
        )
        return _encoder.encode(event)

    def _metadata(self) -> _EventMetadata:
        if self.modification is None:
            return _EventMetadata(self.name, self.namespace)
        return _EventMetadata(self.name, self.namespace, *event_metadata(self.modification))

    def series_patch(self) -> bytes:
        """Return the body of the PATCH that writes the series' count."""
        return _encoder.encode({"series": self._series()})

    def _series(self) -> _Series:
        return _Series(self.count, _micro_time(self.last_observed))


class _Series(msgspec.Struct, rename="camel", gc=False):
    """The encoded form of EventSeries."""

    count: int
    last_observed_time: datetime | str


class _EventMetadata(msgspec.Struct, omit_defaults=True, gc=False):
    name: str
    namespace: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Event(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The encoded form of an event."""

    api_version: str
    kind: str
    metadata: _EventMetadata
    event_time: datetime | str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    note: str
    type: str
    related: ObjectReference | None = None
    series: _Series | None = None


_encoder = msgspec.json.Encoder()


def _micro_time(moment: datetime) -> datetime | str:
    """Return a value that is encoded as a MicroTime: msgspec writes six decimals, but none if all are zero."""
    return moment if moment.microsecond else format_micro_time(moment)


def reference_to(kind: Kind[Any], obj: Object) -> ObjectReference:
    """Return the reference for events; the kind is an argument, because objects in lists do not contain theirs."""
    metadata = obj.metadata
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.name,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def event_name(about: str, nanoseconds: int) -> str:
    """Return ``NAME.HEXNANOS``; a random name if that is not a valid object name."""
    name = f"{about}.{nanoseconds:x}"
    return name if len(name) <= 253 and _DNS_SUBDOMAIN.fullmatch(name) else str(uuid4())


def limit_note(note: str) -> str:
    """Return at most 1,024 bytes, cut between characters and marked with " ..." as kube-scheduler does."""
    if len(note) <= _NOTE_LIMIT // _CHARACTER_LIMIT:
        return note
    encoded = note.encode()
    if len(encoded) <= _NOTE_LIMIT:
        return note
    return (encoded[: _NOTE_LIMIT - len(_NOTE_SUFFIX)].decode(errors="ignore").encode() + _NOTE_SUFFIX).decode()


# A rate limit on the events of one source about one object, so that a hot loop cannot flood the API server.


class SpamFilter:
    """A token bucket per key, client-go's sizes by default; the least recently used keys are evicted."""

    def __init__(self, clock: Clock, *, burst: int = 25, qps: float = 1 / 300, capacity: int = 4096) -> None:
        self._clock = clock
        self._burst = burst
        self._qps = qps
        self._capacity = capacity
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def allows(self, key: Hashable) -> bool:
        """Take a token of this key. Returns whether there was one."""
        now = self._clock.monotonic()
        tokens, updated = self._buckets.pop(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - updated) * self._qps)
        allowed = tokens >= 1
        self._buckets[key] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._capacity:
            self._buckets.popitem(last=False)
        return allowed


def spam_key(key: EventKey) -> tuple[str, ...]:
    about = key.regarding
    return (key.controller, key.type, about.api_version, about.kind, about.namespace, about.name, about.uid)
