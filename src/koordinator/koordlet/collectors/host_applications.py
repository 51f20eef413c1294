"""What the programs use that run on the node beside Kubernetes, as the NodeSLO lists them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from koordinator.api.host_application import HostApplicationSpec
from koordinator.koordlet.collectors.counters import Counters
from koordinator.koordlet.collectors.scan import Scan
from koordinator.koordlet.metric_cache.kinds import (
    HOST_APPLICATION_CPU_USAGE,
    HOST_APPLICATION_MEMORY_USAGE,
    HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
    Series,
)
from koordinator.node.cgroup_layout import CgroupLayout

_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class HostApplication:
    """One of them, and the relative folder of its cgroup."""

    spec: HostApplicationSpec
    cgroup: str


@dataclass(frozen=True, slots=True)
class HostApplicationUsage:
    """``cpu`` in cores, memory in bytes; ``charged`` is all that the kernel counts, page cache included."""

    spec: HostApplicationSpec
    cpu: float
    memory: int
    charged: int


@dataclass(frozen=True, slots=True)
class HostApplicationsUsage:
    """Those that could be measured."""

    applications: Sequence[HostApplicationUsage] = field(default_factory=tuple)

    @property
    def cpu(self) -> float:
        return sum(application.cpu for application in self.applications)

    @property
    def memory(self) -> int:
        return sum(application.memory for application in self.applications)

    def samples(self) -> dict[Series, float]:
        samples: dict[Series, float] = {}
        for usage in self.applications:
            name = usage.spec.name
            samples[HOST_APPLICATION_CPU_USAGE.series(host_app_name=name)] = usage.cpu
            samples[HOST_APPLICATION_MEMORY_USAGE.series(host_app_name=name)] = usage.memory
            samples[HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE.series(host_app_name=name)] = usage.charged
        return samples


class HostApplicationsCollector:
    """One that is seen for the first time, or whose cgroup is not there, is left out of the round."""

    def __init__(self, lifetime: float) -> None:
        self._cpu: Counters[str] = Counters(lifetime)

    def collect(self, scan: Scan, applications: Iterable[HostApplication]) -> HostApplicationsUsage:
        usages = []
        for application in applications:
            reading = scan.cgroups.get(application.cgroup)
            charged = scan.memory_usage.get(application.cgroup)
            if reading is None or charged is None:
                continue
            growth = self._cpu.growth(application.spec.name, reading.usage.cpu, reading.monotonic)
            if growth is not None:
                cores = growth.rate / _NANOSECONDS
                usages.append(HostApplicationUsage(application.spec, cores, reading.usage.memory.usage, charged))
        self._cpu.drop_expired(scan.at.monotonic)
        return HostApplicationsUsage(tuple(usages))


def host_applications(specs: Iterable[HostApplicationSpec], layout: CgroupLayout) -> tuple[HostApplication, ...]:
    """With their folders; of several with one name the first counts, since usage is kept by name."""
    by_name: dict[str, HostApplication] = {}
    for spec in specs:
        by_name.setdefault(spec.name, HostApplication(spec, layout.host_application(spec)))
    return tuple(by_name.values())
