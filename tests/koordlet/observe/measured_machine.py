"""A machine of files that is measured round by round, and pods to measure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.observe.gpu import GPUCollector
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import Series
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.observe.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.koordlet.options import Folders, Options
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_meter import CgroupMeter
from tests.node.machine import FakeMachine

DESCRIPTORS = 2048
BEST_EFFORT = "kubepods.slice/kubepods-besteffort.slice"
_CGROUP = "/sys/fs/cgroup"


def pod(name: str, document: Pod | None = None) -> NodePod:
    """One pod with one container, whose folders are ``NAME`` and ``NAME/c``."""
    return NodePod(document or Pod(), name, name, (PodContainer("main", f"containerd://{name}", f"{name}/c"),))


def named(samples: Mapping[Series, float]) -> dict[str, float]:
    return {" ".join((series.kind.name, *series.values)): value for series, value in samples.items()}


@dataclass
class States:
    pods: Sequence[NodePod] = ()
    node_slo_spec: NodeSLOSpec | None = None
    has_synced_pods: bool = True


class Kept(RingMetricCache):
    """Says what the last round has appended, by name and labels."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys((kinds.NODE, kinds.PODS, kinds.MEMORY), Retention(1.0, 60.0)), 1 << 20)
        self.last: dict[str, float] = {}

    def append(self, at: int, samples: Mapping[Series, float]) -> None:
        super().append(at, samples)
        self.last |= named(samples)


@dataclass
class MeasuredMachine:
    """Cgroup version 2. ``measure`` lets a second go by, and is one round."""

    root: Path
    with_page_cache: bool = False
    gpus: GPUCollector | None = None
    states: States = field(default_factory=States)

    def __post_init__(self) -> None:
        self.machine, self.clock, self.cache = FakeMachine(self.root), ManualClock(), Kept()
        layout = self.machine.layout(CgroupVersion.V2)
        self.meter = CgroupMeter(layout, 4096, DESCRIPTORS)
        self.metrics = AgentMetrics(Metrics(), "node-1")
        self.table = UsageTable(1.0, 5.0, with_page_cache=self.with_page_cache)
        self.info = NodeInfo(self.machine.host, self.metrics, with_huge_pages=False)
        context = SimpleNamespace(
            table=self.table,
            options=Options("node-1", self.machine.host, NOWHERE, Folders.under(self.root)),
            cache=self.cache,
            states=self.states,
            given=SimpleNamespace(clock=self.clock),
            metrics=self.metrics,
        )
        self.advisor = MetricsAdvisor(cast("AgentContext", context), self.meter, layout, self.info, self.gpus)

    def measure(self, seconds: float = 1.0) -> dict[str, float]:
        """The samples of the round."""
        asyncio.run(self.clock.advance(seconds))
        self.cache.last = {}
        for _ in self.advisor.steps():
            pass
        return self.cache.last

    def show_pods(self, *pods: NodePod, applications: Sequence[HostApplicationSpec] = ()) -> None:
        """What the kubelet and the NodeSLO list."""
        self.states.pods = pods
        self.states.node_slo_spec = NodeSLOSpec(host_applications=list(applications))

    def write_cgroup(
        self, folder: str, *, micros: int = 0, memory: int = 0, cache: int = 0, periods: int = 0, throttled: int = 0
    ) -> None:
        """What a cgroup has used since it was made, and what it has now."""
        stat = f"usage_usec {micros}\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 0\n"
        self.write(f"{folder}/cpu.stat", stat)
        self.write_memory(folder, memory, cache)

    def write_memory(self, folder: str, memory: int, cache: int = 0) -> None:
        kinds_of_memory = (
            f"inactive_anon 0\nactive_anon {memory}\ninactive_file {cache}\nactive_file 0\nunevictable 0\n"
        )
        self.write(f"{folder}/memory.stat", f"anon {memory}\nfile {cache}\n{kinds_of_memory}")

    def write(self, file: str, content: str) -> None:
        """Of a cgroup."""
        self.machine.write(f"{_CGROUP}/{file}", content)

    def write_node(self, ticks: int, *, available: int = 60, by_cpu: Mapping[int, int] | None = None) -> None:
        """Of 100 KiB, of which 20 are free."""
        lines = [f"cpu {ticks} 0 0 0 0 0 0\n", *(f"cpu{cpu} {each} 0 0 0\n" for cpu, each in (by_cpu or {}).items())]
        self.machine.write("/proc/stat", "".join(lines))
        reclaimable = "Active(file): 10 kB\nInactive(file): 20 kB\nSReclaimable: 5 kB\n"
        self.machine.write(
            "/proc/meminfo", f"MemTotal: 100 kB\nMemFree: 20 kB\nMemAvailable: {available} kB\n{reclaimable}"
        )
