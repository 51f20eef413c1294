"""CPU, memory and throttling: first samples, counters that begin anew, outages, and what is left for the system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.collectors.counters import Counters, Growth
from koordinator.koordlet.collectors.node import NodeCollector, NodeUsage
from koordinator.koordlet.collectors.pods import PodsCollector, ThrottledCollector, page_cache_samples
from koordinator.koordlet.collectors.scan import NodeReading
from koordinator.koordlet.collectors.system import Share, system_samples
from koordinator.koordlet.metric_cache.kinds import Series
from koordinator.node.cpu_time import CPUTimes
from koordinator.node.cpu_topology import CPUTopology, LogicalCPU
from koordinator.node.memory import MachineMemory, NUMANodeMemory
from tests.koordlet.collectors.scans import SECOND, node_reading, pod, scan, usage

TWO_NUMA_NODES = CPUTopology((LogicalCPU(0, 0, 0, 0), LogicalCPU(0, 0, 1, 1), LogicalCPU(1, 1, 2, 2)))


def named(samples: Mapping[Series, float]) -> dict[str, float]:
    return {f"{series.kind.name}{list(series.values)}": value for series, value in samples.items()}


def test_the_first_reading_of_a_counter_has_no_growth() -> None:
    counters: Counters[str] = Counters(lifetime=20)
    assert counters.growth("a", 100, 1.0) is None
    assert counters.growth("a", 150, 3.0) == Growth(50, 2.0)
    assert counters.growth("b", 150, 3.0) is None


@pytest.mark.parametrize(
    ("value", "at"),
    [(50, 3.0), (150, 1.0), (150, 0.5), (150, 21.5)],
    ids=["began anew", "same time", "clock went back", "too long ago"],
)
def test_readings_that_cannot_be_compared_begin_anew(value: int, at: float) -> None:
    counters: Counters[str] = Counters(lifetime=20)
    counters.growth("a", 100, 1.0)
    assert counters.growth("a", value, at) is None
    assert counters.growth("a", value + 10, at + 1) == Growth(10, 1.0)


def test_counters_of_what_has_ended_are_forgotten() -> None:
    counters: Counters[str] = Counters(lifetime=20)
    for second in range(1000):
        counters.growth(f"pod{second}", 1, float(second))
        counters.drop_expired(float(second))
    assert len(counters) == 21


@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(-5, 30)), max_size=30))
def test_no_growth_is_negative_or_in_no_time(readings: list[tuple[int, float]]) -> None:
    counters: Counters[None] = Counters(lifetime=20)
    at = 0.0
    for value, step in readings:
        at += step
        growth = counters.growth(None, value, at)
        assert growth is None or (growth.amount >= 0 and growth.seconds > 0 and growth.rate >= 0)


def test_the_node_in_its_first_round_and_after() -> None:
    collector = NodeCollector(ticks_per_second=100, lifetime=20)
    assert collector.collect(scan(1, node=node_reading(1000)), None) is None
    assert collector.collect(scan(3, node=node_reading(1300)), None) == NodeUsage(cpu=1.5, memory=40)


def test_a_round_in_which_the_node_cannot_be_read_is_left_out() -> None:
    collector = NodeCollector(ticks_per_second=100, lifetime=20)
    collector.collect(scan(1, node=node_reading(1000)), None)
    assert collector.collect(scan(2), None) is None
    assert collector.collect(scan(3, node=node_reading(1400)), None) == NodeUsage(cpu=2.0, memory=40)


def test_numa_nodes_by_their_cpus() -> None:
    collector = NodeCollector(ticks_per_second=100, lifetime=20)
    collector.collect(scan(1, node=node_reading(0, by_cpu={0: 0, 1: 0, 2: 50})), TWO_NUMA_NODES)
    result = collector.collect(
        scan(2, node=node_reading(100, by_cpu={0: 30, 1: 20, 2: 40}, numa=(7, 9))), TWO_NUMA_NODES
    )
    assert result is not None
    assert result.numa_cpu == {0: 0.5}
    assert result.numa_memory == {0: 7, 1: 9}
    assert named(result.samples()) == {
        "node_cpu_usage[]": 1.0,
        "node_memory_usage[]": 40.0,
        "node_huge_pages[]": 0.0,
        "node_numa_cpu_usage['0']": 0.5,
        "node_numa_memory_usage['0']": 7.0,
        "node_numa_memory_usage['1']": 9.0,
    }


def test_pods_and_containers() -> None:
    collector = PodsCollector(lifetime=20)
    first = scan(1, {"a": usage(0, 100), "a/c": usage(0, 90)})
    assert collector.collect(first, [pod("a")]).samples == {}
    second = scan(3, {"a": usage(SECOND, 120), "a/c": usage(SECOND // 2, 90)})
    second.numa_memory = {"a": {0: 50, 8: 70}}
    result = collector.collect(second, [pod("a")])
    assert named(result.samples) == {
        "pod_cpu_usage['a']": 0.5,
        "pod_memory_usage['a']": 120,
        "container_cpu_usage['containerd://a']": 0.25,
        "container_memory_usage['containerd://a']": 90,
    }
    assert (result.cpu, result.memory, result.numa_memory) == (0.5, 120, {0: 50, 8: 70})


def test_a_pod_that_appears_waits_for_its_second_reading_with_its_containers() -> None:
    collector = PodsCollector(lifetime=20)
    collector.collect(scan(1, {"a": usage()}), [pod("a")])
    result = collector.collect(scan(2, {"a": usage(SECOND), "b": usage(), "a/c": usage()}), [pod("a"), pod("b")])
    assert set(named(result.samples)) == {"pod_cpu_usage['a']", "pod_memory_usage['a']"}


def test_a_container_that_was_restarted_begins_anew() -> None:
    collector = PodsCollector(lifetime=20)
    collector.collect(scan(1, {"a": usage(5 * SECOND), "a/c": usage(5 * SECOND)}), [pod("a")])
    result = collector.collect(scan(2, {"a": usage(6 * SECOND), "a/c": usage(SECOND)}), [pod("a")])
    assert "container_cpu_usage['containerd://a']" not in named(result.samples)
    result = collector.collect(scan(3, {"a": usage(7 * SECOND), "a/c": usage(2 * SECOND)}), [pod("a")])
    assert named(result.samples)["container_cpu_usage['containerd://a']"] == 1.0


def test_the_share_of_throttled_periods() -> None:
    collector = ThrottledCollector(lifetime=20)
    first = {"a": usage(periods=10, throttled=5), "a/c": usage()}
    assert collector.collect(scan(1, first), [pod("a")]) == {}
    second = {"a": usage(periods=20, throttled=8), "a/c": usage()}
    assert named(collector.collect(scan(2, second), [pod("a")])) == {
        "pod_cpu_throttled['a']": 0.3,
        "container_cpu_throttled['containerd://a']": 0.0,
    }
    third = {"a": usage(periods=20, throttled=8), "a/c": usage(periods=4, throttled=4)}
    assert named(collector.collect(scan(3, third), [pod("a")])) == {
        "pod_cpu_throttled['a']": 0.0,
        "container_cpu_throttled['containerd://a']": 1.0,
    }


def test_memory_with_page_cache_needs_no_second_reading() -> None:
    samples = page_cache_samples(
        scan(1, {"a": usage(memory=5, cache=10), "a/c": usage(memory=1, cache=2)}, node_reading(0)),
        [pod("a"), pod("b")],
    )
    assert named(samples) == {
        "node_memory_usage_with_page_cache[]": 80,
        "pod_memory_usage_with_page_cache['a']": 15,
        "container_memory_usage_with_page_cache['containerd://a']": 3,
    }


def test_what_is_left_for_the_system() -> None:
    node = NodeUsage(cpu=4.0, memory=100, numa_cpu={0: 3.0, 1: 1.0}, numa_memory={0: 60, 1: 40})
    samples = system_samples(node, Share(2.0, 50, {0: 70, 1: 10}), Share(1.0, 20))
    assert named(samples) == {
        "sys_cpu_usage[]": 1.0,
        "sys_memory_usage[]": 30,
        "sys_numa_cpu_usage['0']": 0.75,
        "sys_numa_cpu_usage['1']": 0.25,
        "sys_numa_memory_usage['0']": 0,
        "sys_numa_memory_usage['1']": 30,
    }


def test_the_pool_of_huge_pages_is_the_systems_and_nobodys_usage() -> None:
    """koord-manager subtracts what the system uses from the capacity, which contains the pool."""
    collector = NodeCollector(ticks_per_second=100, lifetime=20)
    memory = MachineMemory(total=64, free=12, available=12, huge_pages=48)
    numa = (NUMANodeMemory(0, 32, 3, {2048: 24}), NUMANodeMemory(8, 32, 1, {2048: 24}))
    reading = NodeReading(CPUTimes(0, {}), memory, numa)
    collector.collect(scan(1, node=reading), None)
    node = collector.collect(scan(2, node=replace(reading, cpu=CPUTimes(1, {}))), None)
    assert node is not None
    samples = named(node.samples() | system_samples(node, Share(0.0, 1, {8: 1}), Share(0.0, 1)))
    assert (samples["node_memory_usage[]"], samples["node_huge_pages[]"]) == (4.0, 48.0)
    assert samples["sys_memory_usage[]"] == 50.0
    assert samples["sys_numa_memory_usage['8']"] == 24 * 2048 * 1024
    assert samples["node_numa_memory_usage['8']"] == 1.0


def test_a_numa_node_with_memory_alone_has_a_usage() -> None:
    collector = NodeCollector(ticks_per_second=100, lifetime=20)
    collector.collect(scan(1, node=node_reading(0, by_cpu={0: 0}, numa=(1, 2, 3))), TWO_NUMA_NODES)
    result = collector.collect(scan(2, node=node_reading(9, by_cpu={0: 9}, numa=(1, 2, 3))), TWO_NUMA_NODES)
    assert result is not None
    assert result.numa_cpu == {0: 0.09, 2: 0.0}


def test_the_system_never_uses_less_than_nothing() -> None:
    samples = system_samples(NodeUsage(1.0, 10, {0: 0.0}, {0: 5}), Share(2.0, 20), Share(0.0, 0))
    assert named(samples) == {
        "sys_cpu_usage[]": 0.0,
        "sys_memory_usage[]": 0.0,
        "sys_numa_cpu_usage['0']": 0.0,
    }
