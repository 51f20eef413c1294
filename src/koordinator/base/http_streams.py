"""HTTP/1.1 messages on streams. They are read whole, or passed on as they are, each piece when it arrives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.base.errors import KoordinatorError

LONGEST_HEAD: Final = 64 << 10
_PIECE: Final = 64 << 10
_MOST_DIGITS: Final = 18
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;.*)?\r\n", re.DOTALL)
_REQUEST_LINE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_END: Final = b"\r\n\r\n"
_BODYLESS: Final = (204, 304)


class HttpError(KoordinatorError):
    """A peer does not speak HTTP/1.1 as it should, or has gone in the middle of a message."""


class EndedError(HttpError):
    """A peer has gone in the middle of a message."""


class TooLargeError(HttpError):
    """A message is larger than allowed."""


class Lease(Protocol):
    """A bound on the bytes that several messages may have together."""

    def take(self, length: int, /) -> bool:
        """Whether that many more bytes may be held."""


class Sink(Protocol):
    """Where a message goes."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the headers of a message."""

    line: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """A header's value; "" if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def words(self) -> list[str]:
        """Those of the first line: method and target, or version and status."""
        return self.line.split(" ")

    def check_length(self) -> None:
        """HttpError if the length of the body can be read in two ways (RFC 9112, 6.3): where it ends is then unsure."""
        if any(name != name.strip() for name, _ in self.headers):
            raise HttpError("the name of a header has white space")
        lengths = [value for name, value in self.headers if name.lower() == "content-length"]
        codings = [value for name, value in self.headers if name.lower() == "transfer-encoding"]
        if len(lengths) + len(codings) > 1:
            raise HttpError("more than one Content-Length or Transfer-Encoding")
        if codings and codings[0].lower() != "chunked":
            raise HttpError(f"Transfer-Encoding {codings[0][:20]!r}: only chunked is allowed")
        _ = self.length

    def check_request(self) -> None:
        """HttpError unless this is the head of a request, to the letter."""
        if not _REQUEST_LINE.fullmatch(self.line):
            raise HttpError(f"{self.line[:40]!r} is not the first line of a request")
        for name, value in self.headers:
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise HttpError(f"{name[:40]!r} is not a header")
        self.check_length()

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.get("transfer-encoding").lower()

    @property
    def length(self) -> int | None:
        """Bytes of the body; None if the head does not say. HttpError if it is not a number."""
        text = self.get("content-length")
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
            raise HttpError(f"Content-Length {text[:20]!r} is not a number of at most {_MOST_DIGITS} digits")
        return int(text)

    def with_body(self, length: int) -> Head:
        """This head for a body of a known length, which is there already."""
        dropped = ("content-length", "transfer-encoding", "expect")
        kept = tuple(header for header in self.headers if header[0].lower() not in dropped)
        return Head(self.line, (*kept, ("Content-Length", str(length))))

    def encode(self) -> bytes:
        """As it goes over the wire."""
        lines = [self.line, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_head(reader: asyncio.StreamReader, on_begin: Callable[[], object] | None = None) -> Head | None:
    """The next head; None if the peer has closed the connection before it. HttpError if it is none.

    ``on_begin`` is called with its first byte.
    """
    data = b""
    try:
        data = await reader.readexactly(1)
        if on_begin is not None:
            on_begin()
        data += await reader.readuntil(_END)
    except asyncio.IncompleteReadError as error:
        if not error.partial and not data:
            return None
        raise EndedError("the connection has ended within the head of a message") from error
    except asyncio.LimitOverrunError as error:
        raise TooLargeError(f"the head of a message is longer than {LONGEST_HEAD} bytes") from error
    line, *rest = data.removesuffix(_END).decode("latin-1").split("\r\n")
    headers = [header.partition(":") for header in rest]
    if len(line.split(" ")) < 2 or any(not colon or not name for name, colon, _ in headers):
        raise HttpError("not the head of an HTTP message")
    return Head(line, tuple((name, value.strip()) for name, _, value in headers))


def response_has_no_body(method: str, status: int) -> bool:
    """Whatever its head says."""
    return method == "HEAD" or status in _BODYLESS or 100 <= status < 200


async def copy_body(head: Head, reader: asyncio.StreamReader, sink: Sink) -> None:
    """Pass the body on, encoded as it comes; one without a length ends with its connection."""
    if head.is_chunked:
        await _copy_chunks(reader, sink)
    elif head.length is not None:
        await _copy_bytes(reader, sink, head.length)
    else:
        await copy_all(reader, sink)


async def copy_all(reader: asyncio.StreamReader, sink: Sink) -> None:
    """Pass on what comes until the peer has said all."""
    while data := await reader.read(_PIECE):
        sink.write(data)
        await sink.drain()


async def read_body(head: Head, reader: asyncio.StreamReader, longest: int, lease: Lease | None = None) -> bytes:
    """All of a body, decoded. HttpError if it is longer than allowed, or than ``lease`` has left."""
    collected = _Collected(longest, lease)
    if head.is_chunked:
        await _copy_chunks(reader, collected, decoded=True)
    else:
        await _copy_bytes(reader, collected, head.length or 0)
    return bytes(collected.content)


class _Collected:
    def __init__(self, longest: int, lease: Lease | None) -> None:
        self.content = bytearray()
        self._longest = longest
        self._lease = lease

    def write(self, data: bytes) -> None:
        if self._lease is not None and not self._lease.take(len(data)):
            raise HttpError("the requests in hand are too large together")
        self.content += data
        if len(self.content) > self._longest:
            raise TooLargeError(f"a body of more than {self._longest} bytes")

    async def drain(self) -> None:
        return


async def _copy_bytes(reader: asyncio.StreamReader, sink: Sink, length: int) -> None:
    while length:
        data = await reader.read(min(length, _PIECE))
        if not data:
            raise EndedError("the connection has ended within a body")
        length -= len(data)
        sink.write(data)
        await sink.drain()


async def _copy_chunks(reader: asyncio.StreamReader, sink: Sink, *, decoded: bool = False) -> None:
    while True:
        line = await _line(reader)
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise HttpError(f"{line[:20]!r} is not the size of a chunk")
        size = int(match[1], 16)
        if not decoded:
            sink.write(line)
        await _copy_bytes(reader, sink, size)
        if size:
            end = await _line(reader)
            if end != b"\r\n":
                raise HttpError("a chunk is longer than its size")
        else:
            # Headers may follow the last chunk; an empty line ends them.
            end = b""
            while (trailer := await _line(reader)) != b"\r\n":
                end += trailer
                if len(end) > LONGEST_HEAD:
                    raise HttpError(f"trailers of more than {LONGEST_HEAD} bytes")
            end += trailer
        if not decoded:
            sink.write(end)
            await sink.drain()
        if not size:
            return


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except asyncio.IncompleteReadError as error:
        raise EndedError("the connection has ended within a body") from error
    except asyncio.LimitOverrunError as error:
        raise HttpError("a line of a body does not end") from error
