"""The servers of health, metrics and pages, which all programs have, among hostile clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.pages import Request, Response
from koordinator.kube.serving import HealthServer
from tests.kube.certificates import Authority
from tests.real_world.attacked_server import LIMITS, AttackedServer, outlive
from tests.real_world.hostile_clients import HOSTILE_CLIENTS, HostileClient, Target
from tests.waiting import PATIENCE

REQUEST = b"GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
OVER = {"http": asyncio.new_event_loop, "https": uvloop.new_event_loop}
"""Programs run on uvloop, tests mostly on asyncio's own loop."""


async def large_page(request: Request) -> Response:
    return Response(body=bytes(100_000))


@asynccontextmanager
async def attacked_server(folder: Path | None) -> AsyncIterator[AttackedServer]:
    """Over TLS if there is a folder for certificates."""
    metrics, clock, authority = Metrics(), ManualClock(), Authority()
    tls, trusting = None, None
    if folder is not None:
        tls = authority.server_context(folder)
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        trusting.check_hostname = False
    server = HealthServer(metrics, tls=tls, connections=ProgramConnections(metrics, clock), limits=LIMITS)
    server.add_route("/page", large_page)
    await server.start()
    labels = {"port": str(server.bound_port)}
    try:
        yield AttackedServer(
            Target("127.0.0.1", server.bound_port, REQUEST, trusting),
            clock,
            lambda: metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0,
        )
    finally:
        await server.stop()


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_ordinary_clients_are_served_beside(client: HostileClient, over: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), attacked_server(tmp_path if over == "https" else None) as server:
            await outlive(server, client)

    with asyncio.Runner(loop_factory=OVER[over]) as runner:
        runner.run(scenario())
