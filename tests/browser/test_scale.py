"""The page of a large cluster: 5,000 nodes and 10,000 pods that wait, of which 500 rows change in every second.

What is bounded is the CPU time of the page's thread, which other work on the machine does not prolong.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import pytest

from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.cli.explain import sources_of
from koordinator.cli.main import make_parser
from koordinator.cli.page.board import Board, Table, sees_all
from koordinator.cli.page.broadcast import Broadcast
from koordinator.cli.page.feed import Feed
from koordinator.cli.page.history import History
from koordinator.cli.page.local_access import LocalAccess
from koordinator.cli.page.pod_list import PodList
from koordinator.cli.page.site import Site
from koordinator.cli.page.viewers import Viewer
from koordinator.cli.page.what_if_runs import WhatIfRuns
from koordinator.cli.session import Session
from koordinator.kube.serving import HealthServer
from tests.browser.chromium import Chromium
from tests.in_memory_api import InMemoryApi

T = TypeVar("T")
NODES: Final = 5000
PENDING: Final = 10_000
CHANGES: Final = 250
TURNS: Final = 8
_SECONDS: Final = 0.1
"""Of CPU time for a turn, with what is drawn; it was 0.01 to 0.03 when this was written."""


class LargeCluster:
    """The tables of one that there is not."""

    def __init__(self) -> None:
        self.tables = [Table(name) for name in ("nodes", "pending", "classes", "contact", "interference", "audit")]
        self._numbers = count()
        named = {each.name: each for each in self.tables}
        self._nodes, self._pending = named["nodes"], named["pending"]
        for number in range(NODES):
            self._put_node(number, 0)
        for number in range(PENDING):
            self._put_pod(number)
        named["contact"].put("api", {"cluster": "large", "server": "x", "context": "large", "kubernetes": "v1.33.0"})

    def turn(self) -> None:
        """Half of the changes are those of nodes, the others pods that come and go."""
        for number in (next(self._numbers) for _ in range(CHANGES)):
            self._put_node(number % NODES, number)
            self._pending.remove(f"shop/pod-{number}")
            self._put_pod(number + PENDING)

    def _put_node(self, number: int, load: int) -> None:
        usage = {"cpu": 1000 + load * 37 % 30_000, "memory": 1 << 33}
        batch = {
            "name": "koord-batch", "pods": 5, "allocated": usage, "measured": usage, "reclaimable": usage,
            "suppressed": 0,
        }  # fmt: skip
        row = {
            "name": f"node-{number}", "allocatable": {"cpu": 32_000, "memory": 1 << 36}, "measured": usage,
            "classes": {"koord-batch": batch}, "state": "ready", "pressures": [], "created": "2026-01-01T00:00:00Z",
            "reported": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        self._nodes.put(f"node-{number}", row)

    def _put_pod(self, number: int) -> None:
        row = {
            "name": f"shop/pod-{number}", "class": "koord-batch", "requests": {"cpu": 500, "memory": 1 << 30},
            "why": f"0/{NODES} nodes are available: {number % 3 + 1} Insufficient cpu",
            "message": "", "created": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        }  # fmt: skip
        self._pending.put(f"shop/pod-{number}", row)


class Served:
    """The site of a large cluster, on a thread of its own, which turns when it is told to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.link = self._call(self._start())

    def turn(self) -> None:
        async def turn() -> None:
            self._broadcast.turn()

        self._call(turn())

    def stop(self) -> None:
        async def stop() -> None:
            await self._server.stop()

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> str:
        clock, cluster = SystemClock(), LargeCluster()
        self._broadcast = Broadcast(Board(cluster.tables), cluster.turn, clock)
        nobody = sources_of(make_parser(["page"]).parse_args(["page", "--scheduler=127.0.0.1:9"]))
        access = LocalAccess(Viewer(sees_all, nobody, Session(AsyncExitStack()), lambda _: ()), clock)
        self._server = HealthServer(Metrics(), host="127.0.0.1", port=0, field="port")
        pods = PodList(Feed(InMemoryApi().client(), clock))
        Site(access, self._broadcast, pods, History(), WhatIfRuns(), clock).add_to(self._server)
        await self._server.start()
        access.serve_as("127.0.0.1", self._server.bound_port)
        return f"http://127.0.0.1:{self._server.bound_port}/open?ticket={access.ticket()}"

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(120)


@pytest.fixture(scope="module")
def served(window: Chromium) -> Iterator[Served]:
    """The window has it open."""
    found = Served()
    try:
        window.size(1280)
        window.open(found.link)
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("place", ["overview", "nodes", "pending"])
def test_a_large_cluster_is_drawn_without_a_stutter(window: Chromium, served: Served, place: str) -> None:
    window.shows("live", ".contact")
    window.go(place)
    window.shows("node-1" if place == "nodes" else "shop/pod-" if place == "pending" else "Is it safe?")
    shown = partial(window.run, "return Math.max(0, ...window.koordinator.versions())")
    spent = cpu_seconds(window)
    for _ in range(TURNS):
        before = shown()
        served.turn()
        window.until(partial(lambda before: shown() > before, before))
    spent = (cpu_seconds(window) - spent) / TURNS
    assert spent < _SECONDS


def test_the_first_paint_waits_for_nothing(window: Chromium, served: Served) -> None:
    """For no row: what is bounded is the number of bytes and requests until then, which are the same everywhere."""
    window.driver.refresh()
    window.shows("live", ".contact")
    loaded = window.run(
        "return performance.getEntriesByType('resource').map(each => [each.name, each.encodedBodySize])"
    )
    files = [(name, size) for name, size in loaded if "/static/" in name]
    assert len(files) < 30
    assert sum(size for _, size in files) < 250 << 10


def cpu_seconds(window: Chromium) -> float:
    """What the page's thread has used."""
    window.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = window.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
