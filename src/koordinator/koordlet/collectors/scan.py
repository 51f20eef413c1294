"""One reading of everything that is measured every second. All collectors work on it, so that nothing is read twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from koordinator.base.clock import Clock
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_meter import CgroupMeter, CgroupUsage
from koordinator.node.cpu_time import CPUTimes, read_cpu_times
from koordinator.node.errors import FileError, OddRowError
from koordinator.node.host import Host
from koordinator.node.memory import MachineMemory, NUMANodeMemory, read_machine_memory, read_numa_memory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """When a reading was taken: ``wall`` in milliseconds since 1970, ``monotonic`` in seconds."""

    wall: int
    monotonic: float


@dataclass(frozen=True, slots=True)
class NodeReading:
    """``numa_memory`` is empty where the kernel does not report it."""

    cpu: CPUTimes
    memory: MachineMemory
    numa_memory: Sequence[NUMANodeMemory] = ()


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """``monotonic`` is the second at which this one cgroup was read: a scan of many takes a while."""

    monotonic: float
    usage: CgroupUsage


@dataclass(frozen=True, slots=True)
class BestEffortReading:
    """The folder of all BestEffort pods, in nanoseconds and microseconds; ``quota`` is NO_LIMIT if there is none."""

    monotonic: float
    cpu: int
    quota: int
    period: int
    cpu_counts: Sequence[int]
    """Sizes of the cpusets of that folder and of the containers below it, those that are empty left out."""


@dataclass(slots=True)
class Scan:
    """What could be read. What could not is absent, and ``errors`` says why, by file."""

    at: Moment
    node: NodeReading | None = None
    cgroups: dict[str, CgroupReading] = field(default_factory=dict)
    """By relative folder: pods, containers and host applications."""
    best_effort: BestEffortReading | None = None
    memory_usage: dict[str, int] = field(default_factory=dict)
    """Bytes that the kernel charges host applications with, by relative folder: page cache included."""
    numa_memory: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """Bytes by NUMA node of pods, by relative folder."""
    errors: dict[str, FileError] = field(default_factory=dict)
    odd_rows: list[OddRowError] = field(default_factory=list)
    """What was left out of files that could be read otherwise."""
    seconds: float = 0.0
    """How long it took."""


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """What is to be read besides the node; folders are relative."""

    pods: Sequence[NodePod] = ()
    host_applications: Sequence[str] = ()
    best_effort: str = ""
    """The folder of all BestEffort pods."""
    with_numa: bool = True


class Scanner:
    """Takes scans of one machine. Never raises for what the machine lacks: a container may end at any moment."""

    def __init__(self, host: Host, meter: CgroupMeter, clock: Clock) -> None:
        self._host = host
        self._meter = meter
        self._clock = clock

    def scan(self, target: ScanTarget) -> Scan:
        """Read everything once; files of cgroups that are no target any more are closed."""
        scan = Scan(Moment(round(self._clock.now().timestamp() * 1000), self._clock.monotonic()))
        scan.node = _attempt(scan, lambda: self._node(scan, target.with_numa))
        for pod in target.pods:
            self._cgroup(scan, pod.cgroup)
            if target.with_numa and pod.cgroup in scan.cgroups:
                memory = _attempt(scan, partial(self._meter.numa_memory, pod.cgroup, scan.odd_rows.append))
                if memory is not None:
                    scan.numa_memory[pod.cgroup] = memory
            for container in pod.containers:
                self._cgroup(scan, container.cgroup)
        for relative in target.host_applications:
            self._cgroup(scan, relative)
            if relative in scan.cgroups:
                charged = _attempt(scan, lambda folder=relative: self._meter.memory_usage(folder))  # type: ignore[misc]
                if charged is not None:
                    scan.memory_usage[relative] = charged
        if target.best_effort:
            scan.best_effort = _attempt(scan, lambda: self._best_effort(scan, target))
        self._meter.keep_only({*scan.cgroups, target.best_effort})
        scan.seconds = self._clock.monotonic() - scan.at.monotonic
        return scan

    def _cgroup(self, scan: Scan, relative: str) -> None:
        usage = _attempt(scan, lambda: self._meter.usage(relative))
        if usage is not None:
            scan.cgroups[relative] = CgroupReading(self._clock.monotonic(), usage)

    def _best_effort(self, scan: Scan, target: ScanTarget) -> BestEffortReading:
        folder = target.best_effort
        usage = self._meter.usage(folder)
        read_at = self._clock.monotonic()
        quota, period = self._meter.cpu_bandwidth(folder)
        inside = [pod for pod in target.pods if pod.cgroup.startswith(f"{folder}/")]
        folders = (folder, *(container.cgroup for pod in inside for container in pod.containers))
        # A container that has just ended has no cpuset, and does not narrow that of its pod.
        counts = [_attempt(scan, lambda at=at: self._meter.cpu_count(at)) for at in folders]  # type: ignore[misc]
        return BestEffortReading(read_at, usage.cpu, quota, period, tuple(filter(None, counts)))

    def _node(self, scan: Scan, with_numa: bool) -> NodeReading:
        cpu = read_cpu_times(self._host, scan.odd_rows.append)
        memory = read_machine_memory(self._host)
        if not with_numa:
            return NodeReading(cpu, memory)
        # Most machines have no huge pages, and need not be looked through for them every second.
        with_huge_pages = memory.huge_pages > 0
        read = partial(read_numa_memory, self._host, scan.odd_rows.append, with_huge_pages=with_huge_pages)
        return NodeReading(cpu, memory, _attempt(scan, read) or ())


def _attempt(scan: Scan, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except FileError as error:
        scan.errors[error.path] = error
        return None
