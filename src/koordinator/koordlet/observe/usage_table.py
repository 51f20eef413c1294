"""The usage table: one row for the node, its best-effort pods together, each pod, container and host application.

A row has the counters as they were read last, and what follows from two readings of them. Whoever needs to know what
something uses now looks here; the metric cache keeps what was here before.

A rate stays until the next one is known, with the second that it is of: one reading that fails, or a counter that
begins anew, makes nothing unknown at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.qos import QoSClass
from koordinator.api.resource_names import BEST_EFFORT_CPUS
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind, Series
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_meter import CPUCounters, MemoryUsage
from koordinator.node.cpu_time import CPUTimes, ticks_per_second
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.memory import MachineMemory, NUMANodeMemory

NEVER: Final = -math.inf
_NO_COUNTERS: Final = CPUCounters(0, 0, 0)
_NO_MEMORY: Final = MemoryUsage(0, 0)
_NO_TICKS: Final = CPUTimes(0, {})
_NO_MACHINE_MEMORY: Final = MachineMemory(0, 0, 0)
_NANOSECONDS: Final = 1e9
_TICKS: Final = ticks_per_second()
_LIFETIMES: Final = 20
"""Readings that are so many intervals apart are not compared: they say nothing of the present."""
LATEST_INTERVALS: Final = 2
"""What was measured counts as the present usage for so many of its intervals."""


class RowSeries(NamedTuple):
    """Where the metric cache keeps what a row shows: made once, since they are needed every second."""

    cpu: Series
    memory: Series
    memory_with_page_cache: Series


@dataclass(slots=True, eq=False)
class CgroupRow:
    """Of one cgroup, in cores and bytes; times are in seconds of a clock that never goes back."""

    cgroup: str
    counters: CPUCounters = _NO_COUNTERS
    read_at: float = NEVER
    cpu: float = 0.0
    cpu_at: float = NEVER
    throttled: float = 0.0
    """The share of the periods between two readings in which the CPU quota was used up; 0 if no period has passed."""
    throttled_at: float = NEVER
    memory: MemoryUsage = _NO_MEMORY
    memory_at: float = NEVER

    def read(self, counters: CPUCounters, at: float, lifetime: float) -> None:
        """Take in a reading of the counters, which only grow unless the cgroup was made anew."""
        before, seconds = self.counters, at - self.read_at
        self.counters, self.read_at = counters, at
        if not 0 < seconds <= lifetime:
            return
        nanoseconds, periods, throttled = counters
        if nanoseconds >= before.nanoseconds:
            self.cpu, self.cpu_at = (nanoseconds - before.nanoseconds) / seconds / _NANOSECONDS, at
        if periods >= before.periods and throttled >= before.throttled_periods:
            passed = periods - before.periods
            self.throttled = (throttled - before.throttled_periods) / passed if passed else 0.0
            self.throttled_at = at


@dataclass(slots=True, eq=False)
class PodRow(CgroupRow):
    pod: NodePod = field(kw_only=True)
    series: RowSeries = field(kw_only=True)
    throttled_series: Series = field(kw_only=True)
    containers: dict[str, CgroupRow] = field(default_factory=dict)
    """By the container's ID."""
    numa_memory: Mapping[int, int] = field(default_factory=dict)
    """Bytes without page cache by NUMA node, on machines with several."""


@dataclass(slots=True, eq=False)
class HostApplicationRow(CgroupRow):
    spec: HostApplicationSpec = field(kw_only=True)
    series: RowSeries = field(kw_only=True)
    charged: int = 0
    """All that the kernel charges it with, page cache included."""


@dataclass(slots=True, eq=False)
class BestEffortRow:
    """All BestEffort pods together, in milli-CPU; ``at`` is NEVER while the kubelet has made no folder for them."""

    nanoseconds: int = 0
    at: float = NEVER
    usage: int = 0
    """0 where there is nothing to compare with, so that the limit is known at once."""
    real_limit: int = 0
    """The fewest CPUs that the cpusets leave, or the CPU quota where it is less."""
    request: int = 0
    """The batch-cpu and free-cpu that pods of the QoS class BE request."""

    def read(self, nanoseconds: int, at: float, lifetime: float) -> None:
        seconds, grown = at - self.at, nanoseconds - self.nanoseconds
        self.usage = int(grown / seconds / 1_000_000) if 0 < seconds <= lifetime and grown >= 0 else 0
        self.nanoseconds, self.at = nanoseconds, at

    def samples(self) -> dict[Series, float]:
        return {_BE_USAGE: self.usage, _BE_REAL_LIMIT: self.real_limit, _BE_REQUEST: self.request}


@dataclass(slots=True, eq=False)
class NUMARow:
    """Of one NUMA node: ``cpu`` in cores, None where no CPU of it was measured; bytes."""

    cpu: float | None = None
    memory: int = 0
    huge_pages: int = 0
    memory_at: float = NEVER


@dataclass(slots=True, eq=False)
class NodeRow:
    """``cpu`` in cores, ``memory`` without page cache."""

    ticks: CPUTimes = _NO_TICKS
    read_at: float = NEVER
    cpu: float = 0.0
    memory: MachineMemory = _NO_MACHINE_MEMORY
    at: float = NEVER
    """Of the latest reading with a rate: without its CPU usage, a node has no memory usage either."""
    numa: dict[int, NUMARow] = field(default_factory=dict)
    """By number."""

    def read(
        self, ticks: CPUTimes, memory: MachineMemory, at: float, lifetime: float, topology: CPUTopology | None = None
    ) -> None:
        """Take in a reading; with a topology, that of each CPU, too."""
        before, seconds = self.ticks, at - self.read_at
        self.ticks, self.read_at = ticks, at
        if not 0 < seconds <= lifetime:
            return
        if topology is not None:
            self._read_numa_cpu(before.by_cpu, seconds * _TICKS, topology)
        if ticks.total >= before.total:
            self.cpu, self.memory, self.at = (ticks.total - before.total) / seconds / _TICKS, memory, at

    def _read_numa_cpu(self, before: Mapping[int, int], ticks: float, topology: CPUTopology) -> None:
        """By the CPUs that have been read twice. What has memory alone (CXL, the memory of GPUs) uses no CPU."""
        for number, row in self.numa.items():
            row.cpu = None if number in topology.by_numa_node else 0.0
        for number, cpus in topology.by_numa_node.items():
            for cpu in cpus:
                old, new = before.get(cpu), self.ticks.by_cpu.get(cpu)
                if old is not None and new is not None and new >= old:
                    row = self.numa.setdefault(number, NUMARow())
                    row.cpu = (row.cpu or 0.0) + (new - old) / ticks

    def read_only_numa_node(self, number: int) -> None:
        """It uses what the machine uses: there is nothing more to be read."""
        usage = self.memory.usage_of_only_numa_node
        if usage is not None:
            self.numa = {number: NUMARow(self.cpu, usage, self.memory.huge_pages, self.at)}

    def read_numa_memory(self, nodes: Sequence[NUMANodeMemory], at: float) -> None:
        """What is not there any more is dropped."""
        self.numa = {node.number: self.numa.get(node.number) or NUMARow() for node in nodes}
        for node in nodes:
            row = self.numa[node.number]
            row.memory, row.huge_pages, row.memory_at = node.usage, node.huge_page_bytes, at


class UsageTable:
    """Rows come and go with ``set_pods`` and ``set_host_applications``."""

    def __init__(self, interval: float, memory_interval: float, *, with_page_cache: bool = False) -> None:
        """Seconds between readings of CPU, and of the memory of cgroups; whether that of pods is kept with page
        cache, too."""
        self.interval = interval
        self.memory_interval = memory_interval
        self._with_page_cache = with_page_cache
        self.lifetime = interval * _LIFETIMES
        self.rounds = 0
        """Of reading the CPU, since the start."""
        self.at = math.inf
        """When the last of them began; nothing is as late as that before the first."""
        self.is_whole = asyncio.Event()
        """Set but while a round is under way: who decides on what the table shows waits for its end."""
        self.is_whole.set()
        self.node = NodeRow()
        self.best_effort = BestEffortRow()
        self.pods: dict[str, PodRow] = {}
        """By UID."""
        self.host_applications: dict[str, HostApplicationRow] = {}
        """By name; of several with one name the first counts."""
        self.cgroups: Sequence[CgroupRow] = ()
        """All rows of cgroups."""

    def set_pods(self, pods: Sequence[NodePod]) -> None:
        """Those that are measured from now on. A row outlives changes of its pod, but not another cgroup."""
        rows = {}
        for pod in pods:
            row = self.pods.get(pod.uid)
            if row is None or row.cgroup != pod.cgroup:
                throttled = Series(kinds.POD_CPU_THROTTLED, (pod.uid,))
                row = PodRow(pod.cgroup, pod=pod, series=_series(_OF_POD, pod.uid), throttled_series=throttled)
            row.containers = {container.id: _container(row, container) for container in pod.containers}
            row.pod = pod
            rows[pod.uid] = row
        self.pods = rows
        of_class = [pod.containers_request for pod in pods if pod.qos is QoSClass.BE]
        self.best_effort.request = sum([each.get(name, 0) for each in of_class for name in BEST_EFFORT_CPUS])
        self._list_cgroups()

    def set_host_applications(self, specs: Iterable[HostApplicationSpec], layout: CgroupLayout) -> None:
        rows: dict[str, HostApplicationRow] = {}
        for spec in specs:
            if spec.name in rows:
                continue
            row, cgroup = self.host_applications.get(spec.name), layout.host_application(spec)
            if row is None or row.cgroup != cgroup:
                row = HostApplicationRow(cgroup, spec=spec, series=_series(_OF_HOST_APPLICATION, spec.name))
            row.spec = spec
            rows[spec.name] = row
        self.host_applications = rows
        self._list_cgroups()

    def _list_cgroups(self) -> None:
        # A pod's containers before it, so that both are known from the second reading on.
        of_pods = chain.from_iterable((*pod.containers.values(), pod) for pod in self.pods.values())
        self.cgroups = (*of_pods, *self.host_applications.values())

    def cpu_samples(self) -> dict[Series, float]:
        """Of the last round: of what could be read, and compared with an earlier reading."""
        samples: dict[Series, float] = self.best_effort.samples() if self.best_effort.at >= self.at else {}
        for row in self._kept():
            if row.cpu_at >= self.at:
                samples[row.series.cpu] = row.cpu
        for pod in self.pods.values():
            if pod.throttled_at >= self.at:
                samples[pod.throttled_series] = pod.throttled
        return samples

    def memory_samples(self) -> dict[Series, float]:
        """The same of memory, where the last round has read it."""
        read = [row for row in self._kept() if row.memory_at >= self.at]
        samples: dict[Series, float] = {row.series.memory: row.memory.usage for row in read}
        for row in read:
            if isinstance(row, HostApplicationRow):
                samples[row.series.memory_with_page_cache] = row.charged
            elif self._with_page_cache:
                samples[row.series.memory_with_page_cache] = row.memory.usage_with_page_cache
        return samples

    def _kept(self) -> Iterable[PodRow | HostApplicationRow]:
        """Whose past is kept: of containers the present is enough."""
        return chain(self.pods.values(), self.host_applications.values())

    def node_samples(self) -> dict[Series, float]:
        """Of the node, its system apart."""
        node = self.node
        samples: dict[Series, float] = {_NODE_CPU: node.cpu, _NODE_MEMORY: node.memory.usage}
        if self._with_page_cache:
            samples[_NODE_WITH_PAGE_CACHE] = node.memory.usage_with_page_cache
        for number, row in node.numa.items():
            label = {"numa_node_id": str(number)}
            if row.cpu is not None:
                samples[kinds.NODE_NUMA_CPU_USAGE.series(**label)] = row.cpu
            if row.memory_at >= self.at:
                samples[kinds.NODE_NUMA_MEMORY_USAGE.series(**label)] = row.memory
        return samples

    def system_samples(self) -> dict[Series, float]:
        """What is left of the node's usage for the kubelet, the runtime, system services and the kernel; never below 0.

        All without page cache: the original takes host applications' by the NodeMetric's policy, the node's not. The
        pool of huge pages is the system's: koord-manager offers what the capacity has more than the system and the pods
        use, and the capacity of a Node contains the pool.

        A NUMA node's part of the CPU is in proportion to the CPU that it used; from its memory that of pods is
        subtracted. Memory by NUMA node is left out while no pod's is known.
        """
        node, since = self.node, self.at - LATEST_INTERVALS * self.memory_interval
        # One of which CPU or memory is not known is in no report, and so a part of the system.
        pods = [row for row in self.pods.values() if row.cpu_at >= self.at and row.memory_at >= since]
        applications = [
            row for row in self.host_applications.values() if row.cpu_at >= self.at and row.memory_at >= since
        ]
        cpu, memory = node.cpu, float(node.memory.usage)
        cpu -= sum([row.cpu for row in pods]) + sum([row.cpu for row in applications])
        memory -= sum([row.memory.usage for row in (*pods, *applications)])
        cpu = max(cpu, 0.0)
        samples: dict[Series, float] = {_SYSTEM_CPU: cpu, _SYSTEM_MEMORY: max(memory, 0.0) + node.memory.huge_pages}
        total = sum(row.cpu or 0.0 for row in node.numa.values())
        of_pods = Counter[int]()
        for pod in pods if len(node.numa) > 1 else ():
            of_pods.update(pod.numa_memory)
        if len(node.numa) == 1 and pods:
            of_pods[next(iter(node.numa))] = sum([pod.memory.usage for pod in pods])
        for number, numa in node.numa.items():
            label = {"numa_node_id": str(number)}
            if numa.cpu is not None:
                samples[kinds.SYS_NUMA_CPU_USAGE.series(**label)] = cpu * numa.cpu / total if total else 0.0
            if of_pods and numa.memory_at >= self.at:
                left = max(numa.memory - of_pods[number], 0) + numa.huge_pages
                samples[kinds.SYS_NUMA_MEMORY_USAGE.series(**label)] = left
        return samples


_NODE_CPU: Final = kinds.NODE_CPU_USAGE.series()
_NODE_MEMORY: Final = kinds.NODE_MEMORY_USAGE.series()
_NODE_WITH_PAGE_CACHE: Final = kinds.NODE_MEMORY_USAGE_WITH_PAGE_CACHE.series()
_SYSTEM_CPU: Final = kinds.SYS_CPU_USAGE.series()
_SYSTEM_MEMORY: Final = kinds.SYS_MEMORY_USAGE.series()
_BE_USAGE, _BE_REAL_LIMIT, _BE_REQUEST = (
    kinds.NODE_BE.series(be_resource="cpu", be_allocation=name) for name in ("usage", "real-limit", "request")
)
_OF_POD: Final = (kinds.POD_CPU_USAGE, kinds.POD_MEMORY_USAGE, kinds.POD_MEMORY_USAGE_WITH_PAGE_CACHE)
_OF_HOST_APPLICATION: Final = (
    kinds.HOST_APPLICATION_CPU_USAGE,
    kinds.HOST_APPLICATION_MEMORY_USAGE,
    kinds.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
)


def _series(of: Sequence[MetricKind], label: str) -> RowSeries:
    """Of the kinds of CPU, memory and memory with page cache, which have one label."""
    return RowSeries(*(Series(kind, (label,)) for kind in of))


def _container(row: PodRow, container: PodContainer) -> CgroupRow:
    known = row.containers.get(container.id)
    return known if known is not None and known.cgroup == container.cgroup else CgroupRow(container.cgroup)
