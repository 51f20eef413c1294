"""Which waiting jobs are let through, and in which order."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Mapping
from types import FrameType, MappingProxyType
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document, copied
from koordinator.api.kinds import DEPLOYMENTS, POD_MIGRATION_JOBS, PODS
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.yielding import CooperativeYielding
from koordinator.descheduler.migration.arbitration import WaitingJob, filter_job, in_order
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_PASSED = "descheduler.koordinator.sh/passed-arbitration"


class Bench:
    """A Deployment of some pods on node-1, each with a job that waits."""

    def __init__(self, pods: int, replicas: int = 20, **args: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, replicas)
        self.names = [f"web-{index}" for index in range(pods)]
        for name in self.names:
            scene.pod(self.cluster, name)
            scene.job(self.cluster, name, name, passed=False)
        self.plugin = self.cluster.start(convert(args, MigrationControllerArgs))

    def arbitrate(self, *, deliver: bool = True) -> list[str]:
        """One round; what ``passed`` says then."""
        if deliver:
            self.cluster.deliver()
        asyncio.run(self.plugin.arbitrator.arbitrate())
        return self.passed()

    def passed(self) -> list[str]:
        """The names of the jobs that have been let through."""
        jobs = self.cluster.documents(POD_MIGRATION_JOBS).values()
        return [job["metadata"]["name"] for job in jobs if job["metadata"]["annotations"].get(_PASSED) == "true"]

    def end(self, name: str) -> None:
        self.cluster.change(POD_MIGRATION_JOBS, name, phase="Succeeded")


@pytest.mark.parametrize(("enabled", "passed"), [(False, ["late", "web-0"]), (True, ["web-0"])])
def test_a_job_waits_for_the_next_round_unless_arbitration_is_switched_off(enabled: bool, passed: list[str]) -> None:
    bench = Bench(1, arbitrationArgs={"enabled": enabled, "interval": "1h"}, maxMigratingPerWorkload=9)

    async def work() -> list[str]:
        working = asyncio.create_task(bench.plugin.run())
        await bench.cluster.clock.advance(1)
        scene.pod(bench.cluster, "late")
        scene.job(bench.cluster, "late", "late", passed=False)
        bench.cluster.deliver()
        await bench.cluster.clock.advance(1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return bench.passed()

    assert asyncio.run(work()) == passed


def test_a_third_job_of_a_node_waits_until_one_ends() -> None:
    bench = Bench(3, maxMigratingPerNode=2, maxMigratingPerWorkload=10, maxUnavailablePerWorkload=10)
    first = bench.arbitrate()
    assert len(first) == 2
    assert bench.arbitrate() == first
    bench.end(first[0])
    assert len(bench.arbitrate()) == 3


@pytest.mark.parametrize(
    ("args", "passed"),
    [
        ({"maxMigratingGlobally": 1}, 1),
        ({"maxMigratingPerNamespace": 3}, 3),
        ({"maxMigratingPerNode": 0}, 4),
        ({"maxMigratingPerWorkload": "15%"}, 3),
        ({"maxUnavailablePerWorkload": "15%"}, 3),
        ({"maxMigratingGlobally": 1, "skipEvictionGates": ["MaxMigratingGlobally"]}, 4),
    ],
)
def test_each_limit_holds_within_one_round(args: dict[str, Any], passed: int) -> None:
    generous = {"maxMigratingPerNode": 9, "maxMigratingPerWorkload": 9, "maxUnavailablePerWorkload": 9}
    bench = Bench(4, **{**generous, **args})
    assert len(bench.arbitrate()) == passed


def test_limits_count_what_informers_have_not_seen_yet() -> None:
    bench = Bench(3, maxMigratingPerNode=1)
    bench.arbitrate()
    assert len(bench.arbitrate(deliver=False)) == 1


def test_a_pod_that_must_not_be_moved_fails_its_job() -> None:
    bench = Bench(1, replicas=1)
    bench.arbitrate()
    status = bench.cluster.status("web-0")
    assert (status["phase"], status["reason"]) == ("Failed", "ForbiddenMigratePod")
    assert status["message"] == (
        'Pod "default/web-0" is forbidden to migrate because it does not meet the requirements'
    )


def test_gates_let_the_pod_of_a_single_replica_go() -> None:
    bench = Bench(1, replicas=1, skipEvictionGates=["ExpectedReplicas", "MaxUnavailablePerWorkload"])
    assert bench.arbitrate() == ["web-0"]


def test_a_workload_that_is_not_ready_waits() -> None:
    bench = Bench(1, replicas=4)
    for name in ("web-8", "web-9"):
        scene.pod(bench.cluster, name, "node-2")
        bench.cluster.change(PODS, f"default/{name}", conditions=[scene.NOT_READY])
    assert bench.arbitrate() == []
    bench.cluster.change(PODS, "default/web-9", conditions=[scene.READY])
    assert bench.arbitrate() == ["web-0"]


def test_a_job_without_a_pod_passes_so_that_it_can_say_so() -> None:
    bench = Bench(1)
    bench.cluster.remove(PODS, "default/web-0")
    assert bench.arbitrate() == ["web-0"]


def test_paused_and_ended_jobs_are_left_alone() -> None:
    bench = Bench(2, replicas=1)
    paused = copied(bench.cluster.job("web-0"))
    paused["spec"]["paused"] = True
    bench.cluster.put(POD_MIGRATION_JOBS, paused)
    bench.end("web-1")
    writes = len(bench.cluster.writes)
    assert bench.arbitrate() == []
    assert len(bench.cluster.writes) == writes


def test_a_forced_pod_passes_every_limit() -> None:
    bench = Bench(1, replicas=1, maxMigratingGlobally=1)
    scene.pod(bench.cluster, "forced", annotations={"descheduler.alpha.kubernetes.io/evict": ""})
    scene.job(bench.cluster, "forced", "forced", passed=False)
    assert bench.arbitrate() == ["forced"]


def test_the_workload_that_is_gone_forbids() -> None:
    bench = Bench(1)
    bench.cluster.remove(DEPLOYMENTS, "default/web")
    bench.arbitrate()
    assert bench.cluster.status("web-0")["reason"] == "ForbiddenMigratePod"


def _calls_of_a_round(jobs: int) -> tuple[int, int]:
    """How many functions a round after the first one calls that lets no job through, and how often others get the
    processor meanwhile."""
    bench = Bench(jobs, replicas=40 * jobs, maxMigratingGlobally=1, maxMigratingPerNamespace=1, maxMigratingPerNode=1)
    scene.pod(bench.cluster, "moved")
    scene.job(bench.cluster, "moved", "moved")
    bench.cluster.change(POD_MIGRATION_JOBS, "moved", phase="Running")
    bench.arbitrate()
    calls = others = 0
    # A tenth of a millisecond passes between two looks at the clock.
    bench.cluster.clock.monotonic = itertools.count(0, 1e-4).__next__  # type: ignore[method-assign]

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        working = asyncio.create_task(other())
        await asyncio.sleep(0)
        sys.setprofile(count)
        try:
            await bench.plugin.arbitrator.arbitrate()
        finally:
            sys.setprofile(None)
            working.cancel()

    asyncio.run(scenario())
    assert bench.passed() == ["moved"]
    return calls, others


def test_a_round_costs_as_much_for_each_job_however_many_wait() -> None:
    (few, _), (many, others) = _calls_of_a_round(50), _calls_of_a_round(200)
    assert many < 4.5 * few
    assert many < 200 * 100, "what neither a job nor its pod nor its workload has changed is worked out once"
    assert others > 15, "the event loop is never kept for long"


def _job(name: str, second: int) -> PodMigrationJob:
    return convert({"metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}}, PodMigrationJob)


def _ordered(
    waiting: list[PodMigrationJob], pods: dict[str, Pod], counts: Mapping[str, int] = MappingProxyType({})
) -> list[str]:
    found = [WaitingJob.of(job, pods.get(job.metadata.name)) for job in waiting]
    return [each.job.metadata.name for each in in_order(found, lambda owner: counts.get(owner, 0))]


def _pod(name: str, *, owner: str = "", priority: int = 0) -> Pod:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}]
    metadata: Document = {"namespace": "default", "name": name, "ownerReferences": owners if owner else []}
    return convert({"metadata": metadata, "spec": {"priority": priority}}, Pod)


def test_jobs_that_have_ended_are_not_looked_at_for_limits() -> None:
    bench = Bench(2)
    bench.end("web-0")
    bench.cluster.deliver()
    lister = bench.plugin.arbitrator._cluster
    assert [job.metadata.name for job in lister.waiting_jobs()] == ["web-1"]


def test_a_job_without_a_pod_reference_passes_so_that_it_can_say_so() -> None:
    bench = Bench(0)
    bench.cluster.put(POD_MIGRATION_JOBS, {"metadata": {"name": "odd", "annotations": {}}, "spec": {}})
    assert bench.arbitrate() == ["odd"]


def test_what_is_remembered_of_a_pod_is_that_of_the_pod_as_it_is_now() -> None:
    bench = Bench(2, maxMigratingPerNode=1, maxMigratingPerWorkload=10, maxUnavailablePerWorkload=10)
    scene.pod(bench.cluster, "moved")
    scene.job(bench.cluster, "moved", "moved")
    assert bench.arbitrate() == ["moved"]
    scene.pod(bench.cluster, "web-0", annotations={"scheduling.koordinator.sh/eviction-cost": "9"})
    bench.end("moved")
    assert bench.arbitrate() == ["moved", "web-1"]


def test_a_workload_that_is_scaled_down_is_noticed() -> None:
    bench = Bench(3, maxMigratingPerNode=1, maxMigratingPerWorkload=9, maxUnavailablePerWorkload=9)
    assert len(bench.arbitrate()) == 1
    scene.deployment(bench.cluster, replicas=1)
    bench.arbitrate()
    assert [bench.cluster.status(name).get("phase") for name in bench.names].count("Failed") == 2


def test_newer_jobs_come_first_and_those_without_a_pod_before_them() -> None:
    waiting = [_job("old", 1), _job("new", 2), _job("lost", 0)]
    pods = {"old": _pod("same"), "new": _pod("same")}
    assert _ordered(waiting, pods) == ["lost", "new", "old"]


def test_pods_decide_before_the_age_of_jobs() -> None:
    waiting = [_job("important", 2), _job("unimportant", 1)]
    pods = {"important": _pod("a", priority=9), "unimportant": _pod("b", priority=1)}
    assert _ordered(waiting, pods) == ["unimportant", "important"]


def test_jobs_of_one_batch_job_stay_together() -> None:
    waiting = [_job(name, 1) for name in ("a1", "b1", "a2")]
    pods = {
        "a1": _pod("1", owner="a", priority=1),
        "b1": _pod("2", owner="b", priority=2),
        "a2": _pod("3", owner="a", priority=3),
    }
    assert _ordered(waiting, pods) == ["a1", "a2", "b1"]


def test_a_batch_job_that_is_migrating_already_comes_first() -> None:
    waiting = [_job(name, 1) for name in ("a1", "b1")]
    pods = {"a1": _pod("1", owner="a", priority=1), "b1": _pod("2", owner="b", priority=2)}
    assert _ordered(waiting, pods, {"a": 1, "b": 3}) == ["b1", "a1"]


def _longest_stretch(bench: Bench) -> tuple[int, int]:
    """Of one round, in which every checkpoint yields: how many functions are called, and how many jobs looked at,
    between two turns of the event loop at most."""
    arbitrator = bench.plugin.arbitrator
    arbitrator._yielding = CooperativeYielding(bench.cluster.clock, 0.0)
    calls = looked_at = 0
    most = [0, 0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls, looked_at
        calls += event in ("call", "c_call")
        looked_at += event == "call" and frame.f_code is filter_job.__code__

    async def turns() -> None:
        nonlocal calls, looked_at
        while True:
            most[:] = max(most[0], calls), max(most[1], looked_at)
            calls = looked_at = 0
            await asyncio.sleep(0)

    async def round_() -> None:
        others = asyncio.create_task(turns())
        await asyncio.sleep(0)
        sys.setprofile(count)
        try:
            await arbitrator.arbitrate()
            await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
            others.cancel()

    asyncio.run(round_())
    return most[0], most[1]


@pytest.mark.parametrize("round_", ["first", "second"])
def test_others_have_their_turn_within_a_round(round_: str) -> None:
    """What is not interrupted at 2,000 jobs, 20,000 calls, is a few milliseconds."""
    jobs = 200
    bench = Bench(jobs, maxMigratingPerNode=1)
    bench.cluster.deliver()
    if round_ == "second":
        bench.arbitrate()
    calls, looked_at = _longest_stretch(bench)
    assert looked_at == 1
    assert calls < 1000 + 12 * jobs
