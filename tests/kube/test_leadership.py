"""Terms of leading, one after the other, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from koordinator.api.kinds import LEASES
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership, LeadershipLostError
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_watchdog import FakeWatchdog


class Bench:
    """``terms`` counts how often the work began, ``working`` is whether it runs."""

    def __init__(self, *, elected: bool = True, again: bool = True) -> None:
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.metrics = Metrics()
        self.terms = 0
        self.working = False
        self.done = asyncio.Event()
        self.stop = asyncio.Event()
        config = LeaderElectionConfig("koordinator-manager", "koordinator-system", "me", release_on_cancel=True)
        self.watchdog = FakeWatchdog(self.clock)
        self.leadership = Leadership(
            self.api.client(),
            config if elected else None,
            clock=self.clock,
            random=Random(1),
            metrics=self.metrics,
            again=again,
            is_leader_metric="is_leader",
            watchdog=self.watchdog,
        )

    async def _work(self) -> None:
        self.terms += 1
        self.working = True
        try:
            await self.done.wait()
        finally:
            self.working = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.leadership.run(self._work, self.stop))
        try:
            await self.clock.advance(0)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("is_leader")


def test_without_an_election_the_work_begins_at_once() -> None:
    async def scenario() -> None:
        bench = Bench(elected=False)
        async with bench.running():
            assert (bench.terms, bench.gauge, bench.leadership.is_leading) == (1, 1.0, True)
        assert not bench.working

    asyncio.run(scenario())


def test_the_work_runs_while_the_lease_is_held() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.running():
            await bench.clock.advance(30)
            assert (bench.terms, bench.working, bench.gauge) == (1, True, 1.0)
            assert bench.leadership.is_leading
        assert (bench.working, bench.gauge) == (False, 0.0)

    asyncio.run(scenario())


def test_before_the_first_term_nothing_may_be_written() -> None:
    assert not Bench().leadership.is_leading


def test_a_lease_that_is_lost_is_tried_for_anew() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.running():
            bench.api.go_away()
            await bench.clock.advance(300)
            assert (bench.working, bench.gauge) == (False, 0.0)
            assert not bench.leadership.is_leading
            bench.api.come_back()
            await bench.clock.advance(30)
            assert (bench.terms, bench.working, bench.gauge) == (2, True, 1.0)
        assert not bench.watchdog.strikes

    asyncio.run(scenario())


def test_at_the_end_the_lease_is_given_up() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.running():
            await bench.clock.advance(5)
        (lease,) = bench.api.all(LEASES)
        assert not lease["spec"].get("holderIdentity")

    asyncio.run(scenario())


def test_a_leader_that_stood_still_past_its_lease_is_killed() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.running():
            bench.clock._move_to(bench.clock.monotonic() + 15)
            assert (bench.watchdog.strikes, bench.leadership.is_leading) == ([15.0], False)

    asyncio.run(scenario())


def test_without_an_election_nobody_is_ever_killed() -> None:
    async def scenario() -> None:
        bench = Bench(elected=False)
        async with bench.running():
            bench.clock._move_to(1e6)
            assert not bench.watchdog.strikes

    asyncio.run(scenario())


def test_without_another_try_a_lease_that_is_lost_is_an_error() -> None:
    async def scenario() -> None:
        bench = Bench(again=False)
        async with bench.running() as task:
            bench.api.go_away()
            await bench.clock.advance(300)
            assert not bench.working
            with pytest.raises(LeadershipLostError):
                await task

    asyncio.run(scenario())


def test_a_lease_that_is_lost_at_the_end_is_no_error() -> None:
    async def scenario() -> None:
        bench = Bench(again=False)
        async with bench.running() as task:
            bench.api.go_away()
            bench.stop.set()
            await bench.clock.advance(300)
            await task
        assert not bench.working

    asyncio.run(scenario())


@pytest.mark.parametrize("again", [True, False])
def test_work_that_is_done_ends_the_leadership(again: bool) -> None:
    async def scenario() -> None:
        bench = Bench(again=again)
        async with bench.running() as task:
            bench.done.set()
            await bench.clock.advance(5)
            await task
        assert bench.terms == 1

    asyncio.run(scenario())


def test_who_leads_is_reported_as_events_of_the_lease() -> None:
    async def scenario() -> None:
        bench = Bench()
        events = EventBroadcaster(
            bench.api.client(), instance="me", clock=bench.clock, random=Random(1), metrics=bench.metrics
        )
        bench.leadership.announce_by(events, "koordinator-manager")
        async with bench.running():
            assert events.pending == 1

    asyncio.run(scenario())
