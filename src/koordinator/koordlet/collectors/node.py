"""What the whole node uses: CPU, memory, and both by NUMA node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordinator.koordlet.collectors.counters import Counters
from koordinator.koordlet.collectors.scan import NodeReading, Scan
from koordinator.koordlet.metric_cache.kinds import (
    NODE_CPU_USAGE,
    NODE_HUGE_PAGES,
    NODE_MEMORY_USAGE,
    NODE_NUMA_CPU_USAGE,
    NODE_NUMA_MEMORY_USAGE,
    Series,
)
from koordinator.node.cpu_topology import CPUTopology

_CPU = NODE_CPU_USAGE.series()
_MEMORY = NODE_MEMORY_USAGE.series()
_HUGE_PAGES = NODE_HUGE_PAGES.series()


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """``cpu`` in cores, ``memory`` in bytes without page cache; by NUMA node where that is known.

    ``huge_pages`` is what the pool of huge pages takes from all programs that ask for memory.
    """

    cpu: float
    memory: int
    numa_cpu: Mapping[int, float] = field(default_factory=dict)
    numa_memory: Mapping[int, int] = field(default_factory=dict)
    huge_pages: int = 0
    numa_huge_pages: Mapping[int, int] = field(default_factory=dict)

    def samples(self) -> dict[Series, float]:
        samples: dict[Series, float] = {
            _CPU: self.cpu,
            _MEMORY: float(self.memory),
            _HUGE_PAGES: float(self.huge_pages),
        }
        for node, cores in self.numa_cpu.items():
            samples[NODE_NUMA_CPU_USAGE.series(numa_node_id=str(node))] = cores
        for node, size in self.numa_memory.items():
            samples[NODE_NUMA_MEMORY_USAGE.series(numa_node_id=str(node))] = float(size)
        return samples


class NodeCollector:
    """Usage from one scan to the next. A round without CPU usage has no memory usage, either."""

    def __init__(self, ticks_per_second: int, lifetime: float) -> None:
        self._ticks_per_second = ticks_per_second
        self._total: Counters[None] = Counters(lifetime)
        self._by_cpu: Counters[int] = Counters(lifetime)

    def collect(self, scan: Scan, topology: CPUTopology | None) -> NodeUsage | None:
        """None in the first round, and when the node could not be read. Without a topology NUMA nodes are left out."""
        if scan.node is None:
            return None
        growth = self._total.growth(None, scan.node.cpu.total, scan.at.monotonic)
        numa_cpu = self._numa_cpu(scan.node, scan.at.monotonic, topology) if topology else {}
        if growth is None:
            return None
        return NodeUsage(
            cpu=growth.rate / self._ticks_per_second,
            memory=scan.node.memory.usage,
            huge_pages=scan.node.memory.huge_pages,
            numa_cpu=numa_cpu,
            numa_memory={node.number: node.usage for node in scan.node.numa_memory},
            numa_huge_pages={node.number: node.huge_page_bytes for node in scan.node.numa_memory},
        )

    def _numa_cpu(self, reading: NodeReading, at: float, topology: CPUTopology) -> dict[int, float]:
        # What has memory alone (CXL, the memory of GPUs) uses no CPU, and its memory is reported all the same.
        numbers = {node.number for node in reading.numa_memory}
        cores = dict.fromkeys(sorted(numbers - topology.by_numa_node.keys()), 0.0)
        for node, cpus in topology.by_numa_node.items():
            for cpu in cpus:
                ticks = reading.cpu.by_cpu.get(cpu)
                growth = None if ticks is None else self._by_cpu.growth(cpu, ticks, at)
                if growth is not None:
                    cores[node] = cores.get(node, 0.0) + growth.rate / self._ticks_per_second
        return cores
