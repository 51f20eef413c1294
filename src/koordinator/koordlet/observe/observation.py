"""What an agent observes of its node: the pods of kubelet, what they use, and what is read more rarely, each in a loop.

Most of what is read more rarely needs a kernel or a CPU that few machines have. Where it is missing, the reason is
logged once and the loop tries again in every round: a mount, a boot parameter of the next kernel or the kubelet's
folders may come later.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.observe.cold_pages import read_hot_pages
from koordinator.koordlet.observe.cycles import CyclesCollector
from koordinator.koordlet.observe.gpu import GPUCollector
from koordinator.koordlet.observe.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.observe.pressure import PressureCollector, PressureRound
from koordinator.koordlet.observe.resctrl import ResctrlCollector
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node import kidled, perf_events, pressure, resctrl
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import OddRowError, Unavailable
from koordinator.node.nvml import GPU, NVML

logger = logging.getLogger(__name__)

_DEADLINE: Final = 30.0
_CYCLES_DEADLINE: Final = 600.0
"""Containers take turns where not all of them can be counted at once."""


class Observation:
    """Run ``loops``. What they find is in the usage table, in the metric cache and here."""

    def __init__(
        self,
        context: AgentContext,
        sync_pods: Callable[[], Awaitable[None]],
        layout: CgroupLayout,
        meter: CgroupMeter,
        nvml: NVML | None,
    ) -> None:
        """``sync_pods`` queries the kubelet once; ``nvml`` is None where no GPU is to be measured."""
        self._context = context
        self._sync_pods = sync_pods
        self._layout = layout
        options, metrics, clock = context.options, context.metrics, context.given.clock
        self.reader = reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
        gpus = None if nvml is None else GPUCollector(nvml, reader)
        self.gpus: Sequence[GPU] = () if nvml is None else nvml.gpus
        with_huge_pages = options.features.enabled(features.HUGE_PAGE_REPORT)
        self.info = NodeInfo(options.host, metrics, with_huge_pages=with_huge_pages)
        self.advisor = MetricsAdvisor(context, meter, layout, self.info, gpus)
        self.pressure = PressureCollector(reader, metrics)
        self.cycles = CyclesCollector(layout, perf_events.CgroupCounter, clock, metrics)
        self._resctrl = ResctrlCollector(options.host, metrics)
        self._said = defaultdict[str, SaidOnce](lambda: SaidOnce(logger))
        """By loop."""
        self.has_cold_pages = False
        """Whether memory without cold pages is measured, so that a NodeMetric's policy can select it."""

    def loops(self) -> list[Loop]:
        """Kubelet's pods first, then what options and gates switch on, and what pods use."""
        options = self._context.options
        wanted, gates, kubelet = options.collectors, options.features, options.kubelet
        loops = [Loop("node info", self._refresh_info, options.node_info_interval, _DEADLINE)]
        if kubelet.sync_interval > 0:
            loops.insert(0, Loop("pods", self._sync_pods, kubelet.sync_interval, kubelet.sync_timeout + 1))
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
        return [*loops, Loop("measure", self._measure, options.collect_interval, _DEADLINE)]

    @property
    def _pods(self) -> list[NodePod]:
        return [pod for pod in self._context.states.pods if not pod.has_finished]

    async def _measure(self) -> None:
        self._context.given.before_scan()
        is_whole = self._context.table.is_whole
        is_whole.clear()
        try:
            for _ in self.advisor.steps():
                await asyncio.sleep(0)
        finally:
            is_whole.set()

    async def _collect_pressure(self) -> None:
        self.pressure.latest = PressureRound()
        if self._is_missing("pressure", pressure.probe_pods(self._layout)):
            return
        found = self.pressure.collect(self._pods)
        self._context.metrics.count_odd_rows(found.odd_rows)
        self._say("pressure", found.errors | {row.path: row for row in found.odd_rows})

    async def _collect_cycles(self) -> None:
        topology, options = self.info.topology, self._context.options
        if topology is None:
            return
        cpus = [cpu.cpu for cpu in topology.cpus]
        found = await self.cycles.collect(self._pods, cpus, options.collectors.cycles_window)
        if found.errors and not found.counts and self._is_missing("cycles", perf_events.probe(options.host)):
            return
        self._say("cycles", found.errors)

    async def _collect_cold_pages(self) -> None:
        options = self._context.options
        if not self._context.table.rounds:
            return
        may_write = not options.enforcement.observe_only
        if self._is_missing("cold pages", kidled.switch_on(options.host, may_write=may_write)):
            return
        found = read_hot_pages(self._layout, self._context.table)
        if isinstance(found, Unavailable):
            self._is_missing("cold pages", found)
            return
        self._say("cold pages", found.errors)
        self._context.cache.append(round(self._context.given.clock.now().timestamp() * 1000), found.samples)
        self.has_cold_pages |= bool(found.samples)

    async def _collect_resctrl(self) -> None:
        host = self._context.options.host
        is_missing = self._is_missing("resctrl", resctrl.probe_allocation(host) or resctrl.probe_monitoring(host))
        self._resctrl.collect(is_there=not is_missing)

    async def _refresh_info(self) -> None:
        self.info.refresh()

    async def _refresh_storage(self) -> None:
        self.info.refresh_storage()

    def _is_missing(self, what: str, state: Unavailable | None) -> bool:
        if state is not None:
            self._say(what, {state.reason: state})
        return state is not None

    def _say(self, what: str, problems: Mapping[str, KoordinatorError | Unavailable]) -> None:
        """That a container has just ended is no news for everybody."""
        with self._said[what].round():
            for about, problem in problems.items():
                level = logging.WARNING if isinstance(problem, (Unavailable, OddRowError)) else logging.DEBUG
                self._said[what].say(f"{what}: not measured: {problem}", about, level)
