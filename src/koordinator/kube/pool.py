"""Kept connections to one API server, each carrying one request at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from koordinator.kube.dial import Dialler
from koordinator.kube.errors import TransportError
from koordinator.kube.http1 import AnswerParser

# Below the 90 s after which Go's server closes idle connections: a request is then seldom sent into a closing one.
IDLE_SECONDS = 45.0


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

    def ask(self, request: bytes, answer: AnswerParser) -> asyncio.Future[AnswerParser]:
        """Send a request; the future gets ``answer``, read to its end, or a TransportError."""
        if self._transport is None:
            raise TransportError("the connection closed before the request was sent", maybe_applied=False)
        assert self._waiter is None
        self._parser = answer
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

    def __init__(self, dialler: Dialler, limit: int, monotonic: Callable[[], float]) -> None:
        self._dialler = dialler
        self._limit = limit
        self._monotonic = monotonic
        self._idle: list[Connection] = []
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._count = 0
        self._closed = False

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Connect with this from now on; idle connections of before are closed, busy ones when they are released."""
        self._dialler.tls = context
        idle, self._idle = self._idle, []
        for connection in idle:
            self._discard(connection)

    async def exchange(self, request: bytes, *, bodyless: bool = False) -> AnswerParser:
        """Send a request over some connection and return its answer; ``bodyless`` for a HEAD. Raises TransportError."""
        connection = await self._acquire()
        tls = self._dialler.tls
        try:
            answer = await connection.ask(request, AnswerParser(bodyless=bodyless))
        except BaseException:
            self._discard(connection)
            raise
        if connection.is_open and tls is self._dialler.tls and not self._closed:
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
            return await self._dialler.connect(lambda: Connection(self._lost))
        except BaseException:
            self._count -= 1
            self._hand_over(None)
            raise

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
