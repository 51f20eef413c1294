"""When a request is sent a second time, and for how long."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koordinator.cluster.admission_webhooks.client import RequestError, WebhookClient
from koordinator.cluster.admission_webhooks.configuration import ClientConfig
from koordinator.cluster.admission_webhooks.connection import ServiceResolver
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.indexed import MemoryStorage
from tests.kube.certificates import Authority

Script = Callable[[int, asyncio.StreamWriter], Awaitable[bool]]
"""What becomes of the request of a number, from 1 on: whether its connection is kept."""
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


class Server:
    """Reads requests and does what its script says."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"review"):
                self.requests += 1
                if not await self._script(self.requests, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def talking(folder: Path, script: Script) -> AsyncIterator[tuple[Server, Callable[[float], Awaitable[bytes]]]]:
    """A server, and a function that posts to it within so many seconds."""
    authority, server = Authority(), Server(script)
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=authority.server_context(folder))
    url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    config = ClientConfig(url, None, "", base64.b64encode(authority.pem).decode())
    client = WebhookClient(ServiceResolver(MemoryStorage(), Registry(BUILTIN_RESOURCES)))
    try:
        yield server, lambda timeout: client.post(config, b"review", timeout)
    finally:
        await client.close()
        listener.close()
        await listener.wait_closed()


async def _response(number: int, writer: asyncio.StreamWriter) -> bool:
    writer.write(_OK)
    return True


async def _hang_up(number: int, writer: asyncio.StreamWriter) -> bool:
    return False


async def _hang_up_on_the_second(number: int, writer: asyncio.StreamWriter) -> bool:
    return number != 2 and await _response(number, writer)


async def _slow_from_the_second_on(number: int, writer: asyncio.StreamWriter) -> bool:
    if number > 1:
        await asyncio.sleep(0.2)
    return await _hang_up_on_the_second(number, writer)


def test_a_server_that_hangs_up_on_a_new_connection_is_queried_once(tmp_path: Path) -> None:
    """It may have done what it was asked to."""

    async def scenario() -> int:
        async with talking(tmp_path, _hang_up) as (server, post):
            with pytest.raises(RequestError, match="EOF"):
                await post(10)
            return server.requests

    assert asyncio.run(scenario()) == 1


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with talking(tmp_path, _hang_up_on_the_second) as (server, post):
            assert await post(10) == await post(10) == b"{}"
            return server.requests

    assert asyncio.run(scenario()) == 3


def test_both_tries_have_the_time_of_one(tmp_path: Path) -> None:
    """Each takes two thirds of it."""

    async def scenario() -> None:
        async with talking(tmp_path, _slow_from_the_second_on) as (_, post):
            await post(10)
            with pytest.raises(RequestError, match="context deadline exceeded"):
                await post(0.3)

    asyncio.run(scenario())
