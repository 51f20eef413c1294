"""Two deschedulers of one lease: one works, and the other goes on when the first cannot reach the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from koordinator.api.kinds import POD_MIGRATION_JOBS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.errors import FencedError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership, LeadershipLostError
from tests.descheduler.test_program_faults import DOCUMENT, Cluster
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_watchdog import FakeWatchdog


class Replica:
    """A program, but for its flags and its HTTP surface."""

    def __init__(self, name: str, api: InMemoryApi, clock: ManualClock) -> None:
        self.connection = api.connection()
        self.client = api.client(connection=self.connection)
        config = LeaderElectionConfig("koord-descheduler", "koordinator-system", name, release_on_cancel=True)
        self.leadership = Leadership(
            self.client, config, clock=clock, random=Random(1), metrics=Metrics(), watchdog=FakeWatchdog(clock)
        )
        self.guarded = self.leadership.guard(self.client)
        self._stop = asyncio.Event()
        self.descheduler = Descheduler(
            self.guarded,
            EventBroadcaster(self.client, program="koord-descheduler", clock=clock, random=Random(1)),
            resolve(DOCUMENT, "", Catalogue(BUILT_IN, lambda: ())),
            Process(clock=clock, random=Random(1), stop=self._stop),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with self.descheduler.informers.started(20):
            work = self.leadership.run(lambda: self.descheduler.deschedule(self._stop), self._stop)
            task = asyncio.create_task(work)
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def test_one_works_and_the_other_takes_over() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        first, second = (Replica(name, cluster.api, cluster.clock) for name in ("first", "second"))
        async with asyncio.timeout(20), first.running() as ended:
            await cluster.clock.advance(1)
            async with second.running():
                await cluster.clock.advance(100)
                assert (first.descheduler.cycles, second.descheduler.cycles) == (2, 0)
                first.connection.dead = True
                for _ in range(60):
                    await cluster.clock.advance(0.5)
                    assert not (first.leadership.is_leading and second.leadership.is_leading)
                assert second.descheduler.cycles == 1
                assert isinstance(ended.exception(), LeadershipLostError)

    asyncio.run(scenario())


def test_who_does_not_lead_can_create_no_job() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        replica = Replica("first", cluster.api, cluster.clock)
        with pytest.raises(FencedError):
            await replica.guarded.create(POD_MIGRATION_JOBS, {"metadata": {"name": "job"}})

    asyncio.run(scenario())
