"""Cycles and instructions of containers, of which the cycles per instruction (CPI) are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.perf_events import CYCLES, INSTRUCTIONS, CgroupCounter, PerfEvent, PerfEventError

EVENTS: Final = (CYCLES, INSTRUCTIONS)
_DESCRIPTORS: Final = 4096
"""How many are open at once: a counter takes one for each event and CPU. Containers beyond take turns."""


CountCgroup = Callable[[str, Sequence[PerfEvent], Sequence[int]], CgroupCounter]
"""Begins to count events of a cgroup's folder on CPUs; PerfEventError if the kernel refuses."""


@dataclass(frozen=True, slots=True)
class ContainerCycles:
    """Counts of one window."""

    pod: NodePod
    container: PodContainer
    cycles: int
    instructions: int


@dataclass(slots=True)
class CyclesRound:
    """What could be counted; ``errors`` by container ID says of what could not why."""

    counts: list[ContainerCycles] = field(default_factory=list)
    errors: dict[str, PerfEventError] = field(default_factory=dict)

    def rows(self) -> Rows:
        for count in self.counts:
            metadata = count.pod.pod.metadata
            owner = (count.container.id, count.container.name, metadata.uid, metadata.name, metadata.namespace)
            yield (*owner, "cycles"), count.cycles
            yield (*owner, "instructions"), count.instructions


class CyclesCollector:
    """Counts for a window at a time; ``latest`` is what the metrics show."""

    def __init__(self, layout: CgroupLayout, count: CountCgroup, clock: Clock, metrics: AgentMetrics) -> None:
        self._layout = layout
        self._count = count
        self._clock = clock
        self.latest = CyclesRound()
        metrics.latest(
            "container_cpi",
            "Container cpi collected by koordlet",
            ("container_id", "container_name", "pod_uid", "pod_name", "pod_namespace", "cpi_field"),
            lambda: self.latest.rows(),
            external=True,
        )

    async def collect(self, pods: Iterable[NodePod], cpus: Sequence[int], window: float) -> CyclesRound:
        """Count every container of the pods on ``cpus`` for ``window`` seconds; those that fail are left out."""
        result = CyclesRound()
        containers = [(pod, container) for pod in pods for container in pod.containers]
        at_once = max(_DESCRIPTORS // (len(EVENTS) * max(len(cpus), 1)), 1)
        for start in range(0, len(containers), at_once):
            await self._count_some(result, containers[start : start + at_once], cpus, window)
        self.latest = result
        return result

    async def _count_some(
        self,
        result: CyclesRound,
        containers: Sequence[tuple[NodePod, PodContainer]],
        cpus: Sequence[int],
        window: float,
    ) -> None:
        with ExitStack() as opened:
            counters = []
            for pod, container in containers:
                try:
                    counter = self._count(self._layout.folder("perf_event", container.cgroup), EVENTS, cpus)
                except PerfEventError as error:
                    result.errors[container.id] = error
                    continue
                opened.callback(counter.close)
                counters.append((pod, container, counter))
                # On a machine of many CPUs, to open one container's counters takes a while.
                await self._clock.sleep(0)
            if not counters:
                return
            await self._clock.sleep(window)
            for pod, container, counter in counters:
                try:
                    counts = counter.read()
                except PerfEventError as error:
                    result.errors[container.id] = error
                else:
                    result.counts.append(ContainerCycles(pod, container, counts[CYCLES], counts[INSTRUCTIONS]))
