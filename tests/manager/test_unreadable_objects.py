"""The metric of objects that cannot be read."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.api.kinds import NODES
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.program import export_unreadable
from tests.in_memory_api import InMemoryApi
from tests.manager.broken_input.bench import node


def test_they_are_counted_by_kind_for_as_long_as_they_are_so() -> None:
    async def scenario() -> None:
        metrics, clock = Metrics(), ManualClock()
        cluster = InMemoryApi(clock)
        informers = InformerSet(cluster.client(), clock=clock, random=Random(1))
        informers.informer(NODES)
        export_unreadable(informers, metrics)
        cluster.put(NODES, {**node("a"), "spec": "none"})
        cluster.put(NODES, node("b"))

        def count() -> float | None:
            return metrics.registry.get_sample_value("koord_manager_unreadable_objects", {"kind": "Node"})

        async with informers.started(5):
            assert count() == 1
            cluster.put(NODES, node("a"))
            await clock.advance(1)
            assert count() == 0

    asyncio.run(scenario())
