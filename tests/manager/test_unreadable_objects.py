"""The metric of objects that cannot be read."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.api.kinds import NODES
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.unreadable_objects import export_unreadable
from tests.kube.fake_client import as_client
from tests.manager.broken_input.bench import node
from tests.manager.broken_input.client_in_memory import ClientInMemory
from tests.manager.broken_input.cluster_in_memory import ClusterInMemory


def test_they_are_counted_by_kind_for_as_long_as_they_are_so() -> None:
    async def scenario() -> None:
        cluster, metrics, clock = ClusterInMemory(), Metrics(), ManualClock()
        informers = InformerSet(as_client(ClientInMemory(cluster)), clock=clock, random=Random(1))
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
