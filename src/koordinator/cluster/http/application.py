"""The outermost layer of the server: connections, authentication, routing, and a Status for each error."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.cluster.errors import ApiError, bad_request, method_not_allowed, storage_failure, too_large
from koordinator.cluster.http.authentication import Reviews, TokenAuthenticator, check_no_impersonation
from koordinator.cluster.http.endpoints import Endpoints, Health
from koordinator.cluster.http.request import parse_resource_path
from koordinator.cluster.http.resources import ResourceHandler, wants_watch
from koordinator.cluster.http.response import failure
from koordinator.cluster.limits import MAX_BODY, TOO_DEEP
from koordinator.cluster.storage.interface import StorageError, WriteFailed
from koordinator.cluster.verbs.environment import Environment

# Large responses to clients that do not read them.


_LARGE: Final = 1 << 20
"""Bytes. What is smaller fits into the buffers, and to watch over it would cost every request."""
_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 1 << 20
_LOG = logging.getLogger(__name__)


async def deliver(clock: Clock, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Send a large response within its time, half a minute and a second for each MiB, or drop the connection.

    The response to a list holds the list. A client that stops reading in its middle would hold it for ever.
    """
    size = response.content_length or 0
    if size < _LARGE or response.prepared:
        return response
    try:
        await within(clock, _SECONDS + size / _BYTES_PER_SECOND, _send(request, response))
    except TimeoutError:
        _LOG.warning("%s %s is dropped: the client does not read the response", request.method, request.path_qs)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _send(request: web.BaseRequest, response: web.StreamResponse) -> None:
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return  # the client closed the connection; no response can be sent


# What one client may take up of the server: connections, time to say what it wants, and requests at one time.
#
# A client that connects and says nothing, or a letter a minute, holds a connection, and with enough of them all files
# that the process may open. Watches are meant to last and are not limited in time.


_WANTED_FILES: Final = 65_536
_FILES_FOR_OTHERS: Final = 64
"""The store, logs, and connections to webhooks."""
_FILES_PER_CONNECTION_LIMIT: Final = 0.9


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times are in seconds."""

    header_timeout: float = 10.0
    """From the connection to the end of the first request's headers."""
    body_timeout: float = 34.0
    """From the end of the headers to the end of the body; the real server's time for a write."""
    idle_timeout: float = 90.0
    """Between two requests, as on the real server."""
    connections: int = 10_000
    requests: int = 3_000
    """In flight at one time, without watches."""


class ConnectionCount:
    """Of one server. ``limit`` is lower where the process may not open that many files."""

    def __init__(self, limits: HttpLimits) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            files = _WANTED_FILES
        self.limit = min(limits.connections, max(1, int(files * _FILES_PER_CONNECTION_LIMIT) - _FILES_FOR_OTHERS))
        self.open = 0


def too_many_requests() -> ApiError:
    """429, in the words of the real server."""
    return ApiError(429, "TooManyRequests", "Too many requests, please try again later.", retry_after=1)


class BoundedServer(web.Server):
    """Makes connections that are counted, and that end when their first request does not come."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], limits: HttpLimits, **options: Any) -> None:
        super().__init__(handler, keepalive_timeout=limits.idle_timeout, **options)
        self._limits = limits
        self._count = ConnectionCount(limits)

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._loop, self._limits.header_timeout, self._count, self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_counted", "_counts", "_header_timeout", "_header_timer")

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        header_timeout: float,
        count: ConnectionCount,
        options: dict[str, Any],
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._header_timeout = header_timeout
        self._header_timer: asyncio.TimerHandle | None = None
        self._counts = count
        self._counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._counts.open += 1
        self._counted = True
        if self._counts.open > self._counts.limit:
            cast(asyncio.Transport, transport).write(_REFUSAL)
            self.force_close()
            return
        self._header_timer = self._loop.call_later(self._header_timeout, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._counted:
            self._counts.open -= 1
            self._counted = False
        self.headers_came()
        super().connection_lost(exc)

    def headers_came(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def headers_came(protocol: object) -> None:
    """The first request of a connection is known: from here on other times count."""
    if isinstance(protocol, _Connection):
        protocol.headers_came()


def _refusal() -> bytes:
    error = too_many_requests()
    body = msgspec.json.encode(error.status())
    head = (
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
        f"Retry-After: {error.retry_after}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


_REFUSAL: Final = _refusal()


_MAX_LINE = 64 << 10
"""Bytes of a request line or header; selectors can be long."""


class Application:
    """Handles every request; meant for ``aiohttp.web.Server``, below the routing that resource paths do not need."""

    def __init__(
        self,
        environment: Environment,
        authenticator: TokenAuthenticator,
        health: Health,
        limits: HttpLimits | None = None,
    ) -> None:
        self._clock = environment.clock
        self._limits = limits or HttpLimits()
        self._in_flight = 0
        self._authenticator = authenticator
        self._resources = ResourceHandler(environment, Reviews(authenticator))
        self._endpoints = Endpoints(environment.registry, health)

    def server(self) -> web.Server:
        return BoundedServer(
            self.handle,
            self._limits,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,
            # The real server takes no compressed bodies; a few of their bytes could be gigabytes.
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        counted = not wants_watch(request)
        if counted:
            if self._in_flight >= self._limits.requests:
                return failure(too_many_requests())
            self._in_flight += 1
        try:
            return await deliver(self._clock, request, await self._respond(request))
        except ApiError as error:
            return failure(error)
        except RecursionError:
            return failure(bad_request(f"the request or the object that it is about {TOO_DEEP}"))
        except web.HTTPRequestEntityTooLarge:
            return failure(too_large(f"limit is {MAX_BODY}"))
        except StorageError as error:
            # The store says itself when writes begin to fail; a line for each of them would fill a disk that is full.
            level = logging.DEBUG if isinstance(error, WriteFailed) else logging.ERROR
            _LOG.log(level, "%s %r: %s", request.method, request.path, error)
            return failure(storage_failure(error))
        except Exception:
            _LOG.exception("%s %r failed", request.method, request.path)
            return failure(ApiError(500, "InternalError", "Internal error occurred: see the API server's log"))
        finally:
            if counted:
                self._in_flight -= 1

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self._authenticator.check(request.path, request.headers.get("Authorization", ""))
        check_no_impersonation(request.raw_headers)
        if request.can_read_body and not request.content.is_eof():
            await self._read_body(request)
        path = parse_resource_path(request.path)
        if path is not None:
            return await self._resources.handle(request, path)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return self._endpoints.handle(request)

    async def _read_body(self, request: web.BaseRequest) -> None:
        """Keeps what has not come yet in the request. Raises ApiError 408 when it does not come in time."""
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                await request.read()
        except TimeoutError as error:
            why = f"the request body did not arrive within {self._limits.body_timeout:g} seconds"
            raise ApiError(408, "Timeout", f"Timeout: {why}") from error


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    headers_came(protocol)
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=MAX_BODY
    )
