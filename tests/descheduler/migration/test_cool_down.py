"""The replacement of an evicted pod stays where it is for a while, also over a day on nodes around their threshold."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.cycle import Cycle
from koordinator.descheduler.eviction_pipeline import EvictionLimiter, ProfileEvictor
from koordinator.descheduler.executors import Live
from koordinator.descheduler.framework import Snapshot
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.recent_evictions import CoolDown
from koordinator.descheduler.profiles import Profile
from tests.descheduler.clusters import NOW, make_node, make_plugin
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_NODES = ("node-1", "node-2")
_PERIOD = timedelta(minutes=10)
_HOT: dict[str, Any] = {
    "lowThresholds": {"cpu": 35},
    "highThresholds": {"cpu": 50},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
}


def _pod(created: datetime, **metadata: Any) -> Pod:
    owners = {"namespace": "default", "name": "web-a", "ownerReferences": [scene.OWNER]}
    return convert({"metadata": {**owners, "creationTimestamp": format_time(created), **metadata}}, Pod)


@given(created=st.integers(-9000, 9000), duration=st.integers(0, 5000), requested=st.integers(0, 9000))
def test_only_what_was_created_after_an_eviction_stays_and_no_longer_than_said(
    created: int, duration: int, requested: int
) -> None:
    rule = CoolDown(timedelta(seconds=duration))
    rule.track(scene.OWNER["uid"], NOW)
    pod = _pod(NOW + timedelta(seconds=created))
    refused = bool(rule.refusals(pod, NOW + timedelta(seconds=requested)))
    assert refused is (created >= 0 and requested < duration)


def test_the_refusal_says_until_when() -> None:
    rule = CoolDown(timedelta(hours=1))
    rule.track(scene.OWNER["uid"], NOW + timedelta(milliseconds=900))
    (refusal,) = rule.refusals(_pod(NOW), NOW)
    assert refusal.endswith("stays until 2026-01-01T13:00:00Z")


def test_a_forced_eviction_does_not_wait() -> None:
    rule = CoolDown(timedelta(hours=1))
    rule.track(scene.OWNER["uid"], NOW)
    assert not rule.refusals(_pod(NOW, annotations={"descheduler.alpha.kubernetes.io/evict": "true"}), NOW)


def test_a_negative_cool_down_is_refused_by_its_name() -> None:
    args = convert({"coolDown": "-1s"}, MigrationControllerArgs)
    with pytest.raises(ConfigurationError, match=r"args\.coolDown"):
        args.completed("args")


def test_a_successor_keeps_the_cool_down_of_what_its_predecessor_moved() -> None:
    day = _Day("1h")
    asyncio.run(day.until_moved())
    successor = day.cluster.start(day.args, seed=2)
    replacement = convert(day.replacements()[0], Pod)
    assert not successor.filter(replacement)
    asyncio.run(_for_a_moment(successor.controller.run()))
    assert "coolDown" in "".join(successor.filter(replacement))


_SOFT: Final = "scheduling.koordinator.sh/soft-eviction"
_TEN_MINUTES_AGO: Final = format_time(SimulatedCluster().clock.now() - timedelta(minutes=10))


@pytest.mark.parametrize(
    "metadata",
    [
        {"deletionTimestamp": _TEN_MINUTES_AGO},
        {"annotations": {_SOFT: f'{{"timestamp":"{_TEN_MINUTES_AGO}"}}'}},
        {"annotations": {_SOFT: '{"timestamp":7}'}},
        {"annotations": {_SOFT: '{"timestamp":"2025-01-01T00:00:00"}'}},
        {"annotations": {_SOFT: "soon"}},
    ],
    ids=["terminating", "softly evicted", "without a time", "without a zone", "without sense"],
)
def test_an_eviction_that_is_found_under_way_counts(metadata: dict[str, Any]) -> None:
    """The descheduler ended between the eviction and the status of the job, or somebody else was faster."""
    assert "coolDown" in _refusal_of_a_replacement(timedelta(seconds=10), metadata)


def test_a_replacement_that_was_there_before_the_job_is_known_by_the_time_of_the_soft_eviction() -> None:
    soft = {"annotations": {_SOFT: f'{{"timestamp":"{_TEN_MINUTES_AGO}"}}'}}
    assert "coolDown" in _refusal_of_a_replacement(timedelta(minutes=-5), soft)
    assert not _refusal_of_a_replacement(timedelta(minutes=-11), soft)


def _refusal_of_a_replacement(created: timedelta, evicted: dict[str, Any]) -> str:
    """What the pod is told that was created so long after the job, whose own pod is ``evicted`` already."""
    cluster = SimulatedCluster()
    scene.deployment(cluster, 4)
    scene.pod(cluster, "web-a", **evicted)
    scene.job(cluster, "web-a", mode="EvictDirectly")
    fields = {"coolDown": "1h", "evictionPolicy": "SoftEviction"}
    plugin = cluster.start(convert(fields, MigrationControllerArgs))
    asyncio.run(plugin.controller.reconcile("job"))
    replacement = scene.pod(cluster, "web-b", creationTimestamp=format_time(cluster.clock.now() + created))
    cluster.deliver()
    return "".join(plugin.filter(convert(replacement, Pod)))


def test_nodes_that_flap_make_pods_go_to_and_fro_without_a_cool_down() -> None:
    day = _Day("0s")
    asyncio.run(day.run())
    assert min(day.stays) < timedelta(minutes=30)


def test_nodes_that_flap_for_a_day_move_no_pod_back_within_its_cool_down() -> None:
    day = _Day("2h")
    asyncio.run(day.run())
    assert len(day.stays) > 2
    assert min(day.stays) >= timedelta(hours=2)


def test_nor_does_a_descheduler_that_is_started_anew_every_half_an_hour() -> None:
    day = _Day("2h", restarting=True)
    asyncio.run(day.run())
    assert len(day.stays) > 2
    assert min(day.stays) >= timedelta(hours=2)


class _Day:
    """A Deployment on two nodes whose other load rises and falls in turns every half an hour, so that each of them
    crosses its threshold with the pods that came from the other. A simulated ReplicaSet and scheduler put each
    replacement on the node with the least load."""

    def __init__(self, cool_down: str, *, restarting: bool = False) -> None:
        self.cluster = SimulatedCluster()
        self.began = self.cluster.clock.now()
        self.stays: list[timedelta] = []
        """For how long each replacement that was evicted had been there."""
        scene.deployment(self.cluster, 4)
        for number in range(4):
            scene.pod(self.cluster, f"web-{number}", _NODES[number % 2])
        fields = {"coolDown": cool_down, "defaultJobMode": "EvictDirectly"}
        self.args = convert(fields, MigrationControllerArgs)
        self._restarting = restarting
        self._made = self._cycles = 0
        self._start()

    def _start(self) -> None:
        """A program that knows what the API server has, and nothing else."""
        self.plugin = self.cluster.start(self.args, seed=self._cycles)
        evictor = ProfileEvictor()
        evictor.connect([self.plugin], self.plugin)
        balance = make_plugin("LowNodeLoad", _HOT, evictor)
        plugins = {each.name: each for each in (balance, self.plugin)}
        profile = Profile("day", None, evictor, plugins, [], [balance])
        live = Live(self.cluster.as_client)
        self._cycle = Cycle([profile], EvictionLimiter, self._snapshot, self._find_pod, live)

    async def run(self) -> None:
        while self.cluster.clock.now() < self.began + timedelta(days=1):
            await self._one_cycle()

    async def until_moved(self) -> None:
        """Ends when the first replacement is there."""
        while not self._made:
            await self._one_cycle()

    def replacements(self) -> list[dict[str, Any]]:
        pods = self.cluster.documents(PODS).values()
        return [pod for pod in pods if pod["metadata"]["name"].startswith("replacement")]

    async def _one_cycle(self) -> None:
        self._cycles += 1
        if self._restarting and self._cycles % 3 == 0:
            self._start()
            await _for_a_moment(self.plugin.controller.run())
        report = await self._cycle.run()
        assert not report.errors
        self.cluster.deliver()
        await self.plugin.arbitrator.arbitrate()
        await self._carry_jobs_out()
        self._replace()
        # The job ends when the pod does, which is after its replacement was created.
        await self.cluster.clock.advance(5)
        await self._carry_jobs_out()
        await self.plugin.scavenger.scavenge()
        self.cluster.deliver()
        await self.cluster.clock.advance(_PERIOD.total_seconds())

    async def _carry_jobs_out(self) -> None:
        self.cluster.deliver()
        for name in list(self.cluster.documents(POD_MIGRATION_JOBS)):
            await self.plugin.controller.reconcile(name)
        self.cluster.deliver()

    def _replace(self) -> None:
        pods = self.cluster.documents(PODS)
        for key, pod in list(pods.items()):
            if "deletionTimestamp" not in pod["metadata"]:
                continue
            if pod["metadata"]["name"].startswith("replacement"):
                created = convert(pod, Pod).metadata.creation_timestamp
                assert created is not None
                self.stays.append(self.cluster.clock.now() - created)
            self.cluster.remove(PODS, key)
            self._made += 1
            scene.pod(self.cluster, f"replacement-{self._made}", min(_NODES, key=self._load))

    def _load(self, node: str) -> int:
        """In milli-CPU of 4000: 200 for each pod, and what else runs there."""
        phase = math.pi * _NODES.index(node)
        passed = (self.cluster.clock.now() - self.began) / timedelta(minutes=60)
        return 1300 + int(700 * math.sin(2 * math.pi * passed + phase)) + 200 * len(self._pods_on(node))

    def _pods_on(self, node: str) -> list[Pod]:
        pods = [convert(pod, Pod) for pod in self.cluster.documents(PODS).values()]
        return [pod for pod in pods if pod.spec.node_name == node]

    def _find_pod(self, key: str) -> Pod | None:
        found = self.cluster.get_document(PODS, key)
        return convert(found, Pod) if found is not None else None

    def _snapshot(self) -> Snapshot:
        clock = self.cluster.clock
        return Snapshot(
            [make_node(name) for name in _NODES],
            {name: self._pods_on(name) for name in _NODES},
            clock.now(),
            clock.monotonic(),
            {name: self._metric(name) for name in _NODES},
        )

    def _metric(self, node: str) -> NodeMetric:
        usage = {"resources": {"cpu": "200m", "memory": "0"}}
        pods = self._pods_on(node)
        others = self._load(node) - 200 * len(pods)
        status = {
            "updateTime": format_time(self.cluster.clock.now()),
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": f"{self._load(node)}m", "memory": "0"}},
                "systemUsage": {"resources": {"cpu": f"{others}m", "memory": "0"}},
            },
            "podsMetric": [{"namespace": "default", "name": pod.metadata.name, "podUsage": usage} for pod in pods],
        }
        return convert({"metadata": {"name": node}, "status": status}, NodeMetric)


async def _for_a_moment(work: Any) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
