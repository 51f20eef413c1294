"""Profiles of koordlet: where they are served, and that they are profiles."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.koordlet.command_line import parse_options
from tests.base.profiling.pprof_file import read_pprof
from tests.free_ports import free_ports
from tests.koordlet.node_under_test import NodeUnderTest


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ([], NOWHERE),
        (["--pprof-addr=:9"], NOWHERE),
        (["--enable-pprof"], ListenAddress("127.0.0.1", 9317)),
        (["-enable-pprof", "-pprof-addr=:9"], ListenAddress("", 9)),
    ],
)
def test_they_are_served_only_if_requested_for(arguments: list[str], address: ListenAddress) -> None:
    options = parse_options(arguments, {"NODE_NAME": "node-1"})
    assert (options.profiles, options.remarks) == (address, ())


def test_a_running_agent_serves_one(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = NodeUnderTest(tmp_path)
    node.profiles = ListenAddress("127.0.0.1", port)

    async def profile() -> bytes:
        url = f"http://127.0.0.1:{port}/debug/pprof/goroutine"
        async with node.running(), aiohttp.request("GET", url, raise_for_status=True) as response:
            return await response.read()

    places = [place for stack in read_pprof(asyncio.run(profile())).samples for place in stack]
    assert any(place.startswith("koordinator.koordlet.agent.Agent._measure_and_report ") for place in places)


def test_an_address_that_is_taken_does_not_end_the_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with taken:
            node = NodeUnderTest(tmp_path)
            node.profiles = ListenAddress("127.0.0.1", taken.sockets[0].getsockname()[1])
            async with node.running():
                await node.pass_seconds(65)
        assert node.status["nodeMetric"]

    asyncio.run(run())
    assert "profiles are not served, see --pprof-addr" in caplog.text
