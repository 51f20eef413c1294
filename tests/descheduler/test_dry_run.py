"""A dry run in a cluster where every plugin and every controller has something to do: it says so, and does nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import (
    DRAIN_NODE_GROUPS,
    DRAIN_NODES,
    NODE_METRICS,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
)
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.features import GATES
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.write_policy import ReadOnly
from tests.descheduler.clusters import NOW, PLUGIN_ARGS, make_metric, make_node, make_pod
from tests.in_memory_api import InMemoryApi

ENABLED: Final = [{"name": "LowNodeLoad"}]
LIMITS: Final = ("maxMigratingPerNode", "maxMigratingPerWorkload", "maxUnavailablePerWorkload")
DOCUMENT: Final[dict[str, Any]] = {
    "apiVersion": VERSION,
    "kind": KIND,
    "dryRun": True,
    "deschedulingInterval": "60s",
    "profiles": [
        {
            "name": "p",
            "plugins": {"balance": {"enabled": ENABLED}},
            "pluginConfig": [
                {"name": "LowNodeLoad", "args": dict(PLUGIN_ARGS["LowNodeLoad"])},
                {"name": "MigrationController", "args": dict.fromkeys(LIMITS, 12)},
            ],
        }
    ],
}


class Cluster:
    """A hot node, a job of each state, and nodes that are to be drained."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=NOW)
        self.api = InMemoryApi(self.clock)
        put = self.api.put
        owner: dict[str, Any] = {"namespace": "default", "name": "web", "uid": "uid-web"}
        put(REPLICA_SETS, {"metadata": owner, "spec": {"replicas": 15, "selector": {}}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        places = [*(("web", number, "hot") for number in range(9)), *(("other", n, f"node-{n}") for n in range(3))]
        for name, number, node in places:
            pod = to_document(make_pod(f"{name}-{number}", node, status=ready))
            put(PODS, {**pod, "spec": {**pod["spec"], "schedulerName": "koord-scheduler"}})
        for name in ("hot", "cool", "node-0", "node-1", "node-2"):
            put(NODES, to_document(make_node(name, labels={"pool": name})))
        put(NODE_METRICS, to_document(make_metric("hot", {f"web-{number}": "400m" for number in range(9)})))
        put(NODE_METRICS, to_document(make_metric("cool", {})))
        self.job("waiting", "web-0", passed=False)
        self.job("passed", "web-1", passed=True)
        self.job("reserving", "web-2", passed=True, mode="ReservationFirst")
        self.job("late", "web-3", passed=True, ttl="1s")
        self.job("over", "web-4", passed=True, status={"phase": "Failed"}, age=3600)
        put(DRAIN_NODES, {"metadata": {"name": "empty-0"}, "spec": {"nodeName": "node-0"}})
        put(
            DRAIN_NODES,
            {"metadata": {"name": "empty-1"}, "spec": {"nodeName": "node-1", "migrationMode": "EvictDirectly"}},
        )
        selector = {"matchLabels": {"pool": "node-2"}}
        put(DRAIN_NODE_GROUPS, {"metadata": {"name": "pool"}, "spec": {"nodeSelector": selector}})

    def job(self, name: str, pod: str, *, passed: bool, age: int = 10, status: Any = None, **spec: Any) -> None:
        annotations = {"descheduler.koordinator.sh/passed-arbitration": "true"} if passed else {}
        created = f"2026-01-01T{12 - (age >= 3600):02d}:00:00Z" if age >= 3600 else "2026-01-01T11:59:50Z"
        self.api.put(
            POD_MIGRATION_JOBS,
            {
                "metadata": {"name": name, "annotations": annotations, "creationTimestamp": created},
                "spec": {
                    "podRef": {"namespace": "default", "name": pod, "uid": f"uid-{pod}"},
                    "mode": "EvictDirectly",
                    "ttl": "5m",
                    **spec,
                },
                "status": status or {},
            },
        )

    async def run(self, cycles: int, read_only: ReadOnly | None) -> Counter[tuple[str, str]]:
        """How often what was written, while so many cycles went by."""
        stop, client = asyncio.Event(), self.api.client(read_only=read_only)
        process = Process(clock=self.clock, random=Random(1), stop=stop)
        events = EventBroadcaster(client, program="koord-descheduler", clock=self.clock, random=Random(1))
        configuration = resolve(DOCUMENT, "", Catalogue(BUILT_IN, lambda: ()))
        made = Descheduler(client, events, configuration, process, frozenset(GATES))
        async with asyncio.timeout(20), made.informers.started(20), asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(events.run())
            tasks.create_task(made.deschedule(stop))
            while made.cycles < cycles:
                await self.clock.advance(5)
            stop.set()
            await self.clock.advance(1)
            writer.cancel()
        return self.api.writes


@pytest.mark.parametrize("read_only", [None, ReadOnly("a dry run")], ids=["any client", "a client that refuses"])
def test_nothing_is_written(read_only: ReadOnly | None) -> None:
    cluster = Cluster()
    before = cluster.api.revision
    assert not asyncio.run(cluster.run(3, read_only))
    assert cluster.api.revision == before


def test_what_would_be_done_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    cluster = Cluster()
    asyncio.run(cluster.run(3, ReadOnly("a dry run")))
    said = Counter(record.getMessage() for record in caplog.records)
    prefix = "In dry run mode: "
    intentions = {text.removeprefix(prefix): count for text, count in said.items() if text.startswith(prefix)}
    assert set(intentions.values()) == {1}
    assert intentions.keys() == {
        "PodMigrationJob waiting: let it through",
        "PodMigrationJob waiting: evict pod default/web-0 from node hot",
        "PodMigrationJob passed: evict pod default/web-1 from node hot",
        "PodMigrationJob reserving: create a Reservation for its pod",
        "PodMigrationJob late: end as Failed: Abort job caused by timeout",
        "PodMigrationJob over: delete it with its Reservation, it is over",
        "DrainNode empty-0 of node node-0: cordon its node",
        "DrainNode empty-0 of node node-0: create Reservation empty-0-uid-othe for pod default/other-0",
        "DrainNode empty-1 of node node-1: cordon its node",
        "DrainNode empty-1 of node node-1: create PodMigrationJob empty-1-uid-othe for pod default/other-1",
        "DrainNodeGroup pool: take node node-2 into the group",
        "DrainNodeGroup pool: create DrainNode pool-node-2",
    }
    assert said["Evicted pod in dry run mode"] > 0
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert cluster.api.names(RESERVATIONS) == []
