"""Metrics and health of koord-manager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer
from koordinator.manager.serving import make_profile_server, make_servers, starts
from tests.free_ports import free_ports


async def status(server: HealthServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{server.bound_port}{path}") as answer:
        return answer.status, await answer.text()


def with_servers(
    ready: Callable[[], str] | None, check: Callable[[HealthServer, HealthServer], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        metrics.gauge("something", "Some thing.").set(1)
        addresses = [ListenAddress("127.0.0.1", port) for port in free_ports(2)]
        first, second = make_servers(metrics, addresses[0], addresses[1], ready, {})
        await first.start()
        await second.start()
        try:
            await check(first, second)
        finally:
            await first.stop()
            await second.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/metrics", "/internal-metrics", "/external-metrics", "/all-metrics"])
def test_metrics_are_served_under_the_original_s_paths(path: str) -> None:
    async def check(metrics: HealthServer, health: HealthServer) -> None:
        code, text = await status(metrics, path)
        assert code == 200
        assert "something 1.0" in text

    with_servers(None, check)


@pytest.mark.parametrize(("wrong", "code"), [("", 200), ("no certificates", 500)])
def test_readiness_is_that_of_the_webhooks(wrong: str, code: int) -> None:
    async def check(metrics: HealthServer, health: HealthServer) -> None:
        assert (await status(health, "/readyz"))[0] == code
        assert (await status(health, "/readyz/webhook-ready"))[0] == code
        assert (await status(health, "/livez"))[0] == 200

    with_servers(lambda: wrong, check)


def test_without_webhooks_there_is_nothing_to_wait_for() -> None:
    async def check(metrics: HealthServer, health: HealthServer) -> None:
        assert (await status(health, "/readyz"))[0] == 200

    with_servers(None, check)


def test_an_address_of_nowhere_is_not_served() -> None:
    assert make_servers(Metrics(), NOWHERE, NOWHERE, None, {}) == []


def test_profiles_are_served_where_there_is_an_address() -> None:
    async def scenario() -> None:
        server = make_profile_server(Metrics(), ListenAddress("127.0.0.1", free_ports(1)[0]), ManualClock())
        assert server is not None
        assert await starts(server)
        assert (await status(server, "/debug/pprof/cmdline"))[0] == 200
        await server.stop()

    asyncio.run(scenario())
    assert make_profile_server(Metrics(), NOWHERE, ManualClock()) is None


def test_a_port_that_is_taken_costs_the_profiles_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        address = ListenAddress("127.0.0.1", free_ports(1)[0])
        servers = [make_profile_server(Metrics(), address, ManualClock()) for _ in range(2)]
        assert [await starts(server) for server in servers if server is not None] == [True, False]
        for server in servers:
            assert server is not None
            await server.stop()

    asyncio.run(scenario())
    assert "profiles are not served, see --pprof-addr" in caplog.text
