"""The HTTP server behind the ports of the API and of webhooks.

aiohttp reads requests and writes responses; what a client may take up meanwhile is limited here (the rules are in
``koordinator.base.served_connections``).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import web

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.served_connections import Reason, ServedConnection, ServedConnections
from koordinator.base.served_stream import unread
from koordinator.kube.accepted_connections import AcceptedConnections

_NEVER: Final = 1e9
"""Seconds, for the library's own timer of idle connections."""


class HttpServer:
    """Serves from ``start`` to ``stop``. ``runner`` is set up already; this cleans it up.

    ``options`` are those of aiohttp's connections.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        pool: ServedConnections,
        clock: Clock,
        *,
        tls: ssl.SSLContext | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        server = runner.server
        assert server is not None, "set up the runner first"
        self._runner = runner
        self._server = server
        self._pool = pool
        self._clock = clock
        self._options = {"access_log": None, **(options or {}), "keepalive_timeout": _NEVER}
        self._handler = server.request_handler
        server.request_handler = self._respond
        self._accepted = AcceptedConnections(pool, self._protocol, tls)
        self._is_last = False

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Serve on sockets that listen; they are closed at the end."""
        self._accepted.start(listeners)

    def close_after_response(self) -> None:
        """From now on, respond to each client once more."""
        self._is_last = True

    async def stop(self, grace: float) -> None:
        """Accept no more, let requests in progress finish for ``grace`` seconds, and close all connections."""
        self.close_after_response()
        self._accepted.stop()
        try:
            with suppress(TimeoutError):
                await within(self._clock, grace, self._pool.quiet.wait())
        finally:
            self._pool.close_all()
            await self._runner.cleanup()
            await self._accepted.ended()
            await self._pool.time_limits.close()

    def _protocol(self, connection: ServedConnection) -> _HttpConnection:
        return _HttpConnection(self._server, connection, asyncio.get_running_loop(), self._options)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        assert isinstance(protocol, _HttpConnection)
        protocol.receive(request)
        try:
            response = await self._handler(request)
            if self._is_last:
                response.force_close()
            await protocol.send(request, response)
        except web.HTTPException as refusal:
            if self._is_last:
                refusal.force_close()
            raise
        except web.RequestPayloadError:
            protocol.complain()
            raise web.HTTPBadRequest from None
        except ConnectionError:
            if request.transport is not None:
                raise  # it was another connection that the handler lost
            return web.Response()
        else:
            return response
        finally:
            protocol.rest(request)


class _HttpConnection(web.RequestHandler):
    """aiohttp's side of a connection, and what it knows of the client."""

    __slots__ = ("_connection", "_in_hand", "_received", "_sending", "_wire")

    def __init__(
        self,
        server: web.Server,
        connection: ServedConnection,
        loop: asyncio.AbstractEventLoop,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._connection = connection
        self._wire: asyncio.Transport | None = None
        self._received = 0
        self._in_hand: web.BaseRequest | None = None
        self._sending = False
        connection.progress = self._progress

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # uvloop's transports do not derive from asyncio.Transport.
        self._wire = cast("asyncio.Transport", transport)
        self._connection.drop = self._wire.abort
        if self._connection.is_open:
            self._connection.await_header()
        else:
            self._wire.abort()

    def data_received(self, data: bytes) -> None:
        if data:
            self._received += len(data)
            if self._connection.is_idle:
                self._connection.await_header()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connection.closed()
        self._wire = None
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The library would log a stack trace for everything that is not HTTP."""
        if status != HTTPStatus.BAD_REQUEST:
            return super().handle_error(request, status, exc, message)
        self.complain()
        response = web.Response(status=status, text="400: Bad Request\n")
        response.force_close()
        return response

    def complain(self) -> None:
        """Log that this is not HTTP."""
        self._connection.complain(Reason.MALFORMED)

    def receive(self, request: web.BaseRequest) -> None:
        """The header of a request is here, and perhaps its body."""
        self._in_hand = request
        self._connection.begin()
        if not request.content.is_eof():
            limit = self._connection.limits.body
            late = web.HTTPRequestTimeout(text=f"the body was not here after {limit:g} s")
            late.force_close()
            self._connection.await_body(partial(request.content.set_exception, late))
            request.content.on_eof(self._connection.work)

    async def send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send what has not been sent yet; the response to a list holds the list for as long as it is not read."""
        self._sending = True
        self._connection.deliver(response.content_length or 0)
        with suppress(ConnectionError):  # no response can be sent any more
            await response.prepare(request)
            await response.write_eof()

    def rest(self, request: web.BaseRequest) -> None:
        """The response is sent; the client may still be sending a body that nobody has read."""
        self._in_hand, self._sending = None, False
        self._connection.rest(is_complete=request.content.is_eof())

    def _progress(self) -> int | None:
        if self._sending and self._wire is not None:
            return -unread(self._wire)
        if self._in_hand is not None and not self._in_hand.content.is_eof():
            return self._received
        return None
