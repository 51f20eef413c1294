"""Clients that take up what a server has, without credentials: they connect and say nothing, half of something, or far
too much, and do not read what they are told.

Each of them needs no more than the server's address: a port, or a unix socket, where they are agents with a fault
rather than attackers. What they say is HTTP/1.1, or gRPC to a ``GrpcTarget``. ``HOSTILE_CLIENTS`` is the table; to add
one, write a coroutine that begins it on a connection, and append it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from koordinator.node import http2
from koordinator.node.grpc_messages import encode_message

_SMALL_BUFFER: Final = 4096
_MANY: Final = 20
_PROMISED: Final = 1000
_SLOW_BYTES: Final = 40
_CREDIT: Final = 1 << 30


@dataclass(frozen=True)
class Target:
    """A server, and what one sends to it: at a port, or at a unix socket whose path stands in the place of the host."""

    host: str
    port: int
    request: bytes
    """A whole ordinary request."""
    tls: ssl.SSLContext | None = None

    @property
    def greeting(self) -> bytes:
        """What a client says before its first request."""
        return b""

    @property
    def credit(self) -> bytes:
        """What one that reads its responses says, too."""
        return b""

    def requests(self, count: int, first: int = 0) -> bytes:
        """Ordinary requests, the ``first`` one of a connection and those after it."""
        return self.request * count

    @property
    def half_header(self) -> bytes:
        return self._line + b"\r\nHost: x\r\n"

    @property
    def half_body(self) -> bytes:
        """A header that promises a body, and its first byte."""
        line = self._line.replace(b"GET ", b"POST ")
        return line + b"\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % _PROMISED

    @property
    def half_request(self) -> bytes:
        """An ordinary request whose body is never complete."""
        return self.request.replace(b"Content-Length: ", b"Content-Length: 9", 1)

    async def read_response(self, reader: asyncio.StreamReader) -> None:
        """AssertionError unless the next response is a success."""
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields[b"content-length"]))

    @property
    def _line(self) -> bytes:
        return self.request.partition(b"\r\n")[0]


@dataclass(frozen=True)
class GrpcTarget(Target):
    """A gRPC server. ``request`` is the message of an ordinary call of ``method``."""

    method: str = ""

    @property
    def greeting(self) -> bytes:
        return http2.PREFACE + http2.settings(())

    @property
    def credit(self) -> bytes:
        return http2.settings(((http2.INITIAL_WINDOW_SIZE, _CREDIT),)) + http2.window_update(0, _CREDIT)

    def requests(self, count: int, first: int = 0) -> bytes:
        numbers = range(2 * first + 1, 2 * (first + count) + 1, 2)
        return b"".join(self._header(number) + self._body(number) for number in numbers)

    @property
    def half_header(self) -> bytes:
        return self._header(1)[:-5]

    @property
    def half_body(self) -> bytes:
        return self._header(1) + http2.frame(http2.DATA, 0, 1, b"\0")

    @property
    def half_request(self) -> bytes:
        return self._header(1) + self._body(1)[:-1]

    async def read_response(self, reader: asyncio.StreamReader) -> None:
        """AssertionError unless the next call to end is a success."""
        while True:
            head = await reader.readexactly(9)
            kind, flags = head[3], head[4]
            content = await reader.readexactly(int.from_bytes(head[:3], "big"))
            assert kind != http2.RST_STREAM, content
            if kind == http2.HEADERS and flags & http2.END_STREAM:
                assert b"grpc-status\x010" in content, content
                return

    def _header(self, stream: int) -> bytes:
        path = self.method.encode()
        block = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"))
        more = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))
        return http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.literal_headers((*block, *more)))

    def _body(self, stream: int) -> bytes:
        return http2.frame(http2.DATA, http2.END_STREAM, stream, encode_message(self.request))


@dataclass
class Held:
    """What a hostile client holds on to."""

    writer: asyncio.StreamWriter | None
    plain: socket.socket
    rest: list[bytes] = field(default_factory=list)
    """What it sends bit by bit."""

    async def go_on(self) -> None:
        """Send the next bit, if it is one that does so."""
        if self.rest and self.writer is not None and not self.writer.is_closing():
            self.writer.write(self.rest.pop(0))

    def end(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        self.plain.close()


@dataclass(frozen=True)
class HostileClient:
    """One of the kinds."""

    name: str
    what: str
    begin: Callable[[Target], Awaitable[Held]]

    def __str__(self) -> str:
        return self.name


def connected(target: Target, receive_buffer: int | None = None) -> socket.socket:
    """On loopback this takes no time: the kernel accepts for the server."""
    is_path = target.host.startswith("/")
    family = socket.AF_UNIX if is_path else socket.AF_INET6 if ":" in target.host else socket.AF_INET
    plain = socket.socket(family, socket.SOCK_STREAM)
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.connect(target.host if is_path else (target.host, target.port))
    plain.setblocking(False)
    return plain


async def _open(target: Target, *said: bytes, rest: bytes = b"") -> Held:
    """A connection after its handshake, on which something is said, and nothing is read ever."""
    plain = connected(target, _SMALL_BUFFER)
    name = "localhost" if target.tls is not None else None
    try:
        _, writer = await asyncio.open_connection(sock=plain, ssl=target.tls, server_hostname=name, limit=1)
    except OSError:
        return Held(None, plain)  # the server was full of others of its kind
    writer.writelines((target.greeting, *said))
    return Held(writer, plain, [rest[at : at + 1] for at in range(len(rest))])


async def _silent(target: Target) -> Held:
    return Held(None, connected(target, _SMALL_BUFFER))


async def _half_handshake(target: Target) -> Held:
    plain = connected(target, _SMALL_BUFFER)
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(plain, b"\x16\x03\x01\x02")
    return Held(None, plain)


async def _half_header(target: Target) -> Held:
    return await _open(target, target.half_header)


async def _slow_header(target: Target) -> Held:
    return await _open(target, rest=target.requests(1)[:40])


async def _half_body(target: Target) -> Held:
    return await _open(target, target.half_body)


async def _half_body_of_a_request(target: Target) -> Held:
    return await _open(target, target.half_request)


async def _slow_body(target: Target) -> Held:
    whole = target.requests(1)
    return await _open(target, whole[:-_SLOW_BYTES], rest=whole[-_SLOW_BYTES:])


async def _garbage(target: Target) -> Held:
    return await _open(target, bytes(range(256)) * 16)


async def _slow_reader(target: Target) -> Held:
    return await _open(target, target.requests(1))


async def _flood(target: Target) -> Held:
    return await _open(target, target.requests(_MANY))


async def _one_request(target: Target) -> Held:
    return await _open(target, target.requests(1), rest=target.requests(1, first=1)[:20])


HOSTILE_CLIENTS: Final = (
    HostileClient("silent", "connects", _silent),
    HostileClient("half-handshake", "connects and sends the first bytes of a TLS handshake", _half_handshake),
    HostileClient("idle", "shakes hands and says nothing", _open),
    HostileClient("half-header", "sends half of a header", _half_header),
    HostileClient("slow-header", "sends a header one byte at a time", _slow_header),
    HostileClient("half-body", "promises a body and sends its first byte", _half_body),
    HostileClient("half-request", "sends an ordinary request whose body is never complete", _half_body_of_a_request),
    HostileClient("slow-body", "sends the body of a request one byte at a time", _slow_body),
    HostileClient("garbage", "sends what is not HTTP", _garbage),
    HostileClient("slow-reader", "sends a request and does not read the response", _slow_reader),
    HostileClient("flood", "sends many requests at once and reads no response", _flood),
    HostileClient("second-header", "sends a request, then the next one a byte at a time", _one_request),
)
