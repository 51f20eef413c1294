"""Scans and pods to collect from."""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.pod import Pod
from koordinator.koordlet.collectors.scan import CgroupReading, Moment, NodeReading, Scan
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_meter import CgroupUsage
from koordinator.node.cgroup_reader import CPUStat, MemoryStat
from koordinator.node.cpu_time import CPUTimes
from koordinator.node.memory import MachineMemory, NUMANodeMemory

SECOND = 1_000_000_000


def usage(cpu: int = 0, memory: int = 0, cache: int = 0, periods: int = 0, throttled: int = 0) -> CgroupUsage:
    stat = MemoryStat(cache, 0, 0, memory, 0)
    return CgroupUsage(cpu, CPUStat(periods, throttled, 0), stat)


def scan(second: float, cgroups: Mapping[str, CgroupUsage] | None = None, node: NodeReading | None = None) -> Scan:
    return Scan(
        at=Moment(wall=round(second * 1000), monotonic=second),
        node=node,
        cgroups={name: CgroupReading(second, reading) for name, reading in (cgroups or {}).items()},
    )


def node_reading(
    ticks: int, available: int = 60, by_cpu: Mapping[int, int] | None = None, numa: tuple[int, ...] = ()
) -> NodeReading:
    return NodeReading(
        cpu=CPUTimes(ticks, by_cpu or {}),
        memory=MachineMemory(total=100, free=20, available=available),
        numa_memory=tuple(NUMANodeMemory(number, 100, used, {}) for number, used in enumerate(numa)),
    )


def pod(name: str) -> NodePod:
    """One pod with one container, whose folders are ``NAME`` and ``NAME/c``."""
    return NodePod(Pod(), name, name, (PodContainer("main", f"containerd://{name}", f"{name}/c"),))
