"""The proxy's socket for CRI: each connection of a client gets a connection of its own to the container runtime.

Windows, limits and the end of a connection are then the runtime's own: if the runtime stops, the client's connection
closes, as if the kubelet had been connected to the runtime directly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from koordinator.runtime_proxy.buffer_budget import BufferBudget
from koordinator.runtime_proxy.errors import ListenError
from koordinator.runtime_proxy.relay import Interceptor, Relay

logger = logging.getLogger(__name__)

_MOST_UNSENT: Final = 256 << 10
"""Bytes that may wait for a slow reader before the proxy stops reading from its peer."""


def prepare_socket(path: Path) -> None:
    """Create the folder of a socket and remove the socket of an earlier run. ListenError if that fails."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(0, "there is a file that is not a socket")
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ListenError(path, error) from error


async def listen(path: Path, accept: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    """Listen on a socket that only root may use. ListenError if that fails."""
    prepare_socket(path)
    try:
        server = await asyncio.get_running_loop().create_unix_server(accept, str(path), backlog=128)
        # As containerd's and docker's: a client of it has the rights of root on the node.
        os.chmod(path, 0o600)
    except OSError as error:
        raise ListenError(path, error) from error
    return server


class RelayServer:
    """Relays the CRI clients of a unix socket from ``start`` to ``stop``."""

    def __init__(self, interceptor: Interceptor, runtime: Path, tasks: asyncio.TaskGroup) -> None:
        """``runtime`` is the runtime's socket; ``tasks`` must outlive ``stop``."""
        self._interceptor = interceptor
        self._runtime = runtime
        self._tasks = tasks
        self._budget = BufferBudget()
        self._pairs: set[_Pair] = set()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        """Listen at ``path``. ListenError if that fails."""
        self._server = await listen(path, self._accept)
        logger.info("serving the container runtime at %s on %s", self._runtime, path)

    async def stop(self, path: Path, grace: float) -> None:
        """Stop accepting, let calls in flight finish for ``grace`` seconds, and close all connections."""
        if self._server is not None:
            self._server.close()
        with suppress(FileNotFoundError):
            os.unlink(path)
        for pair in list(self._pairs):
            pair.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._pairs:
                    self._changed.clear()
                    await self._changed.wait()
        for pair in list(self._pairs):
            pair.close()

    def _accept(self) -> asyncio.Protocol:
        pair = _Pair(self._interceptor, self._tasks, self._forget, self._budget)
        self._pairs.add(pair)
        self._tasks.create_task(pair.connect(self._runtime), name="connect to the runtime")
        return pair.client

    def _forget(self, pair: _Pair) -> None:
        self._pairs.discard(pair)
        self._changed.set()


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
        self._pair.close()

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
    """The connection of a client and its connection to the runtime."""

    def __init__(
        self,
        interceptor: Interceptor,
        tasks: asyncio.TaskGroup,
        forget: Callable[[_Pair], None],
        budget: BufferBudget,
    ) -> None:
        self._interceptor = interceptor
        self._budget = budget
        self._tasks = tasks
        self._forget = forget
        self._relay: Relay | None = None
        self._closed = False
        self.client = _End(self)
        self._runtime = _End(self)
        self.client.other, self._runtime.other = self._runtime, self.client

    async def connect(self, path: Path) -> None:
        """Connect to the runtime, and start to relay; without a runtime, the client's connection is closed."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self._runtime, str(path))
        except OSError as error:
            logger.warning("a connection is closed: the container runtime at %s: %s", path, error)
            self.close()
            return
        client, runtime = self.client.transport, self._runtime.transport
        if self._closed or client is None or runtime is None:
            if runtime is not None:
                runtime.close()
            return
        relay = self._relay = Relay(client, runtime, self._interceptor, self._tasks, self.close, self._budget)
        self._start(self._runtime, relay.from_runtime)
        self._start(self.client, relay.from_client)

    def drain(self) -> None:
        """Close as soon as no stream is open."""
        if self._relay is None:
            self.close()
            return
        self._relay.drain()
        if self._relay.is_idle:
            self.close()

    def close(self) -> None:
        """Close both connections after flushing what was written to them."""
        if self._closed:
            return
        self._closed = True
        if self._relay is not None:
            self._relay.lost()
        elif self.client.transport is not None:
            self.client.transport.close()
        self._forget(self)

    @staticmethod
    def _start(end: _End, receive: Callable[[bytes], None]) -> None:
        end.receive = receive
        early, end.early = end.early, []
        for data in early:
            receive(data)
        if early and end.transport is not None:
            end.transport.resume_reading()
