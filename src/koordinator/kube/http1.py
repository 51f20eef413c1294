"""Parsing of HTTP/1.1 responses from bytes, without I/O; only what an API server sends to a client.

General HTTP libraries spend several times more CPU time on a small request than the request itself needs, which matters
to a scheduler that binds a thousand pods a second. For the same reason, the most frequent response (complete at once,
with a content-length) is read by a fast path without the general parser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from koordinator.kube.errors import TransportError

_MAX_HEAD_BYTES = 64 << 10
_MAX_CHUNK_LINE_BYTES = 256
_BODYLESS = (204, 304)
_LINE_END = b"\r\n"
_SUCCESSES: Final = {b"HTTP/1.1 200 ": 200, b"HTTP/1.1 201 ": 201}


class HttpResponse(msgspec.Struct, gc=False):
    """A complete response."""

    status: int
    head: bytes
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are in lower case. Parsed on first use: the headers of a successful response are rarely needed."""
        return _headers(self.head)


def read_success(data: bytes) -> HttpResponse | None:
    """Return the response if ``data`` is exactly one success with a content-length that leaves the connection open;
    None otherwise, when ``ResponseParser`` has to parse it."""
    status = _SUCCESSES.get(data[:13])
    end = data.find(b"\r\n\r\n")
    if status is None or end < 0:
        return None
    head = data[:end]
    lowered = head.lower()
    found = lowered.rfind(b"\r\ncontent-length:")
    if found < 0 or b"\r\nconnection:" in lowered or b"\r\ntransfer-encoding:" in lowered:
        return None
    if head[found + 17 :].partition(_LINE_END)[0].strip() != b"%d" % (len(data) - end - 4):
        return None
    return HttpResponse(status, head, data[end + 4 :])


def _headers(head: bytes) -> Mapping[str, str]:
    headers = {}
    for line in head.split(_LINE_END)[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return headers


class ResponseParser:
    """Parses one response. ``headers`` have names in lower case; ``body`` and ``keep_alive`` are valid at its end."""

    __slots__ = (
        "_after_chunk",
        "_bodyless",
        "_buffer",
        "_complete",
        "_head_bytes",
        "_headers",
        "_length",
        "_lowered",
        "_mode",
        "_parts",
        "keep_alive",
        "status",
    )

    def __init__(self, *, bodyless: bool = False) -> None:
        """``bodyless``: the response to a HEAD, whose content-length is that of a body that is not sent."""
        self._bodyless = bodyless
        self.status = 0
        self._head_bytes = self._lowered = b""
        self._headers: Mapping[str, str] | None = None
        self.keep_alive = False
        # Not a bound method: the parser would refer to itself, and a page of a list live until the collector runs.
        self._mode: Callable[[ResponseParser, bytes], bool] = ResponseParser._head
        self._after_chunk = False
        self._buffer = b""
        self._parts: list[bytes] = []
        self._length = 0
        self._complete = False

    @property
    def started(self) -> bool:
        """Whether any byte of the response has arrived."""
        return bool(self.status or self._buffer)

    @property
    def headers(self) -> Mapping[str, str]:
        """Parsed on first use: of most responses only the length is needed."""
        if self._headers is None:
            self._headers = _headers(self._head_bytes)
        return self._headers

    @property
    def has_head(self) -> bool:
        """Whether the head is complete, so that ``status`` and ``headers`` are valid."""
        return self._mode is not ResponseParser._head

    @property
    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def held(self) -> int:
        """The number of body bytes that have arrived and were not taken."""
        return sum(map(len, self._parts))

    def take(self) -> bytes:
        """Return the body bytes that have arrived since the last call."""
        taken = self.body
        self._parts.clear()
        return taken

    def feed(self, data: bytes) -> bool:
        """Parse ``data``. Returns True once the response is complete. Raises TransportError if it is not HTTP."""
        if self._complete:
            raise TransportError("the server sent more than its response")
        self._complete = self._mode(self, data)
        return self._complete

    def end(self) -> bool:
        """Handle the close of the connection. Returns True if that completes the response."""
        return self._mode is ResponseParser._until_close

    def _take_buffer(self) -> bytes:
        buffer, self._buffer = self._buffer, b""
        return buffer

    def _head(self, data: bytes) -> bool:
        data = self._take_buffer() + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _MAX_HEAD_BYTES:
                raise TransportError(f"the head of the response is longer than {_MAX_HEAD_BYTES} bytes")
            self._buffer = data
            return False
        self._read_head(data[:end])
        rest = data[end + 4 :]
        if 100 <= self.status < 200:
            return self._head(rest)
        self._mode = self._body_mode()
        return self._mode(self, rest)

    def _read_head(self, head: bytes) -> None:
        if not (head.startswith(b"HTTP/1.") and head[9:12].isdigit()):
            raise TransportError(f"the response is not HTTP/1.1: {head.partition(_LINE_END)[0][:40]!r}")
        self.status = int(head[9:12])
        self._head_bytes = head
        self._lowered = head.lower()
        self._headers = None
        self.keep_alive = head[7:8] == b"1" and self._value(b"connection").lower() != b"close"

    def _value(self, name: bytes) -> bytes:
        """Return the value of one header (name in lower case) without parsing all; the last of several."""
        found = self._lowered.rfind(_LINE_END + name + b":")
        if found < 0:
            return b""
        start = found + len(name) + 3
        end = self._head_bytes.find(_LINE_END, start)
        return self._head_bytes[start : end if end >= 0 else None].strip()

    def _body_mode(self) -> Callable[[ResponseParser, bytes], bool]:
        if self._bodyless or self.status in _BODYLESS:
            return ResponseParser._counted
        if self._value(b"transfer-encoding").lower() == b"chunked":
            return ResponseParser._chunks
        length = self._value(b"content-length")
        if not length and "content-length" not in self.headers:
            self.keep_alive = False
            return ResponseParser._until_close
        if not length.isdigit():
            raise TransportError(f"content-length {length.decode('latin-1')!r} is not a number")
        self._length = int(length)
        return ResponseParser._counted

    def _counted(self, data: bytes) -> bool:
        self._parts.append(data)
        self._length -= len(data)
        if self._length < 0:
            raise TransportError("the response is longer than its content-length")
        return self._length == 0

    def _until_close(self, data: bytes) -> bool:
        self._parts.append(data)
        return False

    def _chunks(self, data: bytes) -> bool:
        data = self._take_buffer() + data
        position = 0
        while True:
            if self._length:
                part = data[position : position + self._length]
                self._parts.append(part)
                self._length -= len(part)
                position += len(part)
                if self._length:
                    return False
                self._after_chunk = True
            if self._after_chunk:
                if len(data) - position < 2:
                    break
                if data[position : position + 2] != b"\r\n":
                    raise TransportError("a chunk of the response is longer than it says")
                position += 2
                self._after_chunk = False
            end = data.find(b"\r\n", position)
            if end < 0:
                break
            size = _chunk_size(data[position:end])
            position = end + 2
            if size == 0:
                self._mode = ResponseParser._trailers
                return self._trailers(data[position:])
            end = position + size
            if data.startswith(b"\r\n", end):
                # All of it, as mostly.
                self._parts.append(data[position:end])
                position = end + 2
            else:
                self._length = size
        self._buffer = data[position:]
        if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
            raise TransportError("the size of a chunk of the response does not end")
        return False

    def _trailers(self, data: bytes) -> bool:
        data = self._take_buffer() + data
        if data.startswith(b"\r\n"):
            if len(data) > 2:
                raise TransportError("the server sent more than its response")
            return True
        if data.endswith(b"\r\n\r\n"):
            return True
        if len(data) > _MAX_HEAD_BYTES:
            raise TransportError("the trailers of the response do not end")
        self._buffer = data
        return False


def _chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip()
    if not size or size.strip(b"0123456789abcdefABCDEF"):
        raise TransportError(f"the size of a chunk of the response is no number: {size[:40]!r}")
    return int(size, 16)
