"""Whole managers over one cluster in memory: they contend for the lease and lose it, on one clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.manager.features import WEBHOOK_FRAMEWORK, make_features
from koordinator.manager.options import Options
from koordinator.manager.program import IS_LEADER_METRIC, Dependencies, Manager
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_watchdog import FakeWatchdog
from tests.manager.broken_input.bench import SYSTEM


class Replica:
    """One process, without webhooks."""

    def __init__(self, cluster: InMemoryApi, clock: ManualClock, name: str, *, elected: bool = True) -> None:
        self.name = name
        self.metrics = Metrics()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        features, random = make_features(), Random(name)
        features.set({WEBHOOK_FRAMEWORK: False})
        self._connection = cluster.connection()
        client = cluster.client(clock, self._connection)
        election = LeaderElectionConfig("koordinator-manager", SYSTEM, name, release_on_cancel=True)
        self.watchdog = FakeWatchdog(clock)
        self.leadership = Leadership(
            client,
            election if elected else None,
            clock=clock,
            random=random,
            metrics=self.metrics,
            again=True,
            is_leader_metric=IS_LEADER_METRIC,
            watchdog=self.watchdog,
        )
        options = Options(metrics_address=NOWHERE, health_address=NOWHERE, features=features)
        clients = client, self.leadership.guard(client)
        self.manager = Manager(options, self.leadership, Dependencies(*clients, clock, random, self.metrics, name))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._task = asyncio.create_task(self.manager.run(self._stop))
        try:
            yield
        finally:
            self._stop.set()
            if not self._task.cancelled():
                await self._task

    async def kill(self) -> None:
        """As by SIGKILL: from now on it says nothing more, to nobody."""
        assert self._task is not None
        self._connection.dead = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
