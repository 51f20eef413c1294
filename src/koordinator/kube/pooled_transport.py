"""The transport of all programs: pooled connections for requests, a connection of its own for each stream.

A request over an idle connection is one write and one future; a timer is needed only to wait for a connection. aiohttp
spends several times more CPU time on a small request (``benchmarks/client_transport.py``), and importing it takes a
quarter of a second.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.connector import Connector
from koordinator.kube.errors import FencedError, TransportError
from koordinator.kube.http1 import ResponseParser
from koordinator.kube.pool import Connection, ConnectionPool
from koordinator.kube.proxy import Proxy
from koordinator.kube.transport import Endpoint, Response

# A response that is read as it arrives, over a connection of its own, as for a watch.


_HELD_BYTES: Final = 1 << 20
"""The bytes that may be buffered for the reader before reading from the socket is paused."""


class ResponseStream(asyncio.Protocol):
    """Sends ``request`` once connected; ``what`` names it in errors. Implements ``transport.Stream``."""

    def __init__(self, request: bytes, what: str) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._request = request
        self._what = what
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._ended = False
        self._error: TransportError | None = None
        self._paused = False

    async def begin(self) -> None:
        """Wait for the head of the response. Raises TransportError."""
        while not self._parser.has_head:
            if self._error is not None:
                raise self._error
            await self._wait()
        self.status, self.headers = self._parser.status, self._parser.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece. Raises TransportError if it breaks off."""
        while True:
            arrived = self._parser.take()
            if arrived:
                self._resume()
                yield arrived
            elif self._error is not None:
                raise TransportError(f"{self._what}: the stream broke off: {self._error}") from self._error
            elif self._ended:
                return
            else:
                await self._wait()

    async def read(self) -> bytes:
        """Return the whole body, for responses that are failures."""
        return b"".join([chunk async for chunk in self.chunks()])

    def abort(self) -> None:
        """Close the connection: a reader that waits for a chunk gets a TransportError."""
        self._end(TransportError("it was cut off"))

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            complete = self._parser.feed(data)
        except TransportError as error:
            self._end(error)
            return
        if complete:
            self._end(None)
        elif self._parser.held > _HELD_BYTES and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._ended and exc is None and self._parser.end():
            self._end(None)
        else:
            when = "in the middle of its response" if self._parser.started else "without a response"
            self._end(TransportError(f"the server closed the connection {when}{f': {exc}' if exc else ''}"))

    def _end(self, error: TransportError | None) -> None:
        if not self._ended:
            self._ended = True
            self._error = error
        self._changed.set()
        if self._transport is not None:
            self._transport.abort()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


_CACHED_HEADERS = 32


def _tls_of(proxy: Proxy) -> ssl.SSLContext | None:
    return ssl.create_default_context() if proxy.scheme == "https" else None


class PooledTransport:
    """Directly or through the proxy of the endpoint. ``limits`` ends requests without a timely response."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: ssl.SSLContext | None,
        clock: Clock,
        limits: TimeLimits,
        *,
        max_connections: int = 256,
    ) -> None:
        parts = urlsplit(endpoint.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._clock = clock
        self._monotonic = clock.monotonic
        self._connector = Connector(parts.hostname or "", port, endpoint.server_name, tls)
        self._prefix, authorization = parts.path, ""
        proxy = Proxy.parse(endpoint.proxy) if endpoint.proxy else None
        if proxy is not None and proxy.speaks_http and parts.scheme == "http":
            # Without TLS, the proxy is sent the requests themselves.
            self._connector = Connector(proxy.host, proxy.port, "", _tls_of(proxy))
            self._prefix, authorization = endpoint.url, proxy.authorization
        elif proxy is not None:
            self._connector.proxy = proxy
        self._pool = ConnectionPool(self._connector, max_connections, limits, clock.monotonic)
        self._streams: WeakSet[ResponseStream] = WeakSet()
        self._host = f"Host: {parts.netloc.rpartition('@')[2]}\r\n{authorization}"
        # By identity, because the sender builds each set of headers once and uses it for every request.
        self._blocks: dict[int, tuple[Mapping[str, str], str]] = {}

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._pool.use_tls(context)

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        give_up_at: float,
        may_send: Callable[[], bool] | None = None,
    ) -> Response:
        message = self._message(method, target, headers, body)
        now = self._monotonic()
        try:
            connection = self._pool.take(now) or await self._wait_for_connection(give_up_at - now)
            if may_send is not None and not may_send():
                self._pool.put_back(connection)
                raise FencedError(f"{method} {target}: not sent, the right to write is lost")
            waiter = connection.send(message, now, give_up_at, bodyless=method == "HEAD")
            try:
                return await waiter
            except BaseException:
                connection.abandon(waiter)
                raise
        except TransportError as error:
            raise TransportError(
                f"{method} {target}: {error}", maybe_applied=error.maybe_applied, timed_out=error.timed_out
            ) from error

    async def _wait_for_connection(self, seconds: float) -> Connection:
        try:
            return await within(self._clock, seconds, self._pool.acquire())
        except TimeoutError as error:
            raise TransportError(f"no connection within {seconds:g} s", maybe_applied=False, timed_out=True) from error

    def _block(self, headers: Mapping[str, str]) -> str:
        cached = self._blocks.get(id(headers))
        if cached is not None:
            return cached[1]
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header contains a line break")
        block = self._host + "".join(f"{line}\r\n" for line in lines)
        if len(self._blocks) >= _CACHED_HEADERS:
            self._blocks.clear()
        # The headers are stored with their block, so that no other object can get their identity.
        self._blocks[id(headers)] = headers, block
        return block

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> ResponseStream:
        what = f"{method} {target}"
        message = self._message(method, target, headers, body)
        try:
            stream = await self._connector.connect(lambda: ResponseStream(message, what))
            self._streams.add(stream)
            try:
                await stream.begin()
            except BaseException:
                stream.abort()
                raise
        except TransportError as error:
            raise TransportError(
                f"{what}: {error}", maybe_applied=error.maybe_applied, timed_out=error.timed_out
            ) from error
        return stream

    def _message(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        if " " in target or not (target.isascii() and target.isprintable()):
            raise ValueError(f"{target!r} is not an encoded request target")
        length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._block(headers)}{length}\r\n".encode("latin-1")
        return head + body if body else head

    async def close(self) -> None:
        for stream in list(self._streams):
            stream.abort()
        await self._pool.close()
