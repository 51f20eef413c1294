"""The running agent: in which order its parts start, and its loops."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics, exponential_buckets
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import PREFIX, AgentMetrics
from koordinator.koordlet.audit.log import AuditLog
from koordinator.koordlet.audit.pages import AuditPages
from koordinator.koordlet.audit.pages import handler as audit_handler
from koordinator.koordlet.collectors.gpu import GPUCollector
from koordinator.koordlet.collectors.node_info import NodeInfo
from koordinator.koordlet.collectors.scan import Scanner
from koordinator.koordlet.command_line import Options
from koordinator.koordlet.devices.reporter import DeviceReporter, DeviceSources
from koordinator.koordlet.devices.xpu_files import XPUFiles
from koordinator.koordlet.evictor import Evictor, EvictorDependencies, count_evictions
from koordinator.koordlet.executor.executor import Executor
from koordinator.koordlet.executor.explanation_page import handler as explanation_handler
from koordinator.koordlet.hooks import runtime_hooks
from koordinator.koordlet.hooks.runtime_hooks import HookSources, NormalizationRatio, RuntimeHooks
from koordinator.koordlet.interference import monitor as interference
from koordinator.koordlet.interference.monitor import InterferenceMonitor, InterferenceSources
from koordinator.koordlet.metric_cache import kinds
from koordinator.koordlet.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.metric_cache.sqlite import SQLiteMetricCache
from koordinator.koordlet.metrics_advisor import MetricsAdvisor
from koordinator.koordlet.node_metric_reporter import Measured, NodeMetricReporter
from koordinator.koordlet.node_snapshot import RecentUsage, SnapshotSources
from koordinator.koordlet.node_topology.reporter import TopologyReporter, TopologyReporting
from koordinator.koordlet.periodic_collectors import Observed, PeriodicCollectors
from koordinator.koordlet.pleg import PodLifecycleEvents
from koordinator.koordlet.pod_resources_proxy import PodResourcesProxy
from koordinator.koordlet.policy import EnforcedPolicy
from koordinator.koordlet.prediction.server import PredictionServer
from koordinator.koordlet.qos_manager import COMPONENT, QoSManager, account_for_rounds
from koordinator.koordlet.resource_metrics import (
    export_cache,
    export_features,
    export_reading,
    export_resources,
    export_usage,
)
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.interface import Client
from koordinator.kube.servers import Servers
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_driver, detect_version
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.cpu_time import ticks_per_second
from koordinator.node.errors import Unavailable
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.host import Host
from koordinator.node.kernel_files import KernelFileCodec
from koordinator.node.kernel_writer import MachineFiles
from koordinator.node.kubelet import Get, Kubelet, KubeletAddressError
from koordinator.node.nvml import GPU, NVML, open_nvml
from koordinator.node.pod_resources import pod_resources_socket

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

_NODE_SECONDS: Final = 1830.0
"""The longest window of the default policy, and a little."""
_POD_SECONDS: Final = 330.0
"""The window over which pods are averaged, and a little."""
_DESCRIPTORS: Final = 2048
"""How many files of cgroups stay open: those of some 200 pods."""
_ADDRESS_PAUSE: Final = 1.0
_SAID_EVERY: Final = 30.0
"""Seconds."""
_RETENTIONS: Final = {
    kinds.NODE: _NODE_SECONDS,
    kinds.SYSTEM: _NODE_SECONDS,
    kinds.PODS: _POD_SECONDS,
    kinds.THROTTLED: _POD_SECONDS,
    kinds.BEST_EFFORT: _POD_SECONDS,
    kinds.PAGE_CACHE: _NODE_SECONDS,
    kinds.HOST_APPLICATIONS: _POD_SECONDS,
    kinds.COLD_PAGES: _NODE_SECONDS,
    kinds.PRESSURE: _POD_SECONDS,
    kinds.PERFORMANCE: _POD_SECONDS,
    kinds.RESCTRL: _POD_SECONDS,
}
_AUDIT_SECONDS: Final = 5.0
_CACHE_SECONDS: Final = 5.0
_KUBELET_BUCKETS: Final = exponential_buckets(0.001, 4, 7)


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
    open_nvml: Callable[[Host], NVML | Unavailable] = open_nvml
    """Asked for the GPUs of the node, where they are to be measured."""
    before_scan: Callable[[], None] = lambda: None
    """Called right before the machine is read each time: a simulated kernel brings its files up to this moment."""


@dataclass(frozen=True, slots=True)
class _Observing:
    """What the reports are made of, beside the metric cache."""

    info: NodeInfo
    periodic: PeriodicCollectors
    gpus: Sequence[GPU]


class Agent:
    """One node's agent."""

    def __init__(self, options: Options, given: Dependencies) -> None:
        self._options = options
        self._given = given
        self.states = StatesInformer(
            given.client,
            options.node_name,
            clock=given.clock,
            random=given.random,
            metrics=given.metrics,
            follow_device=options.features.enabled(features.ACCELERATORS),
        )
        """What is known of the node and its pods."""
        self._cache = _metric_cache(options, given.clock)
        self._loops = LoopSupervisor(clock=given.clock, random=given.random, metrics=given.metrics)
        self.executor: Executor | None = None
        """What writes the kernel's files; None until it is known where they are."""
        self._events = EventBroadcaster(
            given.client, host=options.node_name, clock=given.clock, random=given.random, metrics=given.metrics
        )
        self.metrics = AgentMetrics(given.metrics, options.node_name)
        """What is served: the given registry, and a second one."""
        started = given.clock.now().timestamp()
        self.metrics.latest("start_time", "the start time of koordlet", (), lambda: [((), started)])
        self.audit = _audit_log(options, given.clock)
        """Where what is done to the node is recorded; None unless the gate AuditEvents is on."""
        self._pages = None if self.audit is None else _audit_pages(self.audit, options, given)
        export_resources(self.metrics, self.states)
        export_features(self.metrics, options.host)
        export_cache(self.metrics, self._cache)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. FileError if no cgroup hierarchy is mounted, OSError if an address is taken."""
        servers, health = Servers(self.metrics.both, self._given.clock), HealthChecks()
        # A restart would not bring back an API server or a kubelet that is away, so the other paths stay healthy.
        health.add("loops", self._loops.check, "readyz")
        servers.add(self._options.listen, self._add_routes, health=health)
        unserved = "profiles are not served, see --pprof-addr"
        servers.add(self._options.profiles, profiles=True, dispensable=unserved)
        lifecycle = Lifecycle(self._given.clock)
        lifecycle.serve(servers)
        lifecycle.background("states informer", self.states.run)
        lifecycle.background("events", self._events.run)
        lifecycle.work("measure and report", self._measure_and_report)
        try:
            await lifecycle.run(stop)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        if isinstance(self._cache, SQLiteMetricCache):
            self._cache.close()
        if self._pages is not None:
            self._pages.close()
        if self.audit is not None:
            self.audit.close()

    def _add_routes(self, server: HealthServer) -> None:
        server.add_metrics("/internal-metrics", self.metrics.internal)
        server.add_metrics("/external-metrics", self.metrics.external)
        server.add_route("/enforcement", explanation_handler(lambda: self.executor))
        if self._options.features.enabled(features.AUDIT_EVENTS_HTTP_HANDLER):
            server.add_route("/events", audit_handler(self._pages))

    async def _measure_and_report(self) -> None:
        version = detect_version(self._options.host)
        connection = await self._connect_kubelet()
        meter: CgroupMeter | None = None
        nvml = self._open_nvml()
        try:
            kubelet = Kubelet(timed(connection.get, self._given.clock, self.metrics.internal))
            driver = await self._cgroup_driver(kubelet, version)
            layout = CgroupLayout(self._options.host.cgroup, version, driver)
            logger.info("cgroup version %d, driver %s", version.value, driver)
            meter = CgroupMeter(layout, os.sysconf("SC_PAGESIZE"), _DESCRIPTORS)
            self._add_loops(kubelet, layout, meter, nvml)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loops.run(), name="loops")
                tasks.create_task(self._hooks.serve(), name="runtime hooks")
                if self._options.features.enabled(features.POD_RESOURCES_PROXY):
                    tasks.create_task(self._serve_pod_resources(kubelet), name="pod resources")
                if self._options.kubelet.sync_interval > 0:
                    events = PodLifecycleEvents(
                        layout, self._given.clock, partial(self.states.sync_pods, kubelet, layout)
                    )
                    tasks.create_task(events.run(), name="pod lifecycle events")
        finally:
            if meter is not None:
                meter.close()
            if nvml is not None:
                nvml.close()
            await connection.close()

    async def _serve_pod_resources(self, kubelet: Kubelet) -> None:
        upstream = GrpcClient(Path(pod_resources_socket(self._options.host)))
        folder = self._options.pod_resources_folder
        try:
            await PodResourcesProxy(upstream, kubelet.pods, folder, self._given.clock).run()
        finally:
            upstream.close()

    async def _connect_kubelet(self) -> KubeletConnection:
        """A Node says where its kubelet is once kubelet has reported: what is missing is said every half minute."""
        said_at = -inf
        while True:
            try:
                return await self._given.connect_kubelet(await self.states.wait_for_node())
            except KubeletAddressError as error:
                if self._given.clock.monotonic() - said_at >= _SAID_EVERY:
                    logger.warning("waiting for kubelet to report: %s", error)
                    said_at = self._given.clock.monotonic()
            await self._given.clock.sleep(_ADDRESS_PAUSE)

    def _open_nvml(self) -> NVML | None:
        if not self._options.features.enabled(features.ACCELERATORS):
            return None
        nvml = self._given.open_nvml(self._options.host)
        if isinstance(nvml, Unavailable):
            logger.warning("GPUs are not measured: %s", nvml)
            return None
        return nvml

    def _add_loops(self, kubelet: Kubelet, layout: CgroupLayout, meter: CgroupMeter, nvml: NVML | None) -> None:
        observing = self._observe(kubelet, layout, meter, nvml)
        if self._pages is not None:
            self._loops.add(Loop("audit", self._keep_audit, _AUDIT_SECONDS, 30.0))
        if isinstance(self._cache, SQLiteMetricCache):
            self._loops.add(Loop("metric cache", self._keep_samples, _CACHE_SECONDS, 30.0))
        monitor = self._detect_interference(layout, observing.periodic)
        for loop in self._enforce(layout, observing.info, monitor):
            self._loops.add(loop)
        if self._options.topology_interval > 0:
            self._report_topology_and_devices(kubelet, observing.info, nvml)
        prediction = PredictionServer(self._options.prediction, self._cache, self.states, self._given.clock)
        prediction.export(self.metrics)
        for loop in prediction.loops():
            self._loops.add(loop)
        if self._options.report:
            self._report_node_metric(observing, prediction, monitor)

    def _observe(self, kubelet: Kubelet, layout: CgroupLayout, meter: CgroupMeter, nvml: NVML | None) -> _Observing:
        """Kubelet's pods, then what they use."""
        options, page_size = self._options, os.sysconf("SC_PAGESIZE")
        gpus = None if nvml is None else GPUCollector(nvml, CgroupReader(layout, page_size))
        info = NodeInfo(options.host, self.metrics, with_huge_pages=options.features.enabled(features.HUGE_PAGE_REPORT))
        advisor = MetricsAdvisor(
            Scanner(options.host, meter, self._given.clock),
            self._cache,
            self.states,
            layout,
            interval=options.collect_interval,
            ticks_per_second=ticks_per_second(),
            with_page_cache=options.with_page_cache,
            topology=lambda: info.topology,
            gpus=gpus,
        )
        export_usage(self.metrics, advisor)
        export_reading(self.metrics, meter, advisor)
        periodic = PeriodicCollectors(
            options,
            layout,
            Observed(advisor.pods, advisor.host_applications, lambda: advisor.last_scan),
            info,
            self._cache,
            self._given.clock,
            self.metrics,
            page_size=page_size,
        )

        async def measure() -> None:
            self._given.before_scan()
            advisor.measure()

        if options.kubelet.sync_interval > 0:
            sync_pods = partial(self.states.sync_pods, kubelet, layout)
            self._loops.add(Loop("pods", sync_pods, options.kubelet.sync_interval, options.kubelet.sync_timeout + 1))
        for loop in periodic.loops():
            self._loops.add(loop)
        self._loops.add(Loop("measure", measure, options.collect_interval, 30.0))
        return _Observing(info, periodic, () if gpus is None else gpus.gpus)

    def _report_topology_and_devices(self, kubelet: Kubelet, info: NodeInfo, nvml: NVML | None) -> None:
        options, given = self._options, self._given
        reporting = TopologyReporting(
            writes=options.features.enabled(features.NODE_TOPOLOGY_REPORT),
            asks_kubelet=options.kubelet.query_configuration,
        )
        topology = TopologyReporter(reporting, given.client, self.states, info, options.host, kubelet, given.clock)
        self._loops.add(Loop("node topology", topology.report, options.topology_interval, 30.0))
        if options.features.enabled(features.ACCELERATORS):
            sources = DeviceSources(
                options.host,
                XPUFiles(options.device_files),
                nvml,
                with_rdma=options.features.enabled(features.RDMA_DEVICES),
                only_files=options.only_device_files,
            )
            devices = DeviceReporter(given.client, self.states, sources.take, given.clock)
            self._loops.add(Loop("devices", devices.report, options.topology_interval, 30.0))

    def _detect_interference(self, layout: CgroupLayout, periodic: PeriodicCollectors) -> InterferenceMonitor | None:
        """What looks for it; None unless the gate is on."""
        gates = self._options.features
        if not gates.enabled(features.INTERFERENCE_DETECTION):
            return None
        if not gates.enabled(features.PSI_COLLECTOR) and not gates.enabled(features.CPI_COLLECTOR):
            logger.warning("%s finds nothing without PSICollector or CPICollector", features.INTERFERENCE_DETECTION)
        sources = InterferenceSources(
            pods=lambda: self.states.pods,
            pressure=lambda: periodic.pressure,
            cycles=lambda: periodic.cycles,
            usage=RecentUsage(self._cache, self._given.clock, self._options.collect_interval),
            reader=CgroupReader(layout, os.sysconf("SC_PAGESIZE")),
        )
        recorder = self._events.recorder(interference.COMPONENT)
        monitor = InterferenceMonitor(sources, recorder, self._given.clock, self.metrics)
        self._loops.add(Loop("interference", monitor.observe, interference.INTERVAL, 30.0))
        return monitor

    def _report_node_metric(
        self,
        observing: _Observing,
        prediction: PredictionServer,
        monitor: InterferenceMonitor | None,
    ) -> None:
        measured = Measured(
            numa_nodes=lambda: [node.number for node in observing.info.numa_memory or ()],
            gpus=observing.gpus,
            has_cold_pages=lambda: observing.periodic.has_cold_pages,
            forecast=prediction.forecast_prod,
            extensions=monitor.extensions if monitor is not None else dict,
        )
        reporter = NodeMetricReporter(self._given.client, self.states, self._cache, self._given.clock, measured)
        if self._options.features.enabled(features.NODE_METRIC_PROM_METRICS):
            reporter.export(self.metrics)
        self._loops.add(Loop("node metric", reporter.report_when_due, 1.0, 60.0))

    async def _keep_samples(self) -> None:
        if isinstance(self._cache, SQLiteMetricCache):
            self._cache.flush()

    def _enforce(self, layout: CgroupLayout, info: NodeInfo, monitor: InterferenceMonitor | None) -> list[Loop]:
        """The strategies and the hooks, which share the executor and the policy."""
        options, given = self._options, self._given
        self.executor = Executor(
            MachineFiles(),
            KernelFileCodec(options.host, layout, os.sysconf("SC_PAGESIZE")),
            given.clock,
            reassert_seconds=options.enforcement.reassert_interval,
            observe_only=options.enforcement.observe_only,
            on_round=account_for_rounds(self.metrics, self.audit, observe_only=options.enforcement.observe_only),
        )
        ratio = NormalizationRatio(self.states, options.features)
        sources = SnapshotSources(
            states=self.states,
            policy=EnforcedPolicy(),
            usage=RecentUsage(self._cache, given.clock, options.collect_interval),
            layout=layout,
            executor=self.executor,
            topology=lambda: info.topology,
            normalization_ratio=ratio,
        )
        recorder = self._events.recorder(COMPONENT)
        count = count_evictions(self.metrics, given.clock)
        evictor = Evictor(
            EvictorDependencies(given.client, given.clock, recorder, self.audit, on_evicted=count),
            observe_only=options.enforcement.observe_only,
        )
        manager = QoSManager(options, sources, evictor, self.metrics, recorder, given.clock, given.random, monitor)
        hooks = HookSources(
            states=self.states,
            policy=sources.policy,
            layout=layout,
            executor=self.executor,
            events=self._events.recorder(runtime_hooks.COMPONENT),
            clock=given.clock,
            metrics=self.metrics,
            ratio=ratio,
        )
        self._hooks = RuntimeHooks(options, hooks)
        return [*manager.loops(), *self._hooks.loops()]

    async def _keep_audit(self) -> None:
        if self.audit is not None and self._pages is not None:
            self.audit.flush()
            self._pages.drop_expired()

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


def timed(get: Get, clock: Clock, metrics: Metrics) -> Get:
    """``get``, with the time of each answer in the metrics; a request without an answer is not counted."""
    durations = metrics.histogram(
        f"{PREFIX}kubelet_request_duration_seconds",
        "kubelet http request duration in seconds",
        ("verb", "path", "code"),
        buckets=_KUBELET_BUCKETS,
    )

    async def timed_get(path: str) -> bytes:
        started = clock.monotonic()
        try:
            body = await get(path)
        except ApiStatusError as error:
            durations.labels("get", path, str(error.code)).observe(clock.monotonic() - started)
            raise
        durations.labels("get", path, "200").observe(clock.monotonic() - started)
        return body

    return timed_get


def _metric_cache(options: Options, clock: Clock) -> RingMetricCache:
    if options.cache_folder is None:
        return RingMetricCache(_retentions(options), options.cache_bytes)
    file = options.cache_folder / "samples.sqlite"
    return SQLiteMetricCache(_retentions(options), options.cache_bytes, file, round(clock.now().timestamp() * 1000))


def _audit_log(options: Options, clock: Clock) -> AuditLog | None:
    if not options.features.enabled(features.AUDIT_EVENTS):
        return None
    audit = options.audit
    return AuditLog(audit.folder, disk_bytes=audit.disk_bytes, verbosity=audit.verbosity, clock=clock)


def _audit_pages(log: AuditLog, options: Options, given: Dependencies) -> AuditPages:
    audit = options.audit
    return AuditPages(
        log,
        readers=audit.readers,
        events_per_page=audit.events_per_page,
        clock=given.clock,
        make_token=lambda: str(uuid.uuid4()),
    )


def _retentions(options: Options) -> dict[str, Retention]:
    collectors = options.collectors
    intervals = {
        kinds.COLD_PAGES: collectors.cold_pages_interval,
        kinds.PRESSURE: collectors.pressure_interval,
        kinds.PERFORMANCE: collectors.cycles_interval,
        kinds.RESCTRL: collectors.resctrl_interval,
    }
    return {
        group: Retention(intervals.get(group, options.collect_interval), seconds)
        for group, seconds in _RETENTIONS.items()
    }
