"""Connections to a TCP port, from the listening socket to the protocol that serves them; over TLS if need be.

What a client may take up meanwhile is limited by ``koordinator.base.served_connections``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from koordinator.base.accepting import BACKLOG, Acceptor, attach
from koordinator.base.port_holder import holder_of
from koordinator.base.served_connections import ServedConnection, ServedConnections

_HANDSHAKES_AT_ONCE: Final = 4
_LONGEST_HANDSHAKE: Final = 60.0
"""Of the library, whose timer does not know the limits; a connection is closed by those first."""
_GOODBYE_SECONDS: Final = 1.0
"""How long a client may take to confirm the end of a TLS connection."""


async def listen(host: str, port: int, field: str = "") -> list[socket.socket]:
    """Listening sockets for each address of a host; "" is every address. OSError if one is not available: it names who
    has the port, and ``field``, with which another is chosen."""
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(await _addresses(host, port)):
            if not host and family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
                continue  # a machine without IPv6 has this address all the same
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        if isinstance(error, socket.gaierror):
            raise
        raise OSError(
            error.errno, f"cannot listen on {host or '*'} port {port}: {_reason(error, port, field)}"
        ) from error
    return listeners


def _reason(error: OSError, port: int, field: str) -> str:
    if error.errno != errno.EADDRINUSE:
        return os.strerror(error.errno or 0).lower()
    return f"it is taken by {holder_of(port)}" + (f"; choose another with {field}" if field else "")


async def _addresses(host: str, port: int) -> Sequence[Any]:
    """Without a thread, unless it is a name."""
    try:
        return socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )


class AcceptedConnections:
    """Gives each connection that says something a protocol, from ``start`` to ``stop``."""

    def __init__(
        self,
        pool: ServedConnections,
        make_protocol: Callable[[ServedConnection], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._make_protocol = make_protocol
        self._tls = tls
        self._acceptor = Acceptor(pool, self._hear)
        self._heard: list[tuple[socket.socket, ServedConnection]] = []
        """Those whose first bytes have come, and whose handshake has not begun."""
        self._connecting: set[asyncio.Task[None]] = set()

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept on sockets that listen; they are closed at the end."""
        self._acceptor.start(listeners)

    def stop(self) -> None:
        """Accept no more."""
        self._acceptor.stop()

    async def ended(self) -> None:
        """Wait until no handshake is in progress; after ``stop``, and once all connections are closed."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _hear(self, accepted: socket.socket, connection: ServedConnection) -> None:
        if self._tls is None:
            self._connect_soon(accepted, connection)
            return
        self._heard.append((accepted, connection))
        if len(self._heard) == 1:
            asyncio.get_running_loop().call_soon(self._begin_handshakes)

    def _begin_handshakes(self) -> None:
        """Begin a few in a turn of the event loop, for each of them takes a good part of a millisecond.

        The newest is the first: when thousands have come at once, whoever comes after them need not wait for them all.
        """
        for _ in range(min(_HANDSHAKES_AT_ONCE, len(self._heard))):
            self._connect_soon(*self._heard.pop())
        if self._heard:
            asyncio.get_running_loop().call_soon(self._begin_handshakes)

    def _connect_soon(self, accepted: socket.socket, connection: ServedConnection) -> None:
        if connection.is_open:
            task = asyncio.create_task(self._connect(accepted, connection), name="accept a connection")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, connection: ServedConnection) -> None:
        timers = {"ssl_handshake_timeout": _LONGEST_HANDSHAKE, "ssl_shutdown_timeout": _GOODBYE_SECONDS}
        options = timers if self._tls is not None else {}
        await attach(accepted, connection, self._make_protocol(connection), ssl=self._tls, **options)
