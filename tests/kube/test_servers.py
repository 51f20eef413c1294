"""What a program serves at which address."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import aiohttp
import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE, ListenAddress, parse_listen_address
from koordinator.base.metrics import Metrics
from koordinator.kube.health import HealthChecks
from koordinator.kube.servers import Servers
from koordinator.kube.serving import HealthServer
from tests.free_ports import free_ports


def local(count: int = 1) -> list[ListenAddress]:
    return [ListenAddress("127.0.0.1", port) for port in free_ports(count)]


def fetched(add: Callable[[Servers, ListenAddress], None], path: str) -> tuple[int, str]:
    """Status and body of a GET from a server that ``add`` has planned."""

    async def scenario() -> tuple[int, str]:
        metrics = Metrics()
        metrics.gauge("something", "Some thing.").set(1)
        (address,) = local()
        servers = Servers(metrics, ManualClock())
        add(servers, address)
        async with servers, aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
            return response.status, await response.text()

    return asyncio.run(scenario())


async def listens(address: ListenAddress) -> bool:
    try:
        _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _must_not_be_called(server: HealthServer) -> None:
    raise AssertionError("a server was made")


def test_metrics_are_served() -> None:
    status, text = fetched(lambda servers, address: servers.add(address), "/metrics")
    assert status == 200
    assert "something 1.0" in text


def test_routes_are_added() -> None:
    def add(servers: Servers, address: ListenAddress) -> None:
        other = Metrics()
        other.gauge("else", "Something else.").set(2)
        servers.add(address, lambda server: server.add_metrics("/external-metrics", other))

    assert "else 2.0" in fetched(add, "/external-metrics")[1]


@pytest.mark.parametrize(("wrong", "code"), [("", 200), ("no certificates", 500)])
@pytest.mark.parametrize("path", ["/readyz", "/readyz/webhook-ready"])
def test_checks_are_those_of_the_program(path: str, wrong: str, code: int) -> None:
    def add(servers: Servers, address: ListenAddress) -> None:
        health = HealthChecks()
        health.add("webhook-ready", lambda: wrong, "readyz")
        servers.add(address, health=health)

    assert fetched(add, path)[0] == code


def test_a_server_without_checks_is_ready() -> None:
    assert fetched(lambda servers, address: servers.add(address), "/readyz")[0] == 200


@pytest.mark.parametrize(("profiles", "status"), [(True, 200), (False, 404)])
def test_profiles_are_served_where_they_are_wanted(profiles: bool, status: int) -> None:
    def add(servers: Servers, address: ListenAddress) -> None:
        servers.add(address, profiles=profiles)

    assert fetched(add, "/debug/pprof/cmdline")[0] == status


def test_an_address_of_nowhere_is_not_served() -> None:
    async def scenario() -> None:
        servers = Servers(Metrics(), ManualClock())
        servers.add(NOWHERE, _must_not_be_called)
        async with servers:
            pass

    asyncio.run(scenario())


def test_a_port_that_is_taken_ends_the_start_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        free, taken = local(2)
        first, second = Servers(Metrics(), ManualClock()), Servers(Metrics(), ManualClock())
        first.add(taken)
        second.add(free)
        second.add(taken)
        async with first:
            with pytest.raises(OSError, match=f"it is taken by process {os.getpid()} "):
                await second.__aenter__()
            assert not await listens(free)

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_named_with_its_holder_and_the_flag() -> None:
    async def scenario() -> None:
        (taken,) = local(1)
        first, second = Servers(Metrics(), ManualClock()), Servers(Metrics(), ManualClock())
        first.add(taken)
        second.add(parse_listen_address("--metrics-addr", str(taken)))
        async with first:
            with pytest.raises(OSError, match="is taken by process") as refused:
                await second.__aenter__()
            assert str(refused.value).endswith("; choose another with --metrics-addr")

    asyncio.run(scenario())


def test_a_port_that_is_taken_costs_what_is_dispensable_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        free, taken = local(2)
        first, second = Servers(Metrics(), ManualClock()), Servers(Metrics(), ManualClock())
        first.add(taken)
        second.add(taken, profiles=True, dispensable="profiles are not served, see --pprof-addr")
        second.add(free)
        async with first, second:
            assert await listens(free)

    asyncio.run(scenario())
    assert "profiles are not served, see --pprof-addr: " in caplog.text


def test_nothing_that_knows_http_is_loaded_before_a_server_starts() -> None:
    program = """
import sys
from koordinator.base.clock import SystemClock
from koordinator.base.listen_address import ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.kube.servers import Servers
Servers(Metrics(), SystemClock()).add(ListenAddress("127.0.0.1", 1), profiles=True)
assert "aiohttp" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
