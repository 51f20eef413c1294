"""What pods and their containers use, and for how many periods of their CPU quota they were throttled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from koordinator.koordlet.collectors.counters import Counters
from koordinator.koordlet.collectors.scan import CgroupReading, Scan
from koordinator.koordlet.metric_cache.kinds import (
    CONTAINER_CPU_THROTTLED,
    CONTAINER_CPU_USAGE,
    CONTAINER_MEMORY_USAGE,
    CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE,
    NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
    POD_CPU_THROTTLED,
    POD_CPU_USAGE,
    POD_MEMORY_USAGE,
    POD_MEMORY_USAGE_WITH_PAGE_CACHE,
    Series,
)
from koordinator.koordlet.pods.node_pod import NodePod

_NANOSECONDS = 1e9
_NODE_WITH_PAGE_CACHE = NODE_MEMORY_USAGE_WITH_PAGE_CACHE.series()


@dataclass(slots=True)
class PodsUsage:
    """All pods together, in cores and bytes, and the samples of each."""

    cpu: float = 0.0
    memory: int = 0
    numa_memory: dict[int, int] = field(default_factory=dict)
    samples: dict[Series, float] = field(default_factory=dict)


class PodsCollector:
    """CPU and memory of pods and containers.

    A pod that was read for the first time is left out with its containers: its CPU usage is not known yet.
    """

    def __init__(self, lifetime: float) -> None:
        self._cpu: Counters[str] = Counters(lifetime)

    def collect(self, scan: Scan, pods: Iterable[NodePod]) -> PodsUsage:
        result = PodsUsage()
        for pod in pods:
            # Each container is read for the first time with its pod, so that both are known from the second scan on.
            containers = self._containers(scan, pod)
            reading = scan.cgroups.get(pod.cgroup)
            cores = None if reading is None else self._cores(pod.uid, reading)
            if reading is None or cores is None:
                continue
            memory = reading.usage.memory.usage
            result.samples[pod.series(POD_CPU_USAGE)] = cores
            result.samples[pod.series(POD_MEMORY_USAGE)] = memory
            result.samples.update(containers)
            result.cpu += cores
            result.memory += memory
            for node, size in scan.numa_memory.get(pod.cgroup, {}).items():
                result.numa_memory[node] = result.numa_memory.get(node, 0) + size
        self._cpu.drop_expired(scan.at.monotonic)
        return result

    def _containers(self, scan: Scan, pod: NodePod) -> dict[Series, float]:
        samples: dict[Series, float] = {}
        for container in pod.containers:
            reading = scan.cgroups.get(container.cgroup)
            cores = None if reading is None else self._cores(container.id, reading)
            if reading is not None and cores is not None:
                samples[pod.container_series(CONTAINER_CPU_USAGE, container)] = cores
                samples[pod.container_series(CONTAINER_MEMORY_USAGE, container)] = reading.usage.memory.usage
        return samples

    def _cores(self, key: str, reading: CgroupReading) -> float | None:
        growth = self._cpu.growth(key, reading.usage.cpu, reading.monotonic)
        return None if growth is None else growth.rate / _NANOSECONDS


class ThrottledCollector:
    """The share of the periods since the last scan in which the quota was used up; 0 if no period has passed."""

    def __init__(self, lifetime: float) -> None:
        self._periods: Counters[str] = Counters(lifetime)
        self._throttled: Counters[str] = Counters(lifetime)

    def collect(self, scan: Scan, pods: Iterable[NodePod]) -> dict[Series, float]:
        samples: dict[Series, float] = {}
        for pod in pods:
            ratio = self._ratio(pod.uid, scan.cgroups.get(pod.cgroup))
            if ratio is not None:
                samples[pod.series(POD_CPU_THROTTLED)] = ratio
            for container in pod.containers:
                ratio = self._ratio(container.id, scan.cgroups.get(container.cgroup))
                if ratio is not None:
                    samples[pod.container_series(CONTAINER_CPU_THROTTLED, container)] = ratio
        self._periods.drop_expired(scan.at.monotonic)
        self._throttled.drop_expired(scan.at.monotonic)
        return samples

    def _ratio(self, key: str, reading: CgroupReading | None) -> float | None:
        if reading is None:
            return None
        stat = reading.usage.throttling
        periods = self._periods.growth(key, stat.periods, reading.monotonic)
        throttled = self._throttled.growth(key, stat.throttled_periods, reading.monotonic)
        if periods is None or throttled is None:
            return None
        return throttled.amount / periods.amount if periods.amount else 0.0


def page_cache_samples(scan: Scan, pods: Iterable[NodePod]) -> dict[Series, float]:
    """Memory with page cache, of the node, of pods and of containers."""
    samples: dict[Series, float] = {}
    if scan.node is not None:
        samples[_NODE_WITH_PAGE_CACHE] = scan.node.memory.usage_with_page_cache
    for pod in pods:
        if reading := scan.cgroups.get(pod.cgroup):
            samples[pod.series(POD_MEMORY_USAGE_WITH_PAGE_CACHE)] = reading.usage.memory.usage_with_page_cache
        for container in pod.containers:
            if reading := scan.cgroups.get(container.cgroup):
                series = pod.container_series(CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE, container)
                samples[series] = reading.usage.memory.usage_with_page_cache
    return samples
