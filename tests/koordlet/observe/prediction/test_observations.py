"""What the models learn of an interval, and what is left unsaid when nothing is known."""

from __future__ import annotations

import pytest

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.observe.prediction.models import NODE_MODELS, Usage, observe
from koordinator.koordlet.pods.node_pod import NodePod
from tests.koordlet.observe.prediction.test_forecast import make_pod

MINUTE = range(1000, 61_000, 1000)


@pytest.fixture
def cache() -> RingMetricCache:
    return RingMetricCache({group: Retention(1.0, 120.0) for group in (kinds.NODE, kinds.PODS, kinds.MEMORY)}, 1 << 20)


def add_node(cache: RingMetricCache, cpu: float, memory: float) -> None:
    for at in MINUTE:
        cache.append(at, {kinds.NODE_CPU_USAGE.series(): cpu, kinds.NODE_MEMORY_USAGE.series(): memory})


def add_pods(cache: RingMetricCache, usages: dict[str, Usage]) -> None:
    for at in MINUTE:
        cache.append(at, {kinds.POD_CPU_USAGE.series(pod_uid=uid): usage.cpu for uid, usage in usages.items()})
        cache.append(at, {kinds.POD_MEMORY_USAGE.series(pod_uid=uid): usage.memory for uid, usage in usages.items()})


def pods(**priorities: int) -> tuple[NodePod, ...]:
    return tuple(make_pod(uid, priority=priority) for uid, priority in priorities.items())


def test_pods_add_up_by_class_and_the_system_is_what_is_left(cache: RingMetricCache) -> None:
    add_node(cache, 10.0, 1000.0)
    add_pods(cache, {"a": Usage(1.0, 100.0), "b": Usage(2.0, 200.0), "c": Usage(4.0, 300.0)})
    learned = observe(cache, pods(a=9000, b=9500, c=5500), 1000, 60_000)
    assert learned == {
        "a": Usage(1.0, 100.0),
        "b": Usage(2.0, 200.0),
        "c": Usage(4.0, 300.0),
        "__node__": Usage(10.0, 1000.0),
        "__node-sys__": Usage(3.0, 400.0),
        "__node-koord-prod__": Usage(3.0, 300.0),
        "__node-koord-mid__": Usage(0.0, 0.0),
        "__node-koord-batch__": Usage(4.0, 300.0),
        "__node-koord-free__": Usage(0.0, 0.0),
        "__node-__": Usage(0.0, 0.0),
    }
    assert set(learned) - {"a", "b", "c"} == NODE_MODELS


def test_a_spike_of_some_seconds_is_not_learned(cache: RingMetricCache) -> None:
    for number, at in enumerate(MINUTE):
        cpu = 64.0 if number % 20 == 0 else 1.0
        cache.append(at, {kinds.NODE_CPU_USAGE.series(): cpu, kinds.NODE_MEMORY_USAGE.series(): 1.0})
    assert observe(cache, (), 1000, 60_000)["__node__"].cpu == 1.0


def test_the_system_never_uses_less_than_nothing(cache: RingMetricCache) -> None:
    add_node(cache, 1.0, 100.0)
    add_pods(cache, {"a": Usage(2.0, 200.0)})
    assert observe(cache, pods(a=9000), 1000, 60_000)["__node-sys__"] == Usage(0.0, 0.0)


def test_a_class_of_whose_pods_none_is_known_is_not_said_to_use_nothing(cache: RingMetricCache) -> None:
    add_node(cache, 1.0, 100.0)
    learned = observe(cache, pods(a=9000, b=5500), 1000, 60_000)
    assert not {"a", "b", "__node-koord-prod__", "__node-koord-batch__"} & set(learned)
    assert learned["__node-koord-mid__"] == Usage(0.0, 0.0)


def test_a_node_that_was_not_measured_teaches_nothing_of_the_system(cache: RingMetricCache) -> None:
    add_pods(cache, {"a": Usage(1.0, 100.0)})
    assert not {"__node__", "__node-sys__"} & set(observe(cache, pods(a=9000), 1000, 60_000))


def test_samples_of_before_the_interval_do_not_count(cache: RingMetricCache) -> None:
    add_node(cache, 1.0, 100.0)
    assert "__node__" not in observe(cache, (), 61_000, 120_000)
