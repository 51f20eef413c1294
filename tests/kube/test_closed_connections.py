"""What a server keeps of a connection that has been closed: nothing, also before the garbage collector runs.

Its TLS is 50 KiB that the collector does not know of, and in koord-manager it comes to cycles that have lived for a
while after tens of thousands of connections.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServedConnection
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.accepted_connections import listen
from koordinator.kube.http_server import HttpServer
from koordinator.kube.serving import HealthServer
from tests.kube.certificates import Authority
from tests.waiting import PATIENCE, wait_for

HOST = "127.0.0.1"
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
RESET = struct.pack("ii", 1, 0)
"""Of SO_LINGER: what has not been read is no reason to wait."""
Stop = Callable[[], Awaitable[None]]


async def pages(tls: ssl.SSLContext) -> tuple[int, Stop]:
    server = HealthServer(Metrics(), tls=tls)
    await server.start()
    return server.bound_port, server.stop


async def application(tls: ssl.SSLContext) -> tuple[int, Stop]:
    async def healthy(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    made = web.Application()
    made.router.add_get("/healthz", healthy)
    runner = web.AppRunner(made)
    await runner.setup()
    (listener,) = await listen(HOST, 0)
    port = int(listener.getsockname()[1])
    pool = ProgramConnections(Metrics(), SystemClock()).serve(str(port), ServerLimits())
    server = HttpServer(runner, pool, SystemClock(), tls=tls)
    server.start([listener])
    return port, lambda: server.stop(2)


def kept() -> int:
    """How many connections the process still has objects of."""
    return sum(isinstance(each, ServedConnection) for each in gc.get_objects())


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("make", [pages, application])
def test_nothing_is_kept_of_it(
    make: Callable[[ssl.SSLContext], Awaitable[tuple[int, Stop]]], is_reset: bool, tmp_path: Path
) -> None:
    authority = Authority()
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    async def scenario() -> None:
        port, stop = await make(authority.server_context(tmp_path))
        before = kept()
        for _ in range(3):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=trusting)
            writer.write(REQUEST)
            assert b"200" in await reader.readline()
            if is_reset:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()
            else:
                writer.close()
        await wait_for(lambda: kept() == before)
        await stop()

    async def timed() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    uvloop.run(timed())
