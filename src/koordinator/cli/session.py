"""The connections of one command: a client of each API server, one of the programs, and who leads their replicas.

Whatever a command queries goes through its session, so that a cluster is connected to once, however much is read of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp

from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected

_CONNECTIONS: Final = 10


class Session:
    """Made by ``open_session``, which closes all of it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._clients: list[tuple[ClientOptions, KubeClient]] = []
        self._http: aiohttp.ClientSession | None = None
        self.leaders: dict[tuple[str, str], str] = {}
        """Namespace and name of a Lease -> the host that holds it."""
        self.tokens: dict[str, tuple[ClientOptions, float]] = {}
        """The namespace of programs -> a client's options with the token for them, and until when they are used."""

    async def client(self, options: ClientOptions) -> KubeClient:
        """The client with these options. Raises KubeconfigError and CredentialError."""
        for known, client in self._clients:
            if known is options:
                return client
        client = await self._stack.enter_async_context(connected(options))
        self._clients.append((options, client))
        return client

    async def http(self) -> aiohttp.ClientSession:
        """For programs that are queried where they serve; each request has its own time limit."""
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
            self._http = await self._stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        return self._http


@asynccontextmanager
async def open_session() -> AsyncIterator[Session]:
    """A session for as long as the block runs."""
    async with AsyncExitStack() as stack:
        yield Session(stack)
