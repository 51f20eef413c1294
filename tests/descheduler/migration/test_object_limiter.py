"""How often pods of a workload or a namespace are evicted, also over restarts."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.arguments import MigrationControllerArgs, scaled, workload_limit
from koordinator.descheduler.migration.recent_evictions import EvictedPod, ObjectLimiter
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_POD = convert({"metadata": {"namespace": "default", "name": "web-a", "ownerReferences": [scene.OWNER]}}, Pod)


def limiter(**limiters: object) -> ObjectLimiter:
    args = {"objectLimiters": limiters} if limiters else {}
    return ObjectLimiter(convert(args, MigrationControllerArgs))


def test_ten_replicas_lose_a_pod_every_150_seconds() -> None:
    limits = limiter()
    limits.track(EvictedPod.of(_POD, 10), 0)
    assert limits.refusals(_POD, 149.9)
    assert not limits.refusals(_POD, 150)


def test_a_burst_is_allowed_at_once() -> None:
    limits = limiter(workload={"duration": "100s", "maxMigrating": 1, "burst": 2})
    limits.track(EvictedPod.of(_POD, 10), 0)
    assert not limits.refusals(_POD, 0)
    limits.track(EvictedPod.of(_POD, 10), 0)
    assert limits.refusals(_POD, 99)


def test_an_unlimited_kind_does_not_hide_the_next() -> None:
    limits = limiter(workload={"duration": "100s"}, namespace={"duration": "100s", "maxMigrating": 1})
    limits.track(EvictedPod.of(_POD, None), 0)
    assert limits.refusals(_POD, 50) == ["limitedObject: namespace default had pods evicted a short time ago"]


def test_a_percentage_of_a_namespace_is_no_limit() -> None:
    limits = limiter(namespace={"duration": "100s", "maxMigrating": "10%"})
    limits.track(EvictedPod.of(_POD, 10), 0)
    assert not limits.refusals(_POD, 0)


@given(times=st.lists(st.floats(0, 10_000), max_size=40), most=st.integers(1, 9), burst=st.integers(0, 5))
def test_no_more_than_burst_and_rate_are_let_through(times: list[float], most: int, burst: int) -> None:
    limits = limiter(workload={"duration": "300s", "maxMigrating": most, "burst": burst})
    passed = []
    for moment in sorted(times):
        if not limits.refusals(_POD, moment):
            limits.track(EvictedPod.of(_POD, 100), moment)
            passed.append(moment)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            span = passed[last] - passed[first]
            assert last - first + 1 <= (burst or 1) + span * most / 300 + 1e-6


@given(replicas=st.integers(0, 500), value=st.one_of(st.none(), st.integers(0, 600), st.integers(0, 100)))
def test_a_workload_limit_is_never_above_its_replicas(replicas: int, value: int | None) -> None:
    limit = workload_limit(replicas, value)
    assert limit <= replicas
    assert limit >= min(1, replicas)


def test_percentages_are_rounded_down() -> None:
    assert [scaled("10%", 19), workload_limit(19, "1%"), workload_limit(3, None), workload_limit(4, None)] == [
        1,
        1,
        1,
        2,
    ]


def test_a_successor_counts_what_was_evicted_before_it() -> None:
    cluster = SimulatedCluster()
    scene.deployment(cluster)
    for name in ("web-a", "web-b"):
        scene.pod(cluster, name)
        scene.job(cluster, name, name, mode="EvictDirectly", ttl="1h")
    asyncio.run(cluster.start().controller.reconcile("web-a"))
    successor = cluster.start(seed=2)
    asyncio.run(_for_a_moment(successor.controller.run()))
    assert len(cluster.evicted) == 1


async def _for_a_moment(work: object) -> None:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
