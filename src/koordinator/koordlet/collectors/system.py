"""What is left of the node's usage: kubelet, the runtime, system services and the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordinator.koordlet.collectors.node import NodeUsage
from koordinator.koordlet.metric_cache.kinds import (
    SYS_CPU_USAGE,
    SYS_MEMORY_USAGE,
    SYS_NUMA_CPU_USAGE,
    SYS_NUMA_MEMORY_USAGE,
    Series,
)

_CPU = SYS_CPU_USAGE.series()
_MEMORY = SYS_MEMORY_USAGE.series()


@dataclass(frozen=True, slots=True)
class Share:
    """What one collector accounts for: pods, or host applications."""

    cpu: float
    memory: float
    numa_memory: Mapping[int, int] = field(default_factory=dict)


def system_samples(node: NodeUsage, pods: Share, host_applications: Share) -> dict[Series, float]:
    """The node less pods and host applications, never below 0; the pool of huge pages is the system's.

    koord-manager offers what the capacity has more than the system and the pods use, and the capacity of a Node
    contains the pool.

    A NUMA node's part of the system's CPU is in proportion to the CPU that it used; from its memory that of pods is
    subtracted. Memory by NUMA node is left out while no pod's is known.
    """
    cpu = max(node.cpu - pods.cpu - host_applications.cpu, 0.0)
    samples: dict[Series, float] = {
        _CPU: cpu,
        _MEMORY: max(node.memory - pods.memory - host_applications.memory, 0.0) + node.huge_pages,
    }
    total = sum(node.numa_cpu.values())
    for number, cores in node.numa_cpu.items():
        samples[SYS_NUMA_CPU_USAGE.series(numa_node_id=str(number))] = cpu * cores / total if total else 0.0
    if pods.numa_memory:
        for number, size in node.numa_memory.items():
            left = max(size - pods.numa_memory.get(number, 0), 0) + node.numa_huge_pages.get(number, 0)
            samples[SYS_NUMA_MEMORY_USAGE.series(numa_node_id=str(number))] = left
    return samples
