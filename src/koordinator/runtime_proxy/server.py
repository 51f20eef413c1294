"""The proxy's socket for CRI: each connection of a client gets a connection of its own to the container runtime.

Windows, limits and the end of a connection are then the runtime's own: if the runtime stops, the client's connection
closes, as if the kubelet had been connected to the runtime directly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from koordinator.base.accepting import Acceptor, attach, dismiss, listen_at, prepare_socket
from koordinator.base.deadline import within
from koordinator.base.served_connections import ProgramConnections, ServedConnection, ServedConnections
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.runtime_proxy.buffer_budget import BufferBudget
from koordinator.runtime_proxy.errors import ListenError
from koordinator.runtime_proxy.intercepted_call import Interceptor
from koordinator.runtime_proxy.relay import Relay

logger = logging.getLogger(__name__)

_MOST_UNSENT: Final = 256 << 10
"""Bytes that may wait for a slow reader before the proxy stops reading from its peer."""

_FLUSHING: Final = 0.5
"""Seconds that clients get at the end for reading what was written to them."""


def listen(path: Path) -> socket.socket:
    """Listen on a socket that only root may use. ListenError if that fails."""
    try:
        prepare_socket(path)
        return listen_at(str(path))
    except OSError as error:
        raise ListenError(path, error) from error


class RelayServer:
    """Relays the CRI clients of a unix socket from ``start`` to ``stop``."""

    def __init__(
        self,
        interceptor: Interceptor,
        runtime: Path,
        tasks: asyncio.TaskGroup,
        connections: ProgramConnections,
        limits: ServerLimits = SOCKET_LIMITS,
    ) -> None:
        """``runtime`` is the runtime's socket; ``tasks`` must outlive ``stop``."""
        self._interceptor = interceptor
        self._runtime = runtime
        self._tasks = tasks
        self._connections = connections
        self._limits = limits
        self._budget = BufferBudget()
        self._pairs: set[_Pair] = set()
        self._pool: ServedConnections | None = None
        self._acceptor: Acceptor | None = None

    async def start(self, path: Path) -> None:
        """Listen at ``path``. ListenError if that fails."""
        listener = listen(path)
        self._pool = self._connections.serve(str(path), self._limits)
        self._acceptor = Acceptor(self._pool, self._accept)
        self._acceptor.start([listener])
        logger.info("serving the container runtime at %s on %s", self._runtime, path)

    async def stop(self, path: Path, grace: float) -> None:
        """Stop accepting, let calls in flight finish for ``grace`` seconds, and close all connections."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        if self._acceptor is None or self._pool is None:
            return
        self._acceptor.stop()
        for pair in list(self._pairs):
            pair.drain()
        await self._quiet(grace)
        for pair in list(self._pairs):
            pair.close()
        await self._quiet(_FLUSHING)
        self._pool.close_all()
        await self._pool.time_limits.close()

    async def _quiet(self, seconds: float) -> None:
        assert self._pool is not None
        with suppress(TimeoutError):
            await within(self._connections.clock, seconds, self._pool.quiet.wait())

    def _accept(self, accepted: socket.socket, served: ServedConnection) -> None:
        pair = _Pair(accepted, served, self._interceptor, self._tasks, self._pairs.discard, self._budget)
        self._pairs.add(pair)
        self._tasks.create_task(pair.connect(self._runtime), name="connect to the runtime")


class _End(asyncio.Protocol):
    """One of the two connections of a pair."""

    def __init__(self, pair: _Pair) -> None:
        self._pair = pair
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self.early: list[bytes] = []
        self.receive: Callable[[bytes], None] = self._keep

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_MOST_UNSENT)

    def data_received(self, data: bytes) -> None:
        self.receive(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._pair.lost()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def _keep(self, data: bytes) -> None:
        """Keep the first bytes that arrive before the relay exists, and pause reading until it does."""
        self.early.append(data)
        assert self.transport is not None
        self.transport.pause_reading()


class _Pair:
    """The connection of a client and its connection to the runtime.

    To the server they are one, which is open until both are closed: each of them takes a file.
    """

    def __init__(
        self,
        accepted: socket.socket,
        served: ServedConnection,
        interceptor: Interceptor,
        tasks: asyncio.TaskGroup,
        forget: Callable[[_Pair], None],
        budget: BufferBudget,
    ) -> None:
        self._accepted = accepted
        self._served = served
        self._interceptor = interceptor
        self._budget = budget
        self._tasks = tasks
        self._forget = forget
        self._relay: Relay | None = None
        self._closed = False
        self._client = _End(self)
        self._runtime = _End(self)
        self._client.other, self._runtime.other = self._runtime, self._client

    async def connect(self, path: Path) -> None:
        """Connect to the runtime, and start to relay; without a runtime, the client's connection is closed."""
        await attach(self._accepted, self._served, self._client)
        if self._client.transport is None:
            self.lost()
            return
        self._served.drop = self._drop
        self._served.await_header()
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self._runtime, str(path))
        except OSError as error:
            logger.warning("a connection is closed: the container runtime at %s: %s", path, error)
            self.close()
            return
        client, runtime = self._client.transport, self._runtime.transport
        if self._closed or client is None or runtime is None:
            if runtime is not None:
                runtime.close()
            return
        relay = self._relay = Relay(
            client, runtime, self._interceptor, self._tasks, self.close, self._budget, self._served
        )
        self._start(self._runtime, relay.from_runtime)
        self._start(self._client, relay.from_client)

    def drain(self) -> None:
        """Close as soon as no stream is open."""
        if self._relay is None:
            self.close()
            return
        self._relay.drain()
        if self._relay.is_idle:
            self.close()

    def close(self) -> None:
        """Close both connections after flushing what was written to them, as far as it is read in time."""
        if self._closed:
            return
        self._closed = True
        transports = self._transports()
        if self._relay is not None:
            self._relay.lost()
        for transport in transports:
            transport.close()
        self._served.begin()
        self._served.deliver(sum(transport.get_write_buffer_size() for transport in transports))

    def lost(self) -> None:
        """One of the connections is closed: the other follows."""
        self.close()
        if not self._transports():
            self._served.closed()
            self._forget(self)

    def _drop(self) -> None:
        """Close both at once. The calls of the client, if there are any, end at the runtime, too."""
        transports = self._transports()
        if self._client.transport is not None and self._relay is not None:
            dismiss(self._accepted, self._client.transport, self._relay.farewell())
        self.close()
        for transport in transports:
            transport.abort()

    def _transports(self) -> list[asyncio.Transport]:
        return [end.transport for end in (self._client, self._runtime) if end.transport is not None]

    @staticmethod
    def _start(end: _End, receive: Callable[[bytes], None]) -> None:
        end.receive = receive
        early, end.early = end.early, []
        for data in early:
            receive(data)
        if early and end.transport is not None:
            end.transport.resume_reading()
