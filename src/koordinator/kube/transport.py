"""HTTP to one API server: what everything above it hands over and gets back.

An encoded target and finished headers go in, a status, headers and bytes come out. What HTTP libraries offer beyond
that (cookies, redirects, decompression, per-request time limits) has no place here: it costs more than the request
itself when a scheduler binds a thousand pods a second.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is, and how it is reached. ``url`` ends without a slash and may have a path."""

    url: str
    proxy: str = ""
    server_name: str = ""


class Response(Protocol):
    """A whole response."""

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
        """The body piece by piece. Raises TransportError when it breaks off."""
        ...

    async def read(self) -> bytes:
        """All of the body, for answers that turn out to be failures."""
        ...

    def abort(self) -> None:
        """Cut the connection: whoever waits for a chunk gets a TransportError."""
        ...


class Transport(Protocol):
    """One API server. Both verbs raise TransportError; any status is a response."""

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
        """Ask once, until ``give_up_at`` (monotonic seconds). ``may_send`` is called when nothing but sending is left
        to do; where it says no, nothing is sent and FencedError raised."""
        ...

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Stream: ...

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Open connections with other certificates from now on; those that are open are used until they close."""
        ...

    async def close(self) -> None: ...
