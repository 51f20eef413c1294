"""The running agent: in which order its parts start, and its loops."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics
from koordinator.koordlet.collectors.scan import Scanner
from koordinator.koordlet.command_line import Options
from koordinator.koordlet.metric_cache import kinds
from koordinator.koordlet.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.node_metric import NodeMetricInput, as_merge_patch, node_metric_status
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.servers import Servers
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_driver, detect_version
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cpu_time import ticks_per_second
from koordinator.node.cpu_topology import read_cpu_topology
from koordinator.node.errors import FileError
from koordinator.node.kubelet import Get, Kubelet

logger = logging.getLogger(__name__)

_NODE_SECONDS: Final = 1830.0
"""The longest window of the default policy, and a little."""
_POD_SECONDS: Final = 330.0
"""The window over which pods are averaged, and a little."""
_DESCRIPTORS: Final = 2048
"""How many files of cgroups stay open: those of some 200 pods."""
_RETENTIONS: Final = {
    kinds.NODE: _NODE_SECONDS,
    kinds.SYSTEM: _NODE_SECONDS,
    kinds.PODS: _POD_SECONDS,
    kinds.THROTTLED: _POD_SECONDS,
    kinds.PAGE_CACHE: _NODE_SECONDS,
    kinds.HOST_APPLICATIONS: _POD_SECONDS,
    kinds.COLD_PAGES: _POD_SECONDS,
}


@dataclass(frozen=True, slots=True)
class KubeletConnection:
    """How to ask one kubelet, and how to end that."""

    get: Get
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What an agent is given. ``connect_kubelet`` gets the Node, which says where its kubelet is."""

    client: Client
    connect_kubelet: Callable[[Node], Awaitable[KubeletConnection]]
    clock: Clock
    random: Random
    metrics: Metrics


class Agent:
    """One node's agent."""

    def __init__(self, options: Options, given: Dependencies) -> None:
        self._options = options
        self._given = given
        self._states = StatesInformer(given.client, options.node_name, clock=given.clock, random=given.random)
        self._cache = RingMetricCache(
            {group: Retention(options.collect_interval, seconds) for group, seconds in _RETENTIONS.items()},
            options.cache_bytes,
        )
        self._loops = LoopSupervisor(clock=given.clock, random=given.random, metrics=given.metrics)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. FileError if no cgroup hierarchy is mounted, OSError if an address is taken."""
        servers = Servers(self._given.metrics, self._given.clock)
        servers.add(self._options.listen)
        lifecycle = Lifecycle(self._given.clock)
        lifecycle.serve(servers)
        lifecycle.background("states informer", self._states.run)
        lifecycle.work("measure and report", self._measure_and_report)
        await lifecycle.run(stop)

    async def _measure_and_report(self) -> None:
        version = detect_version(self._options.host)
        connection = await self._given.connect_kubelet(await self._states.wait_for_node())
        meter: CgroupMeter | None = None
        try:
            kubelet = Kubelet(connection.get)
            driver = await self._cgroup_driver(kubelet, version)
            layout = CgroupLayout(self._options.host.cgroup, version, driver)
            logger.info("cgroup version %d, driver %s", version.value, driver)
            meter = CgroupMeter(layout, os.sysconf("SC_PAGESIZE"), _DESCRIPTORS)
            self._add_loops(kubelet, layout, meter)
            await self._loops.run()
        finally:
            if meter is not None:
                meter.close()
            await connection.close()

    def _add_loops(self, kubelet: Kubelet, layout: CgroupLayout, meter: CgroupMeter) -> None:
        options = self._options
        advisor = MetricsAdvisor(
            Scanner(options.host, meter, self._given.clock),
            self._cache,
            self._states,
            interval=options.collect_interval,
            ticks_per_second=ticks_per_second(),
            with_page_cache=options.with_page_cache,
        )

        async def sync_pods() -> None:
            await self._states.sync_pods(kubelet, layout)

        async def read_topology() -> None:
            try:
                advisor.topology = read_cpu_topology(options.host)
            except FileError as error:
                logger.warning("the topology of the CPUs stays as it was: %s", error)

        async def measure() -> None:
            advisor.measure()

        timeout = options.kubelet.sync_timeout
        if options.kubelet.sync_interval > 0:
            self._loops.add(Loop("pods", sync_pods, options.kubelet.sync_interval, timeout + 1))
        self._loops.add(Loop("node info", read_topology, options.node_info_interval, 30.0))
        self._loops.add(Loop("measure", measure, options.collect_interval, 30.0))
        if options.report:
            reporter = NodeMetricReporter(self._given.client, self._states, self._cache, self._given.clock)
            self._loops.add(Loop("node metric", reporter.report_when_due, 1.0, 60.0))

    async def _cgroup_driver(self, kubelet: Kubelet, version: CgroupVersion) -> CgroupDriver:
        """By the folders that kubelet has made, else as kubelet says, else systemd, which is what most have."""
        found = detect_driver(self._options.host, version)
        if found is not None:
            return found
        if self._options.kubelet.query_configuration:
            with suppress(KoordinatorError):
                configuration = await kubelet.configuration()
                return configuration.cgroup_driver or CgroupDriver.CGROUPFS
        logger.warning("kubelet has made no cgroups yet and does not say its driver: systemd is assumed")
        return CgroupDriver.SYSTEMD


class NodeMetricReporter:
    """Writes the status of the NodeMetric that koord-manager has made; where there is none, it waits for one."""

    def __init__(self, client: Client, states: StatesInformer, cache: RingMetricCache, clock: Clock) -> None:
        self._client = client
        self._states = states
        self._cache = cache
        self._clock = clock
        self._said_absent = False
        self._last = clock.monotonic()
        """When the last report was due; the first is due an interval after the start."""

    async def report_when_due(self) -> None:
        """Report if the interval that the NodeMetric asks for has passed. Errors are those of the API server."""
        now = self._clock.monotonic()
        if now - self._last < self._states.collect_policy.report_seconds:
            return
        self._last = now
        await self.report()

    async def report(self) -> None:
        """Write the status as of now."""
        metric = self._states.node_metric
        if metric is None:
            if not self._said_absent:
                logger.warning("nothing is reported: this node has no NodeMetric (koord-manager makes it)")
                self._said_absent = True
            return
        self._said_absent = False
        slo = self._states.node_slo
        given = NodeMetricInput(
            policy=self._states.collect_policy,
            pods=self._states.pods,
            host_applications=slo.spec.host_applications if slo else (),
        )
        status = node_metric_status(self._cache, given, self._clock.now())
        try:
            await self._client.patch(
                NODE_METRICS, metric.metadata.name, as_merge_patch(status), PatchType.MERGE, subresource="status"
            )
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            logger.info("the NodeMetric was deleted: nothing to report to")
