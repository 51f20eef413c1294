"""Opens connections to an API server, perhaps through a proxy, and reports a failed connection attempt in one line."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from koordinator.kube.errors import TransportError
from koordinator.kube.proxy import Proxy

_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 15
_PROBES = 3

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(slots=True)
class Connector:
    """The address of the server and its TLS settings. ``tls`` None is plain HTTP; the server's certificate must be
    valid for ``server_name``. ``proxy`` makes a tunnel to the server."""

    host: str
    port: int
    server_name: str = ""
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None

    async def connect(self, protocol: Callable[[], P]) -> P:
        """Return a new connection. Raises TransportError, in which case nothing was sent."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, connected = await self._open(protocol)
        except TimeoutError as error:
            raise TransportError(
                f"{self._where}: no connection within {_CONNECT_SECONDS:g} s", maybe_applied=False, timed_out=True
            ) from error
        except OSError as error:
            raise TransportError(f"{self._where}: {error}", maybe_applied=False) from error
        _probe_when_silent(transport.get_extra_info("socket"))
        return connected

    async def _open(self, protocol: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        loop, name = asyncio.get_running_loop(), (self.server_name or self.host) if self.tls is not None else None
        if self.proxy is None:
            return await loop.create_connection(protocol, self.host, self.port, ssl=self.tls, server_hostname=name)
        tunnel: asyncio.Transport | None = await self.proxy.open(self.host, self.port, self.tls)
        assert tunnel is not None
        connected = protocol()
        if self.tls is None:
            tunnel.set_protocol(connected)
        else:
            tunnel = await loop.start_tls(tunnel, connected, self.tls, server_hostname=name)
            if tunnel is None:
                raise TransportError(f"{self._where}: closed during the TLS handshake", maybe_applied=False)
        connected.connection_made(tunnel)
        return tunnel, connected

    @property
    def _where(self) -> str:
        return f"cannot connect to {self.host} port {self.port}"


def _probe_when_silent(opened: socket.socket) -> None:
    """Enable TCP keepalive, so that the kernel detects a dead peer within a minute, even if a watch is silent."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PROBE_SECONDS * (_PROBES + 1) * 1000)
