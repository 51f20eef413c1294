"""A pool of persistent connections to one API server, each of which carries one request at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from math import inf
from typing import cast

from koordinator.base.time_limits import Limit, TimeLimits
from koordinator.kube.connector import Connector
from koordinator.kube.errors import TransportError
from koordinator.kube.http1 import ResponseParser, read_success
from koordinator.kube.transport import Response

# Below the 90 s after which Go's server closes idle connections: requests are then rarely sent into a closing one.
IDLE_SECONDS = 45.0


class Connection(asyncio.Protocol):
    """One connection. It belongs to the request that took it from the pool until that ends, and returns by itself."""

    def __init__(self, pool: ConnectionPool, tls: ssl.SSLContext | None, limits: TimeLimits) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._parser: ResponseParser | None = None
        self._limits = limits
        self._limit = Limit(self._expire)
        self.tls = tls
        self.used_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(
        self, request: bytes, now: float, give_up_at: float, *, bodyless: bool = False
    ) -> asyncio.Future[Response]:
        """Send a request; the future gets the complete response or a TransportError; ``bodyless`` for a HEAD.

        A caller that stops waiting for the future must call ``abandon``.
        """
        transport = self._transport
        if transport is None:
            self._pool.discard(self)
            raise TransportError("the connection closed before the request was sent", maybe_applied=False)
        assert self._waiter is None
        waiter = self._waiter = self._loop.create_future()
        if bodyless:
            self._parser = ResponseParser(bodyless=True)
        self.used_at = now
        self._limit.at = give_up_at
        transport.write(request)
        return waiter

    def abandon(self, waiter: asyncio.Future[Response]) -> None:
        """Close the connection, because the caller no longer waits for this response."""
        if self._waiter is waiter:
            self._waiter = None
            self._pool.discard(self)
        elif not waiter.cancelled():
            # The response ended just before. Retrieve the exception, or asyncio would log that it was never retrieved.
            waiter.exception()

    def close(self) -> None:
        """Close the connection and discard any data still to arrive."""
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._limits.add(self._limit)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None:
            # No request is in flight: a final response such as 408, after which the server closes.
            self.close()
            return
        parser = self._parser
        response: Response | None = None if parser is not None else read_success(data)
        if response is None:
            parser = self._parser = parser or ResponseParser()
            try:
                complete = parser.feed(data)
            except TransportError as error:
                self._fail(error)
                return
            if not complete:
                return
            response = parser
        self._end(waiter, response, keep=parser is None or parser.keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._limits.remove(self._limit)
        waiter, parser = self._waiter, self._parser
        if waiter is None:
            self._pool.lost(self)
        elif exc is None and parser is not None and parser.end():
            self._end(waiter, parser, keep=False)
        else:
            when = "in the middle of its response" if parser is not None and parser.started else "without a response"
            self._fail(TransportError(f"the server closed the connection {when}{f': {exc}' if exc else ''}"))

    def _end(self, waiter: asyncio.Future[Response], response: Response, *, keep: bool) -> None:
        if waiter.cancelled():
            # Its caller was cancelled and has not run since; it is about to abandon this connection.
            return
        self._waiter = self._parser = None
        self._limit.at = inf
        if keep:
            self._pool.put_back(self)
        else:
            self._pool.discard(self)
        waiter.set_result(response)

    def _fail(self, error: TransportError) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        self._pool.discard(self)
        if not waiter.done():
            waiter.set_exception(error)

    def _expire(self) -> None:
        self._fail(TransportError(f"no response within {self._limit.at - self.used_at:g} s", timed_out=True))


class ConnectionPool:
    """At most ``limit`` connections; the most recently used one is used next, and waiters are served in FIFO order."""

    def __init__(self, connector: Connector, limit: int, limits: TimeLimits, monotonic: Callable[[], float]) -> None:
        self._connector = connector
        self._limit = limit
        self._limits = limits
        self._monotonic = monotonic
        self._idle: list[Connection] = []
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._count = 0
        self._closed = False

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Use this context for new connections; idle ones are closed at once, busy ones when they are put back."""
        self._connector.tls = context
        self._discard_idle()

    def take(self, now: float) -> Connection | None:
        """Return an idle connection; None if there is none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.used_at >= now - IDLE_SECONDS and connection.is_open:
                return connection
            self.discard(connection)
        return None

    async def acquire(self) -> Connection:
        """Return a connection: an idle one, a new one, or one of a finished request. Raises TransportError."""
        while True:
            connection = self.take(self._monotonic())
            if connection is None and self._count < self._limit:
                connection = await self._open()
            connection = connection or await self._wait_for_turn()
            if connection is not None:
                return connection

    def put_back(self, connection: Connection) -> None:
        """Return a connection whose request has ended to the pool."""
        if connection.tls is not self._connector.tls or self._closed or not connection.is_open:
            self.discard(connection)
        elif not self._waiters or not self._hand_over(connection):
            self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a busy connection that cannot be reused."""
        connection.close()
        self._count -= 1
        self._hand_over(None)

    def lost(self, connection: Connection) -> None:
        """Remove an idle connection that the server has closed."""
        if connection in self._idle:
            self._idle.remove(connection)
            self.discard(connection)

    async def close(self) -> None:
        """Close idle connections; busy ones close once their responses are complete."""
        self._closed = True
        self._discard_idle()
        # The event loop closes a socket only in its next iteration.
        await asyncio.sleep(0)

    async def _wait_for_turn(self) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The connection was handed over while the waiter was cancelled: pass it on.
                handed = waiter.result()
                if handed is not None:
                    self.put_back(handed)
                else:
                    self._hand_over(None)
            raise

    async def _open(self) -> Connection:
        self._count += 1
        tls = self._connector.tls
        try:
            connection = await self._connector.connect(lambda: Connection(self, tls, self._limits))
        except BaseException:
            self._count -= 1
            self._hand_over(None)
            raise
        connection.used_at = self._monotonic()
        return connection

    def _hand_over(self, connection: Connection | None) -> bool:
        """Hand a connection to the first waiter; None permits it to open one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _discard_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            self.discard(connection)
