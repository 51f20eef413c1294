"""The running agent: in which order its parts start, and its loops."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.lifecycle import Lifecycle
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet import configuration, features
from koordinator.koordlet.agent_context import AgentContext, Dependencies
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.configuration import Configuration
from koordinator.koordlet.enforce.cleanup import SECONDS, Cleanup, CleanupError, switch_off, take_back
from koordinator.koordlet.enforce.controller_loops import ControllerLoops
from koordinator.koordlet.enforce.enforcement import Enforcement
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.executor.explanation_page import handler as explanation_handler
from koordinator.koordlet.observe.interference.monitor import InterferenceMonitor
from koordinator.koordlet.observe.metric_cache.backends import INTERVAL, Backend, restore
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache, retentions
from koordinator.koordlet.observe.metric_cache.sinks import Sink, SinkFeed
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.observe.observation import Observation
from koordinator.koordlet.observe.prediction.server import PredictionServer
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.kubelet_connection import PAUSE, KubeletFollower, connect_when_there, timed
from koordinator.koordlet.pods.lifecycle_events import PodLifecycleEvents
from koordinator.koordlet.pods.listing import PodListing
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.audit.log import AuditLog
from koordinator.koordlet.report.audit.pages import AuditPages
from koordinator.koordlet.report.audit.pages import handler as audit_handler
from koordinator.koordlet.report.devices.reporter import DeviceReporter
from koordinator.koordlet.report.node_metric_reporter import NodeMetricReporter
from koordinator.koordlet.report.node_topology.reporter import TopologyReporter
from koordinator.koordlet.report.pod_resources_proxy import PodResourcesProxy
from koordinator.koordlet.report.resource_metrics import (
    export_cache,
    export_features,
    export_listing,
    export_plugins,
    export_reading,
    export_resources,
    export_usage,
)
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.health import HealthChecks
from koordinator.kube.servers import Servers
from koordinator.node.cgroup_layout import CgroupLayout, detect_version
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import Unavailable
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.kubelet import Kubelet
from koordinator.node.nvml import NVML
from koordinator.node.pod_resources import pod_resources_socket

if TYPE_CHECKING:
    from koordinator.kube.serving import HealthServer

logger = logging.getLogger(__name__)

_DESCRIPTORS: Final = 2048
"""How many files of cgroups stay open: those of some 200 pods."""
_AUDIT_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 3.0


class Agent:
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
        given.plugins.switch(options.plugins)
        self._cache = RingMetricCache(retentions(options), options.cache_bytes)
        self._backend = self._open_backend()
        sinks = [*given.plugins.sinks, *self._sink_of_backend()]
        self._feeds = [SinkFeed(each, options.node_name, self._cache) for each in sinks]
        self.loops = LoopSupervisor(clock=given.clock, random=given.random, metrics=given.metrics)
        """Of all parts."""
        self._replacing = asyncio.Lock()
        """Held while loops are replaced: those of the enforcement must not change between the two looks at them."""
        self._enforcement: Enforcement | None = None
        """None until it is known where the kernel's files are."""
        self._events = EventBroadcaster(
            given.client,
            host=options.node_name,
            program="koordlet",
            clock=given.clock,
            random=given.random,
            metrics=given.metrics,
        )
        self.metrics = AgentMetrics(given.metrics, options.node_name)
        """What is served: the given registry, and a second one."""
        started = given.clock.now().timestamp()
        self.metrics.value("start_time", "the start time of koordlet", lambda: started)
        is_audited = options.features.enabled(features.AUDIT_EVENTS)
        self.audit = AuditLog(options.folders.audit, options.audit, given.clock) if is_audited else None
        """Where what is done to the node is recorded; None unless the gate AuditEvents is on."""
        self._pages = None if self.audit is None else AuditPages(self.audit, options.audit, given.clock)
        self._connections = ProgramConnections(self.metrics.both, given.clock)
        table = UsageTable(
            options.collect_interval,
            max(options.memory_interval, options.collect_interval),
            with_page_cache=options.with_page_cache,
        )
        self._context = AgentContext(
            options, given, self.states, table, self._cache, self.metrics, self._events, self.audit, self._connections
        )
        recorder = self._events.recorder(configuration.COMPONENT)
        self._configuration = Configuration(options, self.states.informers, recorder, given.clock)
        self._configuration.export(self.metrics)
        export_resources(self.metrics, self.states)
        export_usage(self.metrics, table)
        export_features(self.metrics, options.host)
        export_cache(self.metrics, self._cache)
        export_plugins(self.metrics, given.plugins)

    def _open_backend(self) -> Backend | None:
        """With what it has kept in the cache already; None where there is none."""
        options = self._options
        if options.folders.samples is None or options.cleanup:
            return None
        kept = retentions(options)
        backend = self._given.plugins.open_backend(options.folders.samples, kept)
        restore(self._cache, backend.read(), kept, round(self._given.clock.now().timestamp() * 1000))
        return backend

    def _sink_of_backend(self) -> Sequence[Sink]:
        backend = self._backend
        return () if backend is None else (Sink("samples", INTERVAL, lambda _, rounds: backend.write(rounds)),)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. FileError if no cgroup hierarchy is mounted, OSError if an address is taken."""
        servers, health = Servers(self.metrics.both, self._given.clock, self._connections), HealthChecks()
        # A restart would not bring back an API server or a kubelet that is away, so the other paths stay healthy.
        health.add("loops", self.loops.check, "readyz")
        servers.add(self._options.listen, self._add_routes, health=health)
        secure = self._options.secure.listen_address()
        servers.add(secure, self._add_routes, health=health, secure=self._given.secure)
        unserved = "profiles are not served, see --pprof-addr"
        servers.add(self._options.profiles, profiles=True, dispensable=unserved)
        lifecycle = Lifecycle(self._given.clock)
        lifecycle.serve(servers)
        lifecycle.background("states informer", self.states.run)
        lifecycle.background("events", self._events.run)
        lifecycle.work("measure and report", self._measure_and_report)
        lifecycle.at_end(self._write_last_events)
        try:
            await lifecycle.run(stop)
        finally:
            self._close_files()

    async def _write_last_events(self) -> None:
        if self._enforcement is not None:
            self._enforcement.finish()
        await self._events.flush(_FLUSH_SECONDS)

    async def clean_up(self) -> int:
        """Instead of ``run``: take back what koordlet enforces; how many values are now as kubelet has them.

        CleanupError if some are not, or if the API server or the kubelet does not respond in time.
        """
        try:
            return (await within(self._given.clock, SECONDS, self._take_back())).check()
        except TimeoutError:
            raise CleanupError(f"the API server and kubelet have not responded within {SECONDS:g} s") from None
        finally:
            self._close_files()

    async def _take_back(self) -> Cleanup:
        options, given = self._options, self._given
        async with asyncio.TaskGroup() as tasks:
            informer = tasks.create_task(self.states.run(), name="states informer")
            connection = await connect_when_there(self.states, given.connect_kubelet, given.clock)
            try:
                found = await self._configuration.first()
                # Who asks for it means it: a node that its ConfigMap has only observed is to be cleaned up, too.
                self._go_by(replace(found, enforcement=replace(found.enforcement, observe_only=False)))
                switch_off(self._context.options.features, options.features)
                kubelet = Kubelet(timed(connection.get, self._given.clock, self.metrics.internal))
                layout = await KubeletFollower(options, kubelet, self.states, given.clock).layout()
                info = NodeInfo(options.host, self.metrics, with_huge_pages=False)
                info.refresh()
                info.refresh_storage()
                listing = PodListing(layout, self._reader(layout).processes)
                while not self.states.has_synced_pods:
                    await self.states.sync_pods(kubelet, listing)
                    await self._given.clock.sleep(PAUSE)
                self._look_at_topology(info)
                enforcement = Enforcement(self._context, layout, info, None, self.loops.metrics)
                return await take_back(enforcement, self._given.clock)
            finally:
                await connection.close()
                informer.cancel()

    def _look_at_topology(self, info: NodeInfo) -> None:
        """Which CPUs there are, and whether kubelet itself gives any to pods."""
        try:
            TopologyReporter(self._context, info).look()
        except KoordinatorError as error:
            logger.warning("pods keep the CPUs that they have: %s", error)

    def _reader(self, layout: CgroupLayout) -> CgroupReader:
        return CgroupReader(layout, os.sysconf("SC_PAGESIZE"))

    def _close_files(self) -> None:
        with ExitStack() as closing:
            if self.audit is not None:
                closing.callback(self.audit.close)
            if self._pages is not None:
                closing.callback(self._pages.close)
            if self._backend is not None:
                closing.callback(self._backend.close)
            for feed in self._feeds:
                feed.write()

    def _add_routes(self, server: HealthServer) -> None:
        server.add_metrics("/internal-metrics", self.metrics.internal)
        server.add_metrics("/external-metrics", self.metrics.external)
        server.add_route("/enforcement", explanation_handler(self._executor))
        if self._options.features.enabled(features.AUDIT_EVENTS_HTTP_HANDLER):
            server.add_route("/events", audit_handler(self._pages))

    def _executor(self) -> Executor | None:
        return None if self._enforcement is None else self._enforcement.executor

    async def _measure_and_report(self) -> None:
        options, given = self._options, self._given
        # What is not mounted now will not be later: to say so need not wait for the kubelet.
        detect_version(options.host)
        connection = await connect_when_there(self.states, given.connect_kubelet, given.clock)
        meter: CgroupMeter | None = None
        nvml = self._open_nvml()
        try:
            kubelet = Kubelet(timed(connection.get, self._given.clock, self.metrics.internal))
            follower = KubeletFollower(options, kubelet, self.states, given.clock)
            layout = await follower.layout()
            self._go_by(await self._configuration.first())
            logger.info(
                "cgroup version %d, driver %s, pods in %s", layout.version.value, layout.driver, layout.kubepods
            )
            meter = CgroupMeter(layout, os.sysconf("SC_PAGESIZE"), _DESCRIPTORS)
            listing = PodListing(layout, self._reader(layout).processes)
            export_listing(self.metrics, listing)
            sync_pods = partial(self.states.sync_pods, kubelet, listing)
            enforcement = self._add_loops(kubelet, sync_pods, layout, meter, nvml)
            reconfigure = partial(self._reconfigure, enforcement)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.loops.run(), name="loops")
                tasks.create_task(self._configuration.follow(reconfigure), name="configuration")
                tasks.create_task(follower.follow(layout), name="kubelet's configuration")
                tasks.create_task(enforcement.hooks.serve(self.loops.metrics), name="runtime hooks")
                follow_changes = self.loops.metrics.loop("changed pods").watch(enforcement.follow_changes)
                tasks.create_task(follow_changes, name="changed pods")
                if given.plugins.controllers:
                    tasks.create_task(self._start_controllers(enforcement.controllers), name="start of controllers")
                if self._options.features.enabled(features.POD_RESOURCES_PROXY):
                    serve = partial(self._serve_pod_resources, kubelet)
                    tasks.create_task(self.loops.metrics.loop("pod resources").watch(serve), name="pod resources")
                if self._options.kubelet.sync_interval > 0:
                    events = PodLifecycleEvents(
                        layout, self._given.clock, self.loops.metrics, sync_pods, enforcement.executor.look_again
                    )
                    tasks.create_task(events.run(), name="pod lifecycle events")
        finally:
            if self._enforcement is not None:
                await self._enforcement.controllers.close()
            if meter is not None:
                meter.close()
            if nvml is not None:
                nvml.close()
            await connection.close()

    def _go_by(self, options: Options) -> None:
        if options.verbosity != self._context.options.verbosity:
            self._given.set_verbosity(options.verbosity)
        if options.plugins != self._context.options.plugins:
            self._given.plugins.switch(options.plugins)
        self._context.options = options

    async def _reconfigure(self, enforcement: Enforcement, options: Options) -> None:
        async with self._replacing:
            before = [loop.name for loop in enforcement.loops()]
            self._go_by(options)
            await enforcement.reconfigure()
            self.loops.replace(before, enforcement.loops())

    async def _start_controllers(self, controllers: ControllerLoops) -> None:
        await controllers.has_pods.wait()
        async with self._replacing:
            self.loops.replace((), controllers.start())

    async def _serve_pod_resources(self, kubelet: Kubelet) -> None:
        upstream = GrpcClient(Path(pod_resources_socket(self._options.host)))
        folder = self._options.folders.pod_resources
        try:
            await PodResourcesProxy(upstream, kubelet.pods, folder, self._connections).run()
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

    def _add_loops(
        self,
        kubelet: Kubelet,
        sync_pods: Callable[[], Awaitable[None]],
        layout: CgroupLayout,
        meter: CgroupMeter,
        nvml: NVML | None,
    ) -> Enforcement:
        observation = Observation(self._context, sync_pods, layout, meter, nvml)
        export_reading(self.metrics, meter, observation.advisor)
        loops = observation.loops()
        if self._pages is not None:
            loops.append(Loop("audit", self._keep_audit, _AUDIT_SECONDS, 30.0))
        loops += [feed.loop for feed in self._feeds]
        monitor = self._detect_interference(observation)
        if monitor is not None:
            loops.append(monitor.loop)
        metrics = self.loops.metrics
        enforcement = self._enforcement = Enforcement(self._context, layout, observation.info, monitor, metrics)
        loops += enforcement.loops()
        if self._options.topology_interval > 0:
            loops.append(TopologyReporter(self._context, observation.info, self._configuration.report).loop)
            if self._options.features.enabled(features.ACCELERATORS):
                loops.append(DeviceReporter(self._context, nvml).loop)
        prediction = PredictionServer(self._context)
        loops += prediction.loops()
        if self._options.report:
            remedies = enforcement.remedies.report if enforcement.remedies is not None else None
            reports = (enforcement.suppression, monitor, remedies)
            extensions = [each.extensions for each in reports if each is not None]
            loops.append(NodeMetricReporter(self._context, observation, prediction.forecast_prod, extensions).loop)
        for loop in loops:
            self.loops.add(loop)
        return enforcement

    def _detect_interference(self, observation: Observation) -> InterferenceMonitor | None:
        """What looks for it; None unless the gate is on."""
        gates = self._options.features
        if not gates.enabled(features.INTERFERENCE_DETECTION):
            return None
        if not gates.enabled(features.PSI_COLLECTOR) and not gates.enabled(features.CPI_COLLECTOR):
            logger.warning(
                "%s goes by waiting for CPUs alone without PSICollector and CPICollector",
                features.INTERFERENCE_DETECTION,
            )
        return InterferenceMonitor(self._context, observation)

    async def _keep_audit(self) -> None:
        if self.audit is not None and self._pages is not None:
            self.audit.flush()
            self._pages.drop_expired()
