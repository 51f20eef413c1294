"""The embedded API among hostile clients: who has the token is served, and watches go on."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import uvloop

from koordinator.base.clock import ManualClock
from koordinator.cluster.http.application import HttpLimits
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from tests.real_world.attacked_server import LIMITS, AttackedServer, outlive
from tests.real_world.hostile_clients import HOSTILE_CLIENTS, HostileClient, Target
from tests.waiting import PATIENCE

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def request(api: EmbeddedApi, method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def attacked_api() -> AsyncIterator[tuple[EmbeddedApi, AttackedServer]]:
    clock = ManualClock()
    async with EmbeddedApi(ServerOptions(clock=clock, http=HttpLimits(connections=LIMITS))) as api:
        trusting = ssl.create_default_context(cadata=api.certificate_authority)
        found = re.fullmatch(r"https://(.*):(\d+)", api.url)
        assert found is not None
        target = Target(found[1], int(found[2]), request(api, "GET", CONFIG_MAPS), trusting)
        yield api, AttackedServer(target, clock, lambda: api.connections)


@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_ordinary_clients_are_served_beside(client: HostileClient) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), attacked_api() as (_, server):
            await outlive(server, client)

    uvloop.run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_watch_is_never_in_the_way(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Neither the limits of time nor the room that others need ends it."""

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), attacked_api() as (api, server):
            reader, writer = await asyncio.open_connection(
                server.target.host, server.target.port, ssl=server.target.tls, server_hostname="localhost"
            )
            writer.write(request(api, "GET", f"{CONFIG_MAPS}?watch=true&resourceVersion=0&timeoutSeconds=3000"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await outlive(server, HOSTILE_CLIENTS[0], others=1)
            body = msgspec.json.encode({"metadata": {"name": "late"}})
            created = request(api, "POST", CONFIG_MAPS, body)
            _, other = await asyncio.open_connection(
                server.target.host, server.target.port, ssl=server.target.tls, server_hostname="localhost"
            )
            other.write(created)
            assert b'"late"' in await reader.readuntil(b'"late"')
            other.transport.abort()
            writer.transport.abort()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), attacked_api() as (api, server):
            reader, writer = await asyncio.open_connection(
                server.target.host, server.target.port, ssl=server.target.tls, server_hostname="localhost"
            )
            writer.write(request(api, "POST", CONFIG_MAPS, b"{" + b" " * 100)[:-50])
            answer = asyncio.ensure_future(reader.read())
            for _ in range(int(LIMITS.body) + 2):
                await turns()
                await server.clock.advance(1)
            head, _, body = (await answer).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            assert msgspec.json.decode(body)["reason"] == "Timeout"
            assert b"did not arrive within 30 seconds" in body
            writer.transport.abort()

    uvloop.run(scenario())


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)
