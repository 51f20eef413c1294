"""Clients that take up what a server has, without credentials: they connect and say nothing, half of something, or far
too much, and do not read what they are told.

Each of them needs no more than the server's address. ``HOSTILE_CLIENTS`` is the table; to add one, write a coroutine
that begins it on a connection, and append it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

_SMALL_BUFFER: Final = 4096
_MANY: Final = 20
_PROMISED: Final = 1000


@dataclass(frozen=True)
class Target:
    """A server, and what one sends to it."""

    host: str
    port: int
    request: bytes
    """A whole ordinary request."""
    tls: ssl.SSLContext | None = None

    @property
    def line(self) -> bytes:
        """The first line of the request."""
        return self.request.partition(b"\r\n")[0]


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
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    plain = socket.socket(family, socket.SOCK_STREAM)
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.connect((target.host, target.port))
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
    for text in said:
        writer.write(text)
    return Held(writer, plain, [rest[at : at + 1] for at in range(len(rest))])


async def _silent(target: Target) -> Held:
    return Held(None, connected(target, _SMALL_BUFFER))


async def _half_handshake(target: Target) -> Held:
    plain = connected(target, _SMALL_BUFFER)
    with suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(plain, b"\x16\x03\x01\x02")
    return Held(None, plain)


async def _half_header(target: Target) -> Held:
    return await _open(target, target.line + b"\r\nHost: x\r\n")


async def _slow_header(target: Target) -> Held:
    return await _open(target, rest=target.request[:40])


async def _half_body(target: Target) -> Held:
    line = target.line.replace(b"GET ", b"POST ")
    return await _open(target, line + b"\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % _PROMISED)


async def _half_body_of_a_request(target: Target) -> Held:
    return await _open(target, target.request.replace(b"Content-Length: ", b"Content-Length: 9", 1))


async def _garbage(target: Target) -> Held:
    return await _open(target, bytes(range(256)) * 16)


async def _slow_reader(target: Target) -> Held:
    return await _open(target, target.request)


async def _flood(target: Target) -> Held:
    return await _open(target, target.request * _MANY)


async def _one_request(target: Target) -> Held:
    return await _open(target, target.request, rest=target.request[:20])


HOSTILE_CLIENTS: Final = (
    HostileClient("silent", "connects", _silent),
    HostileClient("half-handshake", "connects and sends the first bytes of a TLS handshake", _half_handshake),
    HostileClient("idle", "shakes hands and says nothing", _open),
    HostileClient("half-header", "sends half of a header", _half_header),
    HostileClient("slow-header", "sends a header one byte at a time", _slow_header),
    HostileClient("half-body", "promises a body and sends its first byte", _half_body),
    HostileClient("half-request", "sends an ordinary request whose body is never complete", _half_body_of_a_request),
    HostileClient("garbage", "sends what is not HTTP", _garbage),
    HostileClient("slow-reader", "sends a request and does not read the response", _slow_reader),
    HostileClient("flood", "sends many requests at once and reads no response", _flood),
    HostileClient("second-header", "sends a request, then the next one a byte at a time", _one_request),
)
