"""The program of the workload controllers, from start to stop."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.api.kinds import EVENTS
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.cluster.controllers.program import Dependencies, WorkloadControllers
from koordinator.cluster.controllers.table import CONTROLLERS
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICA_SETS
from tests.cluster.controllers.objects import LABELS, template
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def test_it_works_until_it_is_stopped_and_leaves_no_event_unwritten() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), InMemoryApi(SystemClock()).running() as api:
            client, stop = api.client(), asyncio.Event()
            program = WorkloadControllers(
                CONTROLLERS, Dependencies(client, SystemClock(), Random(1), Metrics(), host="here")
            )
            running = asyncio.create_task(program.run(stop))
            spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template()}
            await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
            await wait_for(lambda: [each["status"].get("replicas") for each in api.all(REPLICA_SETS)] == [2])
            stop.set()
            await running
            await client.close()
        reasons = sorted(event["reason"] for event in api.all(EVENTS))
        assert reasons == ["ScalingReplicaSet", "SuccessfulCreate", "SuccessfulCreate"]

    asyncio.run(scenario())
