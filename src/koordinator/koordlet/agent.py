"""The running agent: in which order its parts start, and its loops."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.audit.log import AuditLog
from koordinator.koordlet.audit.pages import AuditPages
from koordinator.koordlet.audit.pages import handler as audit_handler
from koordinator.koordlet.cleanup import SECONDS, Cleanup, CleanupError, switch_off, take_back
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
from koordinator.koordlet.interference.cpu_waits import CPUWaits
from koordinator.koordlet.interference.monitor import InterferenceMonitor, InterferenceSources
from koordinator.koordlet.kubelet_connection import PAUSE, ConnectKubelet, cgroup_driver, connect_when_there, timed
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
from koordinator.koordlet.retention import make_metric_cache
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.interface import Client
from koordinator.kube.servers import Servers
from koordinator.node.cgroup_layout import CgroupLayout, detect_version
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.core_scheduling import Prctl
from koordinator.node.cpu_time import ticks_per_second
from koordinator.node.errors import Unavailable
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.host import Host
from koordinator.node.kernel_files import KernelFileCodec
from koordinator.node.kernel_writer import MachineFiles
from koordinator.node.kubelet import Kubelet
from koordinator.node.nvml import GPU, NVML, open_nvml
from koordinator.node.pod_resources import pod_resources_socket
from koordinator.node.traffic_control import TrafficControlAccess

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

_DESCRIPTORS: Final = 2048
"""How many files of cgroups stay open: those of some 200 pods."""
_EARLY_LOOKS: Final = 10
_LOOK_AGAIN: Final = 0.2
"""Seconds."""
_AUDIT_SECONDS: Final = 5.0
_CACHE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What an agent is given."""

    client: Client
    connect_kubelet: ConnectKubelet
    clock: Clock
    random: Random
    metrics: Metrics
    open_nvml: Callable[[Host], NVML | Unavailable] = open_nvml
    """Asked for the GPUs of the node, where they are to be measured."""
    prctl: Prctl | None = None
    """The call for core scheduling of the kernel that runs the pods; None where they are simulated."""
    traffic_control: TrafficControlAccess | None = None
    """Of the network that the pods are in; None where it is simulated."""
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
        self._cache = make_metric_cache(options, given.clock)
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

    async def clean_up(self) -> int:
        """Instead of ``run``: take back what koordlet enforces; how many values are now as kubelet has them.

        CleanupError if some are not, or if the API server or kubelet does not answer in time.
        """
        switch_off(self._options.features)
        try:
            return (await within(self._given.clock, SECONDS, self._take_back())).check()
        except TimeoutError:
            raise CleanupError(f"the API server and kubelet have not answered within {SECONDS:g} s") from None
        finally:
            self._close_files()

    async def _take_back(self) -> Cleanup:
        options, given = self._options, self._given
        version = detect_version(options.host)
        async with asyncio.TaskGroup() as tasks:
            informer = tasks.create_task(self.states.run(), name="states informer")
            connection = await connect_when_there(self.states, given.connect_kubelet, given.clock)
            try:
                kubelet = Kubelet(timed(connection.get, self._given.clock, self.metrics.internal))
                layout = CgroupLayout(options.host.cgroup, version, await cgroup_driver(options, kubelet, version))
                info = NodeInfo(options.host, self.metrics, with_huge_pages=False)
                info.refresh()
                info.refresh_storage()
                while not self.states.has_synced_pods:
                    await self.states.sync_pods(kubelet, layout)
                    await self._given.clock.sleep(PAUSE)
                loops = self._enforce(layout, info, None)
                assert self.executor is not None
                return await take_back(loops, self.executor, self._given.clock)
            finally:
                await connection.close()
                informer.cancel()

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
        options, given = self._options, self._given
        version = detect_version(options.host)
        connection = await connect_when_there(self.states, given.connect_kubelet, given.clock)
        meter: CgroupMeter | None = None
        nvml = self._open_nvml()
        try:
            kubelet = Kubelet(timed(connection.get, self._given.clock, self.metrics.internal))
            driver = await cgroup_driver(options, kubelet, version)
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

        async def report_topology() -> None:
            # It needs what other loops read in their first rounds, which begin at the same time as its own. Until it is
            # known, containers start without being told which CPUs they share.
            await topology.report()
            for _ in range(_EARLY_LOOKS):
                if self.states.topology is not None:
                    break
                await given.clock.sleep(_LOOK_AGAIN)
                await topology.report()

        self._loops.add(Loop("node topology", report_topology, options.topology_interval, 30.0))
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
            logger.warning(
                "%s goes by waiting for CPUs alone without PSICollector and CPICollector",
                features.INTERFERENCE_DETECTION,
            )
        reader, interval = (
            CgroupReader(layout, os.sysconf("SC_PAGESIZE")),
            self._options.collectors.interference_interval,
        )
        sources = InterferenceSources(
            pods=lambda: self.states.pods,
            pressure=lambda: periodic.pressure,
            cycles=lambda: periodic.cycles,
            usage=RecentUsage(self._cache, self._given.clock, self._options.collect_interval),
            reader=reader,
            waits=CPUWaits(self._options.host, reader),
        )
        recorder = self._events.recorder(interference.COMPONENT)
        monitor = InterferenceMonitor(sources, recorder, self._given.clock, self.metrics, interval)
        self._loops.add(Loop("interference", monitor.observe, interval, 30.0))
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
            policy=EnforcedPolicy(asks_for_nothing=options.cleanup),
            usage=RecentUsage(self._cache, given.clock, options.collect_interval),
            layout=layout,
            executor=self.executor,
            topology=lambda: info.topology,
            block_devices=lambda: info.block_devices,
            normalization_ratio=ratio,
        )
        recorder = self._events.recorder(COMPONENT)
        count = count_evictions(self.metrics, given.clock)
        evictor = Evictor(
            EvictorDependencies(given.client, given.clock, recorder, self.audit, on_evicted=count),
            observe_only=options.enforcement.observe_only,
        )
        manager = QoSManager(
            options,
            sources,
            evictor,
            self.metrics,
            recorder,
            given.clock,
            given.random,
            given.client,
            self.audit,
            monitor,
        )
        hooks = HookSources(
            states=self.states,
            policy=sources.policy,
            layout=layout,
            executor=self.executor,
            events=self._events.recorder(runtime_hooks.COMPONENT),
            clock=given.clock,
            metrics=self.metrics,
            ratio=ratio,
            audit=self.audit,
            prctl=given.prctl,
            traffic_control=given.traffic_control,
        )
        self._hooks = RuntimeHooks(options, hooks)
        return [*manager.loops(), *self._hooks.loops()]

    async def _keep_audit(self) -> None:
        if self.audit is not None and self._pages is not None:
            self.audit.flush()
            self._pages.drop_expired()


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
