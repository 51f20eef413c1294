"""An API server that is away for five minutes, and two replicas of which one dies: what was changed meanwhile is seen
to afterwards, once, by one."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koordinator.api.kinds import LEASES, NODE_METRICS, NODE_SLOS, NODES
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.kube.event_series import EVENTS_V1
from tests.manager.broken_input.bench import BATCH_CPU, ManagerBench, node, node_metric
from tests.manager.broken_input.replicas import Replica

OUTAGE = 300
LONGEST_PAUSE = 30
INFORMERS = 10
"""At least so many kinds are watched, each of which is requested again by itself."""
LEADS = "koordinator_manager_is_leader"


class ReplicatedCluster:
    """A cluster of two nodes, and the clock of everything."""

    def __init__(self) -> None:
        bench = ManagerBench()
        self.cluster = bench.cluster
        bench.configure()
        self.clock: ManualClock = bench.clock
        self.configure = bench.configure
        for name in ("a", "b"):
            self.cluster.put(NODES, node(name))
            self.report(name)

    def report(self, name: str, cpu: str = "40") -> None:
        stored = self.cluster.found(NODE_METRICS, name) or {}
        self.cluster.put(NODE_METRICS, {**stored, **node_metric(name, format_time(self.clock.now()), cpu)})

    def offered(self, name: str) -> str | None:
        found = self.cluster.found(NODES, name)
        assert found is not None
        amount: str | None = found["status"]["allocatable"].get(BATCH_CPU)
        return amount

    async def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)

    def replica(self, name: str, *, elected: bool = True) -> Replica:
        return Replica(self.cluster, self.clock, name, elected=elected)

    def writes(self) -> Counter[tuple[str, str]]:
        """But for the lease, which is renewed all the time, and events."""
        return Counter({each: n for each, n in self.cluster.writes.items() if each[1] not in ("leases", "events")})


@asynccontextmanager
async def in_sync(fixture: ReplicatedCluster, *replicas: Replica) -> AsyncIterator[None]:
    async with asyncio.timeout(120):
        running = [replica.running() for replica in replicas]
        for each in running:
            await each.__aenter__()
        try:
            await fixture.pass_by(20)
            assert (fixture.offered("a"), fixture.offered("b")) == ("25k", "25k")
            yield
        finally:
            for each in running:
                stopping = asyncio.create_task(each.__aexit__(None, None, None))
                await fixture.pass_by(10)
                await stopping


def leaders(*replicas: Replica) -> list[str]:
    return [replica.name for replica in replicas if replica.leadership.is_leading]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@pytest.mark.parametrize("elected", [True, False])
def test_what_was_changed_while_it_was_away_is_seen_to_afterwards(elected: bool) -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        replica = fixture.replica("one", elected=elected)
        async with in_sync(fixture, replica):
            fixture.cluster.go_away()
            await fixture.pass_by(OUTAGE)
            before = fixture.writes()
            fixture.report("a", "60")
            fixture.cluster.remove(NODES, "b")
            fixture.cluster.put(NODES, node("c"))
            fixture.configure({"colocation-config": {"enable": True, "cpuReclaimThresholdPercent": 75}})
            fixture.cluster.come_back()
            await fixture.pass_by(LONGEST_PAUSE + 2 * LONGEST_PAUSE)
            assert fixture.offered("a") == "15k"
            assert fixture.cluster.found(NODE_METRICS, "b") is None
            assert fixture.cluster.found(NODE_SLOS, "b") is None
            assert fixture.cluster.found(NODE_METRICS, "c") is not None
            assert fixture.cluster.found(NODE_SLOS, "c") is not None
            written = fixture.writes() - before
            # Of "a" once for the report and once for the configuration, of "c" that it is there.
            assert written.pop(("patch", "nodes")) <= 3
            assert written == {
                ("delete", "nodemetrics"): 1,
                ("delete", "nodeslos"): 1,
                ("create", "nodemetrics"): 1,
                ("create", "nodeslos"): 1,
            }

    run(story)


def test_it_steps_down_and_leads_again_in_the_same_process() -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        replica = fixture.replica("one")
        async with in_sync(fixture, replica):
            assert replica.sample(LEADS) == 1
            fixture.cluster.go_away()
            await fixture.pass_by(11)
            assert replica.sample(LEADS) == 0
            assert not replica.leadership.is_leading
            await fixture.pass_by(OUTAGE - 11)
            fixture.cluster.come_back()
            await fixture.pass_by(20)
            assert replica.sample(LEADS) == 1
            assert not replica.watchdog.strikes

    run(story)


def test_it_neither_spins_nor_sleeps_too_long_while_nobody_responds(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        with caplog.at_level(logging.ERROR):
            async with in_sync(fixture, fixture.replica("one")):
                fixture.cluster.go_away()
                await fixture.pass_by(60)
                counts = []
                for _ in range(OUTAGE // LONGEST_PAUSE):
                    before = len(fixture.cluster.requests)
                    await fixture.pass_by(LONGEST_PAUSE)
                    counts.append(len(fixture.cluster.requests) - before)
                assert min(counts) >= INFORMERS
                assert max(counts) <= 5 * LONGEST_PAUSE
                fixture.cluster.come_back()
                await fixture.pass_by(LONGEST_PAUSE)
        assert not caplog.records

    run(story)


def test_a_write_that_failed_is_tried_again_half_a_minute_after_the_return_at_the_latest() -> None:
    """Without an election nobody steps down: what is queued goes on failing, and waits longer each time."""

    async def story() -> None:
        fixture = ReplicatedCluster()
        replica = fixture.replica("one", elected=False)
        async with in_sync(fixture, replica):
            fixture.report("a", "60")
            fixture.cluster.go_away()
            await fixture.pass_by(OUTAGE)
            assert fixture.offered("a") == "25k"
            fixture.cluster.come_back()
            await fixture.pass_by(LONGEST_PAUSE + 1)
            assert fixture.offered("a") == "5k"

    run(story)


def test_two_replicas_write_everything_once() -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        one, two = fixture.replica("one"), fixture.replica("two")
        async with in_sync(fixture, one, two):
            assert one.sample(LEADS) == 1
            assert two.sample(LEADS) == 0
            assert fixture.writes() == {
                ("patch", "nodes"): 2,
                ("patch", "nodemetrics"): 2,
                ("create", "nodeslos"): 2,
            }

    run(story)


def test_of_two_replicas_one_reports_a_broken_configuration() -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        one, two = fixture.replica("one"), fixture.replica("two")
        async with in_sync(fixture, one, two):
            fixture.configure({"colocation-config": "{"})
            await fixture.pass_by(5)
            events = [each for each in fixture.cluster.all(EVENTS_V1) if each["regarding"]["kind"] == "ConfigMap"]
            assert [each["reportingInstance"] for each in events] == ["one"]
            for replica in (one, two):
                assert replica.sample("koord_manager_slo_configuration_in_error", key="colocation-config") == 1

    run(story)


def test_the_other_replica_takes_over_from_one_that_was_killed() -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        one, two = fixture.replica("one"), fixture.replica("two")
        async with in_sync(fixture, one, two):
            before = fixture.writes()
            await one.kill()
            fixture.report("a", "60")
            await fixture.pass_by(14)
            assert fixture.offered("a") == "25k", "the lease of the dead one still runs"
            await fixture.pass_by(16)
            assert two.sample(LEADS) == 1
            assert fixture.offered("a") == "5k"
            assert fixture.writes() - before == {("patch", "nodes"): 1}
            lease = fixture.cluster.found(LEASES, "koordinator-manager", "koordinator-system")
            assert lease is not None
            assert lease["spec"]["holderIdentity"] == "two"

    run(story)


def test_two_replicas_come_out_of_an_outage_with_one_leader() -> None:
    async def story() -> None:
        fixture = ReplicatedCluster()
        one, two = fixture.replica("one"), fixture.replica("two")
        async with in_sync(fixture, one, two):
            before = fixture.writes()
            fixture.cluster.go_away()
            await fixture.pass_by(OUTAGE)
            assert leaders(one, two) == []
            fixture.report("a", "60")
            fixture.cluster.come_back()
            for _ in range(60):
                await fixture.pass_by(1)
                assert len(leaders(one, two)) <= 1
            assert len(leaders(one, two)) == 1
            assert fixture.offered("a") == "5k"
            assert fixture.writes() - before == {("patch", "nodes"): 1}

    run(story)


def test_an_event_on_the_lease_says_who_leads() -> None:
    fixture = ReplicatedCluster()

    async def story() -> None:
        async with fixture.replica("one").running():
            await fixture.pass_by(5)
        (began,) = [each for each in fixture.cluster.all(EVENTS_V1) if each["note"] == "one became leader"]
        assert (began["type"], began["reason"]) == ("Normal", "LeaderElection")
        about = (began["regarding"]["kind"], began["regarding"]["namespace"], began["regarding"]["name"])
        assert about == ("Lease", "koordinator-system", "koordinator-manager")

    asyncio.run(story())
