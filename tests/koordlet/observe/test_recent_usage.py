"""What pods use, as strategies request it one after the other: looked up once for each round of measuring."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources
from koordinator.koordlet.enforce.strategies.snapshot import ContainerUsage
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.node.cgroup_meter import MemoryUsage
from tests.koordlet.enforce.strategies.qos_fixtures import LAYOUT, pod_usage

WEB, JOB = pod_usage("web").pod, pod_usage("job", "BE").pod


class Measured:
    """Usage that is measured once a second, memory every five."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = UsageTable(1.0, 5.0)
        self.table.set_pods([WEB, JOB])
        cache = RingMetricCache({kinds.PODS: Retention(1.0, 60.0)}, 1 << 20)
        self.usage = RecentUsage(self.table, cache, self.clock)
        self.states = SimpleNamespace(pods=[WEB])
        nothing = cast("Any", None)
        self.sources = SnapshotSources(cast("Any", self.states), nothing, self.usage, LAYOUT, nothing, nothing, nothing)

    def measure(self, **cores: float) -> None:
        self.table.at = now = self.clock.monotonic()
        self.table.rounds += 1
        for name, value in cores.items():
            row = self.table.pods[f"uid-{name}"]
            row.cpu, row.cpu_at = value, now

    def pass_seconds(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    @property
    def cores(self) -> dict[str, float | None]:
        return {usage.pod.uid: usage.cpu for usage in self.sources.pods}


@pytest.fixture
def measured() -> Measured:
    made = Measured()
    made.measure(web=0.5, job=2.0)
    return made


def test_the_response_is_the_same_until_the_next_round(measured: Measured) -> None:
    first = measured.sources.pods
    measured.pass_seconds(0.9)
    assert measured.sources.pods is first


def test_a_new_round_counts(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.pass_seconds(1)
    measured.measure(web=0.75)
    assert measured.cores == {"uid-web": 0.75}


def test_other_pods_count(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.states.pods = [WEB, JOB]
    assert measured.cores == {"uid-web": 0.5, "uid-job": 2.0}


def test_one_reading_that_fails_makes_nothing_unknown(measured: Measured) -> None:
    measured.pass_seconds(1)
    measured.measure()
    assert measured.cores == {"uid-web": 0.5}


def test_what_was_measured_too_long_ago_does_not(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.pass_seconds(2.1)
    assert measured.cores == {"uid-web": None}


@pytest.mark.parametrize(("age", "memory"), [(10.0, 7.0), (10.1, None)])
def test_memory_is_present_for_two_intervals_of_its_own(measured: Measured, age: float, memory: float | None) -> None:
    row = measured.table.pods["uid-web"]
    row.memory, row.memory_at = MemoryUsage(7, 9), measured.clock.monotonic()
    measured.pass_seconds(age)
    assert measured.sources.pods[0].memory == memory


def test_containers_have_what_is_known_of_them(measured: Measured) -> None:
    (identifier,) = measured.table.pods["uid-web"].containers
    row = measured.table.pods["uid-web"].containers[identifier]
    row.throttled, row.throttled_at = 0.25, measured.clock.monotonic()
    assert measured.sources.pods[0].containers == {identifier: ContainerUsage(None, 0.25)}


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_was_set_makes_nothing_unknown(measured: Measured, step: timedelta) -> None:
    measured.clock.set_wall(measured.clock.now() + step)
    assert measured.cores == {"uid-web": 0.5}


def test_averages_are_of_the_last_seconds(measured: Measured) -> None:
    series = kinds.POD_CPU_USAGE.series(pod_uid="uid-web")
    at = round(measured.clock.now().timestamp() * 1000)
    for age in range(5, -1, -1):
        measured.usage._cache.append(at - age * 1000, {series: float(age)})
    assert measured.usage.average(kinds.POD_CPU_USAGE, 2, pod_uid="uid-web") == 1.0
    assert len(measured.usage.samples(kinds.POD_CPU_USAGE, 2, pod_uid="uid-web")) == 3
    assert measured.usage.average(kinds.POD_CPU_USAGE, 2, pod_uid="uid-job") is None
