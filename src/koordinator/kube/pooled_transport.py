"""The transport that programs use: requests over connections of our own, streams over aiohttp.

aiohttp spends several times the processor time on a small request that our connections do; a watch costs it nothing
between events, so there its care for every corner of HTTP is worth having. Behind an HTTP proxy everything goes through
aiohttp.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from koordinator.kube.errors import TransportError
from koordinator.kube.pool import ConnectionPool
from koordinator.kube.transport import AiohttpTransport, Endpoint, Response, Stream

_CACHED_HEADERS = 32


class PooledTransport:
    """Transport without a proxy. ``monotonic`` tells how long a connection has been idle."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: ssl.SSLContext | None,
        monotonic: Callable[[], float],
        *,
        max_connections: int = 256,
    ) -> None:
        parts = urlsplit(endpoint.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._pool = ConnectionPool(parts.hostname or "", port, max_connections, monotonic, endpoint.server_name)
        self._streams = AiohttpTransport(endpoint, tls, max_connections=0)
        self._prefix = parts.path
        self._host = f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
        # By identity: whoever sends builds each set of headers once and uses it for every request.
        self._blocks: dict[int, tuple[Mapping[str, str], str]] = {}
        if tls is not None:
            self._pool.use_tls(tls)

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._pool.use_tls(context)
        self._streams.use_tls(context)

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        if method == "HEAD":
            # Its answers have the length of a body that does not come.
            return await self._streams.request(method, target, headers, body)
        if " " in target or not (target.isascii() and target.isprintable()):
            raise ValueError(f"{target!r} is not an encoded request target")
        length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._block(headers)}{length}\r\n".encode("latin-1")
        try:
            answer = await self._pool.exchange(head + body if body else head)
        except TransportError as error:
            raise TransportError(
                f"{method} {target}: {error}", maybe_applied=error.maybe_applied, timed_out=error.timed_out
            ) from error
        return Response(answer.status, answer.headers, answer.body)

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
        # The headers are kept with their block, so that no others can get their identity.
        self._blocks[id(headers)] = headers, block
        return block

    async def stream(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Stream:
        return await self._streams.stream(method, target, headers, body)

    async def close(self) -> None:
        await self._pool.close()
        await self._streams.close()
