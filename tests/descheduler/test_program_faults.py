"""The running program where objects cannot be read, or the API server is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_METRICS, NODES, PODS, PRIORITY_CLASSES, Kind
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.descheduler.clusters import NOW, PLUGIN_ARGS, make_metric, make_node, make_pod
from tests.in_memory_api import InMemoryApi

EVICTOR: Final = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
DOCUMENT: Final[dict[str, Any]] = {
    "apiVersion": VERSION,
    "kind": KIND,
    "deschedulingInterval": "60s",
    "profiles": [
        {
            "name": "p",
            "plugins": {"evict": EVICTOR, "filter": EVICTOR, "balance": {"enabled": [{"name": "LowNodeLoad"}]}},
        }
    ],
}
UNREADABLE: Final[Mapping[str, tuple[Kind[Any], dict[str, Any]]]] = {
    "node": (NODES, {"status": {"allocatable": {"cpu": "many"}}}),
    "pod": (PODS, {"spec": {"containers": "some"}}),
    "report": (NODE_METRICS, {"status": {"updateTime": "soon", "podsMetric": 7}}),
    "report without a zone": (NODE_METRICS, {"status": {"updateTime": "2026-01-01T12:00:00", "nodeMetric": {}}}),
    "priority class": (PRIORITY_CLASSES, {"value": "high"}),
}


class Cluster:
    """A node that is hot by five pods, and one that is idle."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=NOW)
        self.api = InMemoryApi(self.clock)
        pods = [make_pod(f"web-{number}", "hot") for number in range(5)]
        for pod in pods:
            self.api.put(PODS, to_document(pod))
        for node in (make_node("hot"), make_node("cool")):
            self.api.put(NODES, to_document(node))
        for metric in (make_metric("hot", {pod.metadata.name: "500m" for pod in pods}), make_metric("cool", {})):
            self.api.put(NODE_METRICS, to_document(metric))

    @asynccontextmanager
    async def descheduler(self, **args: Any) -> AsyncIterator[Descheduler]:
        """That leads, and has done no cycle. ``args`` are further ones of LowNodeLoad."""
        stop, client = asyncio.Event(), self.api.client()
        (profile,) = DOCUMENT["profiles"]
        of_plugin = {"name": "LowNodeLoad", "args": {**PLUGIN_ARGS["LowNodeLoad"], **args}}
        document = {**DOCUMENT, "profiles": [{**profile, "pluginConfig": [of_plugin]}]}
        configuration = resolve(document, "", Catalogue(BUILT_IN, lambda: ()))
        events = EventBroadcaster(client, program="koord-descheduler", clock=self.clock, random=Random(1))
        made = Descheduler(client, events, configuration, Process(clock=self.clock, random=Random(1), stop=stop))
        async with asyncio.timeout(20), made.informers.started(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(made.deschedule(stop))
            yield made
            stop.set()
            await self.clock.advance(1)

    def make_hot_again(self) -> None:
        """By reports that are from three minutes later."""
        usages = dict.fromkeys(self.left(), "1")
        for metric in (make_metric("hot", usages, age=-179), make_metric("cool", {}, age=-179)):
            self.api.put(NODE_METRICS, to_document(metric))

    def left(self) -> list[str]:
        """The pods of which none has been told to end."""
        return [pod["metadata"]["name"] for pod in self.api.all(PODS) if "deletionTimestamp" not in pod["metadata"]]


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_object_that_cannot_be_read_keeps_no_hot_node_hot(what: str) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        kind, body = UNREADABLE[what]
        namespace = {"namespace": "default"} if kind.namespaced else {}
        cluster.api.put(kind, {**body, "metadata": {"name": "odd", **namespace}})
        async with cluster.descheduler() as descheduler:
            await cluster.clock.advance(1)
            assert descheduler.cycles == 1
            assert [name for name in cluster.left() if name != "odd"] == ["web-1", "web-2", "web-3", "web-4"]

    asyncio.run(scenario())


def test_cycles_go_on_while_the_api_server_is_away_and_evict_when_it_is_back() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        async with cluster.descheduler() as descheduler:
            await cluster.clock.advance(1)
            assert (descheduler.cycles, len(cluster.left())) == (1, 4)
            cluster.api.go_away()
            cluster.make_hot_again()
            await cluster.clock.advance(120)
            assert (descheduler.cycles, len(cluster.left())) == (3, 4)
            cluster.api.come_back()
            # Informers look for the server at longer and longer intervals.
            await cluster.clock.advance(120)
            assert (descheduler.cycles, len(cluster.left())) == (5, 2)

    asyncio.run(scenario())


def test_a_leader_that_finds_the_api_server_away_begins_when_it_is_back() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        async with cluster.descheduler() as descheduler:
            cluster.api.go_away()
            await cluster.clock.advance(100)
            assert descheduler.cycles == 0
            cluster.api.come_back()
            await cluster.clock.advance(30)
            assert descheduler.cycles == 1

    asyncio.run(scenario())


def test_a_leader_that_finds_the_api_server_away_can_be_stopped() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        async with cluster.descheduler():
            cluster.api.go_away()
            await cluster.clock.advance(100)

    asyncio.run(scenario())
