"""The collectors that run more rarely than once a second, each as a loop of its own.

Most of them need a kernel or a CPU that few machines have. Where it is missing, the reason is logged once and the loop
tries again in every round: a mount, a boot parameter of the next kernel or the kubelet's folders may come later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Loop
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.collectors.cold_pages import ColdPagesCollector
from koordinator.koordlet.collectors.cycles import CyclesCollector, CyclesRound
from koordinator.koordlet.collectors.host_applications import HostApplication
from koordinator.koordlet.collectors.node_info import NodeInfo
from koordinator.koordlet.collectors.pressure import PressureCollector, PressureRound
from koordinator.koordlet.collectors.resctrl import ResctrlCollector, ResctrlRound
from koordinator.koordlet.collectors.scan import Scan
from koordinator.koordlet.metric_cache.kinds import Series
from koordinator.koordlet.metric_cache.samples import MetricCache
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node import kidled, perf_events, pressure, resctrl
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import OddRowError, Unavailable

logger = logging.getLogger(__name__)

_DEADLINE: Final = 30.0
_CYCLES_DEADLINE: Final = 600.0
"""Containers take turns where not all of them can be counted at once."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The inputs of the collectors, at the moment of the call."""

    pods: Callable[[], Sequence[NodePod]]
    """Those that have not finished."""
    host_applications: Callable[[], Sequence[HostApplication]]
    last_scan: Callable[[], Scan | None]


class PeriodicCollectors:
    """Reads, and writes the samples; ``loops`` are those that the options enable."""

    def __init__(
        self,
        options: Options,
        layout: CgroupLayout,
        observed: Observed,
        info: NodeInfo,
        cache: MetricCache,
        clock: Clock,
        metrics: AgentMetrics,
        *,
        page_size: int,
    ) -> None:
        self._options = options
        self._layout = layout
        self._observed = observed
        self._info = info
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._pressure = PressureCollector(CgroupReader(layout, page_size), metrics)
        self._cycles = CyclesCollector(layout, perf_events.CgroupCounter, clock, metrics)
        self._cold_pages = ColdPagesCollector(layout)
        self._resctrl = ResctrlCollector(options.host, metrics)
        self._said: dict[str, frozenset[str]] = {}
        self.has_cold_pages = False
        """Whether memory without cold pages is measured, so that a NodeMetric's policy can select it."""

    def loops(self) -> list[Loop]:
        """The loops of what is switched on by gate or flag."""
        wanted, gates = self._options.collectors, self._options.features
        loops = [Loop("node info", self._refresh_info, self._options.node_info_interval, _DEADLINE)]
        if gates.enabled(features.PSI_COLLECTOR):
            loops.append(Loop("pressure", self._collect_pressure, wanted.pressure_interval, _DEADLINE))
        if gates.enabled(features.CPI_COLLECTOR):
            loops.append(Loop("cycles", self._collect_cycles, wanted.cycles_interval, _CYCLES_DEADLINE))
        if gates.enabled(features.COLD_PAGE_COLLECTOR):
            loops.append(Loop("cold pages", self._collect_cold_pages, wanted.cold_pages_interval, _DEADLINE))
        if gates.enabled(features.RESCTRL_COLLECTOR) and wanted.with_resctrl:
            loops.append(Loop("resctrl", self._collect_resctrl, wanted.resctrl_interval, _DEADLINE))
        if gates.enabled(features.BLOCK_IO_RECONCILE):
            loops.append(Loop("storage info", self._refresh_storage, wanted.storage_interval, _DEADLINE))
        return loops

    @property
    def pressure(self) -> PressureRound:
        """What the last round has found."""
        return self._pressure.latest

    @property
    def cycles(self) -> CyclesRound:
        """What was counted last."""
        return self._cycles.latest

    async def _collect_pressure(self) -> None:
        self._pressure.latest = PressureRound()
        if self._is_missing("pressure", pressure.probe_pods(self._layout)):
            return
        found = self._pressure.collect(self._observed.pods())
        self._metrics.count_odd_rows(found.odd_rows)
        self._say("pressure", found.errors | {row.path: row for row in found.odd_rows})
        self._append(found.samples())

    async def _collect_cycles(self) -> None:
        topology = self._info.topology
        if topology is None:
            return
        cpus = [cpu.cpu for cpu in topology.cpus]
        found = await self._cycles.collect(self._observed.pods(), cpus, self._options.collectors.cycles_window)
        if found.errors and not found.counts and self._is_missing("cycles", perf_events.probe(self._options.host)):
            return
        self._say("cycles", found.errors)
        self._append(found.samples())

    async def _collect_cold_pages(self) -> None:
        scan = self._observed.last_scan()
        may_write = not self._options.enforcement.observe_only
        if scan is None or self._is_missing("cold pages", kidled.switch_on(self._options.host, may_write=may_write)):
            return
        found = self._cold_pages.collect(scan, self._observed.pods(), self._observed.host_applications())
        if isinstance(found, Unavailable):
            self._is_missing("cold pages", found)
            return
        self._say("cold pages", found.errors)
        self._append(found.samples)
        self.has_cold_pages = True

    async def _collect_resctrl(self) -> None:
        self._resctrl.latest = ResctrlRound()
        host = self._options.host
        if self._is_missing("resctrl", resctrl.probe_allocation(host) or resctrl.probe_monitoring(host)):
            return
        self._append(self._resctrl.collect().samples())

    async def _refresh_info(self) -> None:
        self._info.refresh()

    async def _refresh_storage(self) -> None:
        self._info.refresh_storage()

    def _append(self, samples: Mapping[Series, float]) -> None:
        self._cache.append(round(self._clock.now().timestamp() * 1000), dict(samples))

    def _is_missing(self, what: str, state: Unavailable | None) -> bool:
        if state is not None:
            self._say(what, {state.reason: state})
        return state is not None

    def _say(self, what: str, problems: Mapping[str, KoordinatorError | Unavailable]) -> None:
        """What is new since the last round: that a container has just ended is no news for everybody."""
        known = self._said.get(what, frozenset())
        for name, problem in problems.items():
            if name not in known:
                level = logging.WARNING if isinstance(problem, (Unavailable, OddRowError)) else logging.DEBUG
                logger.log(level, "%s: not measured: %s", what, problem)
        self._said[what] = frozenset(problems)
