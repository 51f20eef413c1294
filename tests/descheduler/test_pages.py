"""What koord-descheduler answers over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import aiohttp
import pytest

from koordinator.api.codec import decode_any
from koordinator.base.logs import verbosity
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.pages import add_pages
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.serving import HealthServer
from tests.descheduler.test_program_faults import DOCUMENT, Cluster


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


async def _response(path: str, method: str, body: str, *, leads: bool, cycles: int, profiling: bool) -> tuple[int, str]:
    cluster = Cluster()
    configuration = resolve({**DOCUMENT, "enableProfiling": profiling}, "", Catalogue(BUILT_IN, lambda: ()))
    client = cluster.api.client()
    events = EventBroadcaster(client, program="koord-descheduler", clock=cluster.clock, random=Random(1))
    made = Descheduler(client, events, configuration, Process(clock=cluster.clock, random=Random(1)))
    server = HealthServer(Metrics())
    add_pages(server, configuration, made, lambda: leads)
    async with made.informers.started(20), aiohttp.ClientSession() as session:
        for _ in range(cycles):
            await made.run_cycle()
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}{path}"
            async with session.request(method, url, data=body or None) as response:
                return response.status, await response.text()
        finally:
            await server.stop()


def send(
    path: str, method: str = "GET", body: str = "", *, leads: bool = True, cycles: int = 1, profiling: bool = True
) -> tuple[int, str]:
    """The status and the text that a descheduler answers which has done so many cycles."""
    return asyncio.run(_response(path, method, body, leads=leads, cycles=cycles, profiling=profiling))


def test_the_configuration_has_its_defaults() -> None:
    status, text = send("/configz", cycles=0)
    document = decode_any(text.encode())["componentconfig"]
    assert (status, document["deschedulingInterval"]) == (200, "1m0s")
    assert document["clientConnection"]["qps"] == 50


def test_the_plan_of_the_next_cycle() -> None:
    status, text = send("/explain/rebalance")
    document = decode_any(text.encode())
    # One of five has left in the cycle; the node is cool until a report says otherwise.
    assert (status, document["nodes"], document["evictions"]) == (200, 2, [])


@pytest.mark.parametrize(
    ("state", "text"),
    [({"leads": False}, "the instance is not leader"), ({"cycles": 0}, "no descheduling cycle has ended yet")],
)
def test_when_no_plan_is_made(state: dict[str, Any], text: str) -> None:
    status, reply = send("/explain/rebalance", **state)
    assert status == 503
    assert text in reply


def test_how_much_is_logged_can_be_changed() -> None:
    status, text = send("/debug/flags/v", "PUT", "4", cycles=0)
    assert (status, text) == (200, "successfully set klog.logging.verbosity to 4\n")
    assert logging.getLogger().level == verbosity(4)


def test_without_profiling_nothing_can_be_changed() -> None:
    assert send("/debug/flags/v", "PUT", "4", cycles=0, profiling=False)[0] == 404
