"""HTTP to one API server: what everything above it hands over and gets back.

An encoded target and finished headers go in, a status, headers and bytes come out. What HTTP libraries offer beyond
that (cookies, redirects, decompression, per-request time limits) has no place here: it costs more than the request
itself when a scheduler binds a thousand pods a second.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is, and how it is reached. ``url`` ends without a slash and may have a path."""

    url: str
    proxy: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is read as it arrives."""

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
    """One API server. Both verbs raise TransportError; any status is an answer."""

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response: ...

    async def stream(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Stream: ...

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Open connections with other certificates from now on; those that are open are used until they close."""
        ...

    async def close(self) -> None: ...
