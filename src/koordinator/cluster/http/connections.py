"""What one client may take up of the server: connections, time to say what it wants, and requests at one time.

A client that connects and says nothing, or a letter a minute, holds a connection, and with enough of them all files
that the process may open. Watches are meant to last and are not limited in time.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from koordinator.cluster.errors import ApiError

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
