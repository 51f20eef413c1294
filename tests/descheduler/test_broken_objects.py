"""Each object that an API server accepts and that says what cannot be, in a whole dry run beside a hot node: a cycle
does not fail, and the same pods would leave the hot node."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_METRICS, NODES, PODS, REPLICA_SETS
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.features import GATES
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.descheduler.clusters import NOW, PLUGIN_ARGS, make_metric, make_node, make_pod
from tests.in_memory_api import InMemoryApi
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS

_PLUGINS: Final = ("LowNodeLoad",)
_LIMITS: Final = ("maxMigratingPerNode", "maxMigratingPerWorkload", "maxUnavailablePerWorkload")
_DOCUMENT: Final[dict[str, Any]] = {
    "apiVersion": VERSION,
    "kind": KIND,
    "dryRun": True,
    "profiles": [
        {
            "name": "p",
            "plugins": {"balance": {"enabled": [{"name": name} for name in _PLUGINS]}},
            "pluginConfig": [
                *({"name": name, "args": dict(PLUGIN_ARGS[name])} for name in _PLUGINS),
                {"name": "MigrationController", "args": dict.fromkeys(_LIMITS, 12)},
            ],
        }
    ],
}


def _cluster(clock: ManualClock) -> InMemoryApi:
    api = InMemoryApi(clock)
    owner: dict[str, Any] = {"namespace": "default", "name": "web", "uid": "uid-web"}
    api.put(REPLICA_SETS, {"metadata": owner, "spec": {"replicas": 15, "selector": {}}})
    for number in range(9):
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        pod = to_document(make_pod(f"web-{number}", "hot", status=ready))
        api.put(PODS, {**pod, "spec": {**pod["spec"], "schedulerName": "koord-scheduler"}})
    for name in ("hot", "cool", BROKEN_NODE):
        api.put(NODES, to_document(make_node(name)))
    api.put(NODE_METRICS, to_document(make_metric("hot", {f"web-{number}": "400m" for number in range(9)})))
    api.put(NODE_METRICS, to_document(make_metric("cool", {})))
    return api


def test_the_same_pods_would_leave_the_hot_node() -> None:
    async def scenario() -> None:
        clock = ManualClock(start=NOW)
        api, stop = _cluster(clock), asyncio.Event()
        client = api.client()
        configuration = resolve(_DOCUMENT, "", Catalogue(BUILT_IN, lambda: ()))
        process = Process(clock=clock, random=Random(1), stop=stop)
        events = EventBroadcaster(client, program="koord-descheduler", clock=clock, random=Random(1))
        descheduler = Descheduler(client, events, configuration, process, frozenset(GATES))
        async with asyncio.timeout(60), descheduler.informers.started(20):
            usual = (await descheduler.run_cycle()).evicted
            assert usual
            for broken in BROKEN_OBJECTS:
                before = api.found(broken.kind, broken.document["metadata"]["name"])
                api.put(broken.kind, broken.copy())
                await clock.advance(1)
                report = await descheduler.run_cycle()
                assert (broken.name, report.evicted, report.errors) == (broken.name, usual, [])
                if before is not None:
                    api.put(broken.kind, before)

    asyncio.run(scenario())
