"""Kept connections to one API server, each carrying one request at a time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from koordinator.kube.errors import TransportError
from koordinator.kube.http1 import AnswerParser

_CONNECT_SECONDS = 10.0
# Below the 90 s after which Go's server closes idle connections: a request is then seldom sent into a closing one.
IDLE_SECONDS = 45.0
_PROBE_SECONDS = 15
_PROBES = 3


class Connection(asyncio.Protocol):
    """One connection. ``on_idle_loss`` is called when it closes while nothing is asked of it."""

    def __init__(self, on_idle_loss: Callable[[Connection], None]) -> None:
        self._on_idle_loss = on_idle_loss
        self._parser = AnswerParser()
        self._waiter: asyncio.Future[AnswerParser] | None = None
        self._transport: asyncio.Transport | None = None
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> asyncio.Future[AnswerParser]:
        """Send a request; the future gets its answer or a TransportError."""
        if self._transport is None:
            raise TransportError("the connection closed before the request was sent", maybe_applied=False)
        assert self._waiter is None
        self._parser = AnswerParser()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiter

    def close(self) -> None:
        """Drop the connection and whatever is still to come on it."""
        self._waiter = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None:
            # Nothing was asked: a farewell such as 408, after which the server closes.
            self.close()
            return
        try:
            complete = self._parser.feed(data)
        except TransportError as error:
            self._fail(error)
            return
        if complete:
            self._waiter = None
            if not self._parser.keep_alive:
                self.close()
            if not waiter.done():
                waiter.set_result(self._parser)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiter is None:
            self._on_idle_loss(self)
        elif exc is None and self._parser.end():
            waiter, self._waiter = self._waiter, None
            if not waiter.done():
                waiter.set_result(self._parser)
        else:
            when = "in the middle of its answer" if self._parser.started else "without an answer"
            self._fail(TransportError(f"the server closed the connection {when}{f': {exc}' if exc else ''}"))

    def _fail(self, error: TransportError) -> None:
        waiter, self._waiter = self._waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


class ConnectionPool:
    """At most ``limit`` connections; the one used last is used next, and those who wait are served in turn."""

    def __init__(self, host: str, port: int, limit: int, monotonic: Callable[[], float], server_name: str = "") -> None:
        self._host = host
        self._port = port
        self._limit = limit
        self._monotonic = monotonic
        self._server_name = server_name or host
        self._tls: ssl.SSLContext | None = None
        self._idle: list[Connection] = []
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._count = 0
        self._closed = False

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Connect with this from now on; idle connections of before are closed, busy ones when they are released."""
        self._tls = context
        idle, self._idle = self._idle, []
        for connection in idle:
            self._discard(connection)

    async def exchange(self, request: bytes) -> AnswerParser:
        """Send a request over some connection and return its answer. Raises TransportError."""
        connection = await self._acquire()
        tls = self._tls
        try:
            answer = await connection.ask(request)
        except BaseException:
            self._discard(connection)
            raise
        if connection.is_open and tls is self._tls and not self._closed:
            self._release(connection)
        else:
            self._discard(connection)
        return answer

    async def close(self) -> None:
        """Close what is idle; connections in use close when their answers are in."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            self._discard(connection)
        # The loop closes a socket in its next round only.
        await asyncio.sleep(0)

    async def _acquire(self) -> Connection:
        while True:
            oldest = self._monotonic() - IDLE_SECONDS
            while self._idle:
                connection = self._idle.pop()
                if connection.is_open and connection.idle_since >= oldest:
                    return connection
                self._discard(connection)
            if self._count < self._limit:
                return await self._open()
            handed = await self._wait_for_turn()
            if handed is not None:
                return handed

    async def _wait_for_turn(self) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The turn came with the cancellation: pass it on.
                handed = waiter.result()
                if handed is not None:
                    self._release(handed)
                else:
                    self._hand_over(None)
            raise

    async def _open(self) -> Connection:
        self._count += 1
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._lost),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls is not None else None,
                )
        except BaseException as error:
            self._count -= 1
            self._hand_over(None)
            if isinstance(error, TimeoutError):
                raise TransportError(
                    f"{self._where}: no connection within {_CONNECT_SECONDS:g} s", maybe_applied=False, timed_out=True
                ) from error
            if isinstance(error, OSError):
                raise TransportError(f"{self._where}: {error}", maybe_applied=False) from error
            raise
        probe_when_silent(transport.get_extra_info("socket"))
        return connection

    @property
    def _where(self) -> str:
        return f"cannot connect to {self._host} port {self._port}"

    def _release(self, connection: Connection) -> None:
        if not self._hand_over(connection):
            connection.idle_since = self._monotonic()
            self._idle.append(connection)

    def _discard(self, connection: Connection) -> None:
        connection.close()
        self._count -= 1
        self._hand_over(None)

    def _hand_over(self, connection: Connection | None) -> bool:
        """Give the first that waits a connection, or with None leave to open one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _lost(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
            self._discard(connection)


def probe_when_silent(opened: socket.socket) -> None:
    """Let the kernel notice a dead peer within a minute, also under a watch that is silent by nature."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PROBE_SECONDS * (_PROBES + 1) * 1000)
