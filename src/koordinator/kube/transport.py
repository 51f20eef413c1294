"""The interface of HTTP transports to one API server.

Callers pass an encoded target and complete headers, and get a status, headers and bytes. Further features of HTTP
libraries (cookies, redirects, decompression, per-request time limits) are left out: they would cost more than the
request itself when a scheduler binds a thousand pods a second.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the API server and its proxy. ``url`` ends without a slash and may have a path."""

    url: str
    proxy: str = ""
    server_name: str = ""


class Response(Protocol):
    """A complete response."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


class Stream(Protocol):
    """A response whose body is read as it arrives."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece. Raises TransportError if it breaks off."""
        ...

    async def read(self) -> bytes:
        """Return the whole body, for responses that are failures."""
        ...

    def abort(self) -> None:
        """Close the connection: a reader that waits for a chunk gets a TransportError."""
        ...


class Transport(Protocol):
    """Requests to one API server. Both methods raise TransportError; a response with any status is returned."""

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
        """Send one request; give up at ``give_up_at`` (monotonic seconds). ``may_send`` is called directly before
        sending; if it returns false, nothing is sent and FencedError is raised."""
        ...

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Stream: ...

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections; open connections are used until they close."""
        ...

    async def close(self) -> None: ...
