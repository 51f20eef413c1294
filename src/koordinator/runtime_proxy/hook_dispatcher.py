"""Calls hook servers: all that are registered for a hook, in order, each with the changes of the ones before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from koordinator.base.clock import Clock
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import GrpcError
from koordinator.runtime_proxy.errors import RuntimeProxyError
from koordinator.runtime_proxy.hook_servers import HookPoint, HookServer, HookServerFolder

logger = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class HookError(RuntimeProxyError):
    """A hook server whose errors count has failed: the call must not reach the runtime."""


class HookMetrics(Protocol):
    """Where each request to a hook server is counted."""

    def called(self, hook: HookPoint, server: HookServer, *, success: bool, seconds: float) -> None:
        """One request has ended."""
        ...


class HookDispatcher:
    """Keeps one connection to each registered server."""

    def __init__(self, folder: HookServerFolder, timeout: float, clock: Clock, metrics: HookMetrics) -> None:
        """``timeout`` is in seconds, for each request to a server."""
        self._folder = folder
        self._timeout = timeout
        self._clock = clock
        self._metrics = metrics
        self._clients: dict[Path, GrpcClient] = {}

    def wants(self, hook: HookPoint) -> bool:
        """Whether any server is registered for a hook."""
        return bool(self._folder.servers(hook))

    async def before(self, hook: HookPoint, request: Q, response: type[A], merge: Callable[[Q, A], None]) -> bool:
        """Call before the runtime; ``merge`` merges each response into ``request``. Returns whether a server responded.

        HookError if a server fails that was registered with the policy Fail.
        """
        responded = False
        for server in self._folder.servers(hook):
            try:
                given = response.FromString(await self._call_server(hook, server, request))
            except (GrpcError, DecodeError) as error:
                logger.warning("hook server %s, %s: %s", server.name, hook, error)
                if server.fails:
                    raise HookError(f"hook server err: {error}") from error
                continue
            merge(request, given)
            responded = True
        return responded

    async def after(self, hook: HookPoint, request: Message) -> None:
        """Call after the runtime; the responses change nothing."""
        for server in self._folder.servers(hook):
            try:
                await self._call_server(hook, server, request)
            except GrpcError as error:
                logger.warning("hook server %s, %s: %s", server.name, hook, error)

    def close_unused(self) -> None:
        """Close the connections to servers that are not registered any more."""
        for path in self._clients.keys() - self._folder.endpoints:
            self._clients.pop(path).close()

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def _call_server(self, hook: HookPoint, server: HookServer, request: Message) -> bytes:
        client = self._clients.get(server.endpoint)
        if client is None:
            client = self._clients[server.endpoint] = GrpcClient(server.endpoint)
        started = self._clock.monotonic()
        success = False
        try:
            response = await client.unary(hook.method, request.SerializeToString(), self._timeout)
            success = True
            return response
        finally:
            self._metrics.called(hook, server, success=success, seconds=self._clock.monotonic() - started)
