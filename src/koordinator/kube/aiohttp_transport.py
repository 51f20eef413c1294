"""The transport for API servers behind an HTTP proxy, which aiohttp supports."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import hdrs
from yarl import URL

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.connector import probe_when_silent
from koordinator.kube.errors import FencedError, TransportError
from koordinator.kube.pool import IDLE_SECONDS
from koordinator.kube.transport import Endpoint

_CONNECT_SECONDS = 10.0
_READ_BUFFER_BYTES = 1 << 18


class AiohttpTransport:
    """A transport over one aiohttp session with a pool of persistent connections."""

    def __init__(
        self, endpoint: Endpoint, tls: ssl.SSLContext | None, clock: Clock, *, max_connections: int = 256
    ) -> None:
        self._clock = clock
        self._base = endpoint.url
        self._options: dict[str, Any] = {"allow_redirects": False}
        if endpoint.proxy:
            self._options["proxy"] = URL(endpoint.proxy)
        if endpoint.server_name:
            self._options["server_hostname"] = endpoint.server_name
        if tls is not None:
            self.use_tls(tls)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=max_connections,
                keepalive_timeout=IDLE_SECONDS,
                socket_factory=_keepalive_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._options["ssl"] = context

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        give_up_at: float,
        may_send: Callable[[], bool] | None = None,
    ) -> WholeResponse:
        if may_send is not None and not may_send():
            raise FencedError(f"{method} {target}: not sent, the right to write is lost")
        seconds = give_up_at - self._clock.monotonic()
        try:
            return await within(self._clock, seconds, self._exchange(method, target, headers, body))
        except TimeoutError as error:
            raise TransportError(f"{method} {target}: no response within {seconds:g} s", timed_out=True) from error

    async def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> WholeResponse:
        response = await self._open(method, target, headers, body)
        try:
            return WholeResponse(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{method} {target}: the response broke off: {_text(error)}") from error
        finally:
            response.release()

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AiohttpStream:
        return AiohttpStream(await self._open(method, target, headers, body), f"{method} {target}")

    async def _open(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                method, URL(self._base + target, encoded=True), headers=headers, data=body, **self._options
            )
        except aiohttp.ClientConnectorError as error:
            raise TransportError(f"{method} {target}: {_text(error)}", maybe_applied=False) from error
        except aiohttp.ServerTimeoutError as error:
            raise TransportError(f"{method} {target}: {_text(error)}", maybe_applied=False, timed_out=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{method} {target}: {_text(error)}") from error

    async def close(self) -> None:
        await self._session.close()


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """Implements ``transport.Response``."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AiohttpStream:
    """The body of an aiohttp response, chunk by chunk."""

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._response = response
        self._what = what
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{self._what}: the stream broke off: {_text(error)}") from error

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{self._what}: the response broke off: {_text(error)}") from error

    def abort(self) -> None:
        self._response.close()


def _keepalive_socket(address: Any) -> socket.socket:
    """Return a socket whose keepalive detects a dead peer within a minute, even if a watch is silent."""
    family, kind, protocol, _, _ = address
    created = socket.socket(family, kind, protocol)
    created.setblocking(False)
    probe_when_silent(created)
    return created


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
