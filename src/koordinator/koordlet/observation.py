"""What an agent observes of its node: the pods of kubelet, what they use, and what is read more rarely."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from koordinator.base.loops import Loop
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.collectors.gpu import GPUCollector
from koordinator.koordlet.collectors.node_info import NodeInfo
from koordinator.koordlet.collectors.scan import Scanner
from koordinator.koordlet.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.periodic_collectors import Observed, PeriodicCollectors
from koordinator.koordlet.resource_metrics import export_reading, export_usage
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.cpu_time import ticks_per_second
from koordinator.node.nvml import GPU, NVML


class Observation:
    """Run ``loops``. What they find is in the metric cache and here."""

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
        options, page_size = context.options, os.sysconf("SC_PAGESIZE")
        gpus = None if nvml is None else GPUCollector(nvml, CgroupReader(layout, page_size))
        self.gpus: Sequence[GPU] = () if gpus is None else gpus.gpus
        info = self.info = NodeInfo(
            options.host, context.metrics, with_huge_pages=options.features.enabled(features.HUGE_PAGE_REPORT)
        )
        self._advisor = MetricsAdvisor(
            Scanner(options.host, meter, context.given.clock),
            context.cache,
            context.states,
            layout,
            interval=options.collect_interval,
            ticks_per_second=ticks_per_second(),
            with_page_cache=options.with_page_cache,
            topology=lambda: info.topology,
            count_odd_rows=context.metrics.count_odd_rows,
            gpus=gpus,
        )
        export_usage(context.metrics, self._advisor)
        export_reading(context.metrics, meter, self._advisor)
        self.periodic = PeriodicCollectors(
            options,
            layout,
            Observed(self._advisor.pods, self._advisor.host_applications, lambda: self._advisor.last_scan),
            info,
            context.cache,
            context.given.clock,
            context.metrics,
            page_size=page_size,
        )

    def loops(self) -> list[Loop]:
        """Kubelet's pods first, then what they use."""
        options = self._context.options
        loops = [*self.periodic.loops(), Loop("measure", self._measure, options.collect_interval, 30.0)]
        if options.kubelet.sync_interval > 0:
            timeout = options.kubelet.sync_timeout + 1
            return [Loop("pods", self._sync_pods, options.kubelet.sync_interval, timeout), *loops]
        return loops

    async def _measure(self) -> None:
        self._context.given.before_scan()
        self._advisor.measure()
