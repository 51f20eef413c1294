"""A watch's bytes to events: lines of bounded length, each a typed change, an expiry or a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from koordinator.api import codec
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, Status, WireStruct
from koordinator.kube.decoding import decode_item, error_from_status
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import Malformed, WatchEvent

T = TypeVar("T", bound=Object)
# etcd refuses objects over 1.5 MiB; as JSON with managed fields they may be a few times that.
MAX_LINE_BYTES = 32 << 20
_CHANGES: dict[str, Literal["ADDED", "MODIFIED", "DELETED"]] = {
    "ADDED": "ADDED",
    "MODIFIED": "MODIFIED",
    "DELETED": "DELETED",
}


class _TypedEvent(WireStruct, Generic[T]):
    type: str = ""
    object: T | None = None


class _RawEvent(WireStruct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class LineSplitter:
    """Chunks in, whole lines out. Raises TransportError for a line over ``limit`` bytes."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        for part in rest:
            line = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._keep(part)
            if line:
                yield line

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
        if self._size > self._limit:
            raise TransportError(f"a line of the watch is longer than {self._limit} bytes")

    @property
    def pending(self) -> int:
        """Bytes of a line that has not ended yet."""
        return self._size


def decode_event(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    """One line. Raises ApiStatusError for an ERROR event, TransportError for what is no event."""
    try:
        typed = codec.decode(line, _TypedEvent[kind.type])  # type: ignore[name-defined]
    except codec.DecodeError:
        return _decode_slowly(kind, line)
    change = _CHANGES.get(typed.type)
    if change is not None and typed.object is not None:
        return WatchEvent(change, typed.object, typed.object.metadata.resource_version)
    return _decode_slowly(kind, line)


def _decode_slowly(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    """Events whose object is not of the kind: bookmarks, failures, malformed objects."""
    try:
        event = codec.decode(line, _RawEvent)
        if event.type == "ERROR":
            raise error_from_status(codec.decode(event.object, Status))
        if event.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", None, codec.decode(event.object, Object).metadata.resource_version)
    except codec.DecodeError as error:
        raise TransportError(f"a line of the watch is not an event: {error}") from error
    change = _CHANGES.get(event.type)
    if change is None or not bytes(event.object):
        raise TransportError(f"a watch event of an unknown type: {event.type!r}")
    item = decode_item(kind, event.object)
    version = item.resource_version if isinstance(item, Malformed) else item.metadata.resource_version
    return WatchEvent(change, item, version)
