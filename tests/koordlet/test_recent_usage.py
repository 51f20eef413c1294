"""What pods use, as strategies request it one after the other: looked up once for each round of measuring."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.metric_cache import kinds
from koordinator.koordlet.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.node_snapshot import RecentUsage
from koordinator.koordlet.pods.node_pod import NodePod
from tests.koordlet.qos.qos_fixtures import pod_usage

WEB, JOB = pod_usage("web").pod, pod_usage("job", "BE").pod


class Measured:
    """Usage that is measured once a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        groups = (kinds.POD_CPU_USAGE.group, kinds.CONTAINER_CPU_THROTTLED.group)
        self.cache = RingMetricCache(dict.fromkeys(groups, Retention(1.0, 60.0)), 1 << 20)
        self.usage = RecentUsage(self.cache, self.clock, 1.0)
        self.pods: list[NodePod] = [WEB]

    def measure(self, **cores: float) -> None:
        at = round(self.clock.now().timestamp() * 1000)
        samples = {kinds.POD_CPU_USAGE.series(pod_uid=f"uid-{name}"): value for name, value in cores.items()}
        self.cache.append(at, samples)
        self.cache.append(at, {kinds.CONTAINER_CPU_THROTTLED.series(container_id="containerd://web"): 0.0})

    def pass_seconds(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    @property
    def cores(self) -> dict[str, float | None]:
        return {usage.pod.uid: usage.cpu for usage in self.usage.of_pods(self.pods)}


@pytest.fixture
def measured() -> Measured:
    made = Measured()
    made.measure(web=0.5, job=2.0)
    return made


def test_the_response_is_the_same_until_the_next_round(measured: Measured) -> None:
    first = measured.usage.of_pods(measured.pods)
    measured.pass_seconds(0.9)
    assert measured.usage.of_pods(measured.pods) is first


def test_a_new_round_counts(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.pass_seconds(1)
    measured.measure(web=0.75)
    assert measured.cores == {"uid-web": 0.75}


def test_other_pods_count(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.pods = [WEB, JOB]
    assert measured.cores == {"uid-web": 0.5, "uid-job": 2.0}


def test_what_was_measured_too_long_ago_does_not(measured: Measured) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.pass_seconds(2.1)
    assert measured.cores == {"uid-web": None}


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_was_set_makes_it_unknown(measured: Measured, step: timedelta) -> None:
    assert measured.cores == {"uid-web": 0.5}
    measured.clock.set_wall(measured.clock.now() + step)
    assert measured.cores == {"uid-web": None}
