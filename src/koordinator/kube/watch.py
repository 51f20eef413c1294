"""Decodes a watch's bytes into events: lines of bounded length, each a change, an expiry or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from koordinator.api import codec
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, Status, WireStruct
from koordinator.kube.decoding import decode_around, decode_item, error_from_status
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import Malformed, WatchEvent

T = TypeVar("T", bound=Object)
# etcd rejects objects over 1.5 MiB; as JSON with managed fields they may be a few times larger.
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
    """Splits chunks into complete lines. Raises TransportError for a line over ``limit`` bytes."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes."""
        if self._size + len(chunk) > self._limit:
            self._check(chunk)
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
            self._size = 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        return [line for line in lines if line]

    def _check(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        if max(self._size + len(first), *map(len, others), 0) > self._limit:
            raise TransportError(f"a line of the watch is longer than {self._limit} bytes")

    @property
    def pending(self) -> int:
        """The number of bytes of the incomplete line."""
        return self._size


class EventReader(Generic[T]):
    """Decodes the events of one watch as its bytes arrive."""

    def __init__(self, kind: Kind[T]) -> None:
        self._kind = kind
        self._splitter = LineSplitter()
        self._decode: Callable[[bytes], _TypedEvent[T]] = codec.decoder(_TypedEvent[kind.type])  # type: ignore[name-defined]

    def feed(self, chunk: bytes) -> Iterator[WatchEvent[T]]:
        """Yield the events that ``chunk`` completes. Raises ApiStatusError for an ERROR event, TransportError for a
        line that is not an event, after the events before it."""
        for line in self._splitter.feed(chunk):
            try:
                typed = self._decode(line)
            except codec.DecodeError:
                yield _decode_slowly(self._kind, line)
                continue
            change, obj = _CHANGES.get(typed.type), typed.object
            if change is not None and obj is not None:
                yield WatchEvent(change, obj, obj.metadata.resource_version)
            else:
                yield _decode_slowly(self._kind, line)

    def end(self) -> None:
        """End of the stream. Raises TransportError if a line is incomplete."""
        if self._splitter.pending:
            raise TransportError(f"the watch ended in the middle of a line, after {self._splitter.pending} bytes of it")


def _decode_slowly(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    """Decode events whose object is not of the kind: bookmarks, errors, malformed objects."""
    try:
        event = decode_around(line, _RawEvent)
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
