"""The hooks of one agent: what they go by, and the ways in which they reach pods."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.meta import ObjectReference
from koordinator.base.clock import Clock
from koordinator.base.loops import Loop, LoopMetrics
from koordinator.base.metrics import exponential_buckets
from koordinator.base.said_once import SaidOnce
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import PREFIX, AgentMetrics, Expiry, Rows
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks import core_sched, network_classes, pod_resctrl
from koordinator.koordlet.enforce.hooks.contexts import PodContext
from koordinator.koordlet.enforce.hooks.core_sched_cookies import COOKIE_LABELS, CookieManager
from koordinator.koordlet.enforce.hooks.network_qos import NetworkQoS, NetworkSources
from koordinator.koordlet.enforce.hooks.normalization_ratio import NormalizationRatio
from koordinator.koordlet.enforce.hooks.proxy_server import handlers
from koordinator.koordlet.enforce.hooks.rdma_devices import RDMADeviceInject
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler, ReconcilerSources
from koordinator.koordlet.enforce.hooks.registration import RegistrationError, clear_socket, register
from koordinator.koordlet.enforce.hooks.registry import Hook, make_hooks
from koordinator.koordlet.enforce.hooks.resized_pods import ResizedPods
from koordinator.koordlet.enforce.hooks.rules import CPUPools, Rules, cpus_of
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.koordlet.enforce.policy import EnforcedPolicy
from koordinator.koordlet.enforce.strategies.snapshot import system_cpus
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.kubelet_bandwidths import KubeletBandwidths
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.audit.log import AuditEvent, AuditLog
from koordinator.koordlet.report.node_topology.description import NodeTopology
from koordinator.koordlet.report.node_topology.kubelet_cpus import STATIC
from koordinator.kube.events import EventRecorder
from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.core_scheduling import CoreScheduling, Prctl
from koordinator.node.grpc_server import GrpcServer
from koordinator.node.host import exists
from koordinator.node.kernel_files import CPU_BVT, NET_CLASS, SCHED_CORE, SCHED_FEATURES, SCHED_GROUP_IDENTITY, Target
from koordinator.node.rdma import device_file, verbs_device
from koordinator.node.resctrl import CacheAllocation, read_allocation
from koordinator.node.traffic_control import TrafficControlAccess

if TYPE_CHECKING:
    from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet-runtimehook"
_AUDIT_LEVEL: Final = 3
_DEADLINE: Final = 30.0
_RETRY: Final = 10.0
"""Seconds until it is tried again to serve at a socket."""
_PATIENCE: Final = 30.0
"""Seconds that proxies are not served because it is not known which CPUs pods share."""
_FORGOTTEN_AFTER: Final = 300.0
"""Seconds after which the counts of a group of pods end that has not changed."""
_LOOK_AGAIN: Final = 0.2
_BUCKETS: Final = exponential_buckets(0.01, 4, 8)
"""Milliseconds."""


@dataclass(frozen=True, slots=True)
class HookSources:
    """What the hooks of an agent are made of."""

    states: StatesInformer
    policy: EnforcedPolicy
    layout: CgroupLayout
    executor: Executor
    bandwidths: KubeletBandwidths
    events: EventRecorder
    clock: Clock
    metrics: AgentMetrics
    ratio: NormalizationRatio
    connections: ProgramConnections
    audit: AuditLog | None = None
    installed: Sequence[Hook] = ()
    """Of other packages."""
    prctl: Prctl | None = None
    """Of the kernel that runs the pods; None where they are simulated, and their processes are no processes."""
    traffic_control: TrafficControlAccess | None = None
    """Of the network that the pods are in; None where it is simulated."""


class RuntimeHooks:
    """Add its ``loops`` to the agent's, and let ``serve`` run beside them."""

    def __init__(self, options: Options, sources: HookSources) -> None:
        self._options = options
        self._sources = sources
        self._unserved = SaidOnce(logger)
        self._is_serving = False
        self._nri: NRIPlugin | None = None
        self._has_no_groups = False
        """Whether the gate Resctrl is off, and nothing is left of it."""
        self._reported: dict[str, pod_resctrl.PodEvent] = {}
        """Events of the last round, by the pod's UID."""
        host = options.host
        rdma = RDMADeviceInject(partial(verbs_device, host), device_file)
        self._hooks = make_hooks(options.features, rdma, sources.installed)
        reader = CgroupReader(sources.layout, os.sysconf("SC_PAGESIZE"))
        reconciling = ReconcilerSources(
            pods=lambda: sources.states.pods,
            rules=self.rules,
            processes=reader.processes,
            tasks=reader.tasks,
            layout=sources.layout,
            executor=sources.executor,
            bandwidths=sources.bandwidths,
            clock=sources.clock,
            events=sources.events,
        )
        self._cookies = self._cookie_manager(reconciling.processes)
        self._network = self._network_qos()
        self.reconciler = Reconciler(
            self._hooks,
            reconciling,
            self._durations("hook_reconciler", ("level", "resource_type", "status")),
            followers=(self._report_groups, *(() if self._cookies is None else (self._cookies.follow,))),
        )
        """What keeps running pods at what the hooks return."""
        self._resized = ResizedPods(sources.executor, sources.clock)
        self._starting = StartingHooks(
            self._hooks,
            self.rules,
            self.reconciler,
            self._resized,
            sources.clock,
            self._durations("hook", ("hook", "stage", "status")),
            fails=options.hooks.hooks_fail,
        )
        self._export()

    def rules(self) -> Rules:
        """As of now."""
        options, sources = self._options, self._sources
        topology = sources.states.topology
        executor, root = sources.executor, sources.layout.kubepods
        switch = executor.present(Target(SCHED_GROUP_IDENTITY))
        bvt = f"{sources.layout.folder('cpu', root)}/{CPU_BVT.key}"
        return Rules(
            policy=sources.policy.spec,
            pools=None if topology is None else self._pools(topology),
            cpus=frozenset() if topology is None else frozenset(cpu.cpu for cpu in topology.cpus.cpus),
            normalization_ratio=sources.ratio(),
            has_group_identity=switch is not None or exists(bvt),
            group_identity_switch=switch if isinstance(switch, int) else None,
            has_core_scheduling_switch=executor.present(Target(SCHED_CORE)) is not None,
            has_core_scheduling_feature=executor.present(Target(SCHED_FEATURES, part=core_sched.FEATURE_WORD))
            is not None,
            is_suppression_on=options.features.enabled(features.BE_CPU_SUPPRESS),
            shares_best_effort_pools=options.features.enabled(features.BE_CPU_MANAGER),
            unsets_quota=options.hooks.unsets_quota,
            caches=self._caches(),
            now=sources.clock.now().timestamp(),
            knows_pods=sources.states.has_synced_pods,
            has_network_classes=self._network is not None and self._has_net_cls(),
            network_classes=self._network.minors if self._network is not None else {},
            hami_library=options.hooks.hami_library,
        )

    def _caches(self) -> CacheAllocation | None:
        """With the gate off, only until no pod has a group any more: it takes long to read on machines of many CPUs."""
        if self._has_no_groups:
            return None
        found = read_allocation(self._options.host)
        is_enabled = self._options.features.enabled(features.RESCTRL)
        self._has_no_groups = not is_enabled and not pod_resctrl.release(Rules(caches=found))
        return found

    def loops(self) -> list[Loop]:
        """That of the node's network, where it is enabled."""
        if self._network is None:
            return []
        return [Loop("network QoS", self._network.reconcile, self._options.hooks.reconcile_interval, _DEADLINE)]

    async def serve(self, loops: LoopMetrics) -> None:
        """Serve runtimes and their proxies until cancelled; neither with ``--observe-only``, since answers of hooks
        change containers."""
        if self._options.enforcement.observe_only:
            logger.info("observe only: neither runtime proxies nor NRI are served")
            return
        async with asyncio.TaskGroup() as tasks:

            def start(name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
                tasks.create_task(loops.loop(name).watch(body), name=name)

            start("hook server", self._serve_proxies)
            start("resized pods", self._resized.run)
            nri = self._options.hooks.nri
            if nri.socket:
                # With the library of protocol buffers, 3 MiB that nobody else needs.
                from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin

                socket = os.path.join(self._options.host.var_run, nri.socket)
                self._nri = NRIPlugin(replace(nri, socket=socket), self._starting, self._sources.clock)
                start("NRI plugin", self._nri.run)

    async def _serve_proxies(self) -> None:
        """What keeps it from that is said, and tried again."""
        if self._options.hooks.socket:
            await self._until_pools_are_known()
        while self._options.hooks.socket:
            try:
                await self._serve_once(self._options.hooks.socket)
            except* (RegistrationError, OSError) as errors:
                text = "; ".join(str(error) for error in errors.exceptions)
                with self._unserved.round():
                    self._unserved.say(f"runtime proxies are not served: {text}")
            await self._sources.clock.sleep(_RETRY)

    async def _until_pools_are_known(self) -> None:
        """Until then a container would get no CPUs from the hooks, and could start on those of others.

        A node of which they cannot be found out is served after a while all the same.
        """
        clock, states = self._sources.clock, self._sources.states
        end = clock.monotonic() + _PATIENCE
        while states.topology is None and clock.monotonic() < end:
            await clock.sleep(_LOOK_AGAIN)
        if states.topology is None:
            logger.warning("runtime proxies are served although it is not known yet which CPUs pods share")

    async def _serve_once(self, path: str) -> None:
        clear_socket(Path(path))

        def listening() -> None:
            register(self._options.hooks, self._hooks.stages)
            self._is_serving = True
            self._unserved.end()
            logger.info("runtime proxies are served at %s: %s", path, ", ".join(self._hooks.stages))

        try:
            await GrpcServer(handlers(self._starting), self._sources.connections).run(path, listening)
        finally:
            self._is_serving = False

    def modes(self) -> dict[str, bool]:
        """Whether hooks are called: by runtime proxies, by the runtime itself, and by going over all pods."""
        return {
            "proxy": self._is_serving,
            "nri": self._nri is not None and self._nri.is_connected,
            "reconciler": self._options.hooks.reconcile_interval > 0,
        }

    def _pools(self, topology: NodeTopology) -> CPUPools:
        node = self._sources.states.node
        return CPUPools(
            shared=topology.shares.ls_pools,
            best_effort=topology.shares.be_pools,
            system=frozenset() if node is None else system_cpus(node),
            is_kubelet_static=topology.kubelet.policy == STATIC,
        )

    def _cookie_manager(self, processes: Callable[[str], list[int]]) -> CookieManager | None:
        sources, is_enabled = self._sources, self._options.features.enabled(features.CORE_SCHED)
        if sources.prctl is None:
            if is_enabled:
                logger.warning("no core scheduling: the kernel of this node is simulated")
            return None
        expiry = Expiry(sources.clock, _FORGOTTEN_AFTER)
        count = sources.metrics.counter(
            "core_sched_cookie_manage_status",
            "the manage status of the core scheduling cookie",
            ("core_sched_group", "status"),
            expiry,
        )
        manager = CookieManager(
            CoreScheduling(sources.prctl),
            processes,
            own_process=os.getpid(),
            is_enabled=is_enabled,
            observe_only=self._options.enforcement.observe_only,
            count=count.inc,
            record=partial(self._record, core_sched.OWNER),
        )
        sources.metrics.latest(
            "container_core_sched_cookie", "the core scheduling cookie of the container", COOKIE_LABELS, manager.rows
        )
        return manager

    def _network_qos(self) -> NetworkQoS | None:
        """None where nothing is to be done: with the gate off, until koordlet takes back what it enforces."""
        options, sources = self._options, self._sources
        is_enabled = options.features.enabled(features.TC_NETWORK_QOS)
        if not is_enabled and not options.cleanup:
            return None
        if sources.traffic_control is None:
            if is_enabled:
                logger.warning("no network QoS: the network of this node is simulated")
            return None
        states = sources.states

        def pods() -> list[NodePod] | None:
            return [pod for pod in states.pods if not pod.has_finished] if states.has_synced_pods else None

        return NetworkQoS(
            sources.traffic_control,
            NetworkSources(lambda: sources.policy.spec, pods, self._has_net_cls),
            is_enabled=is_enabled,
            observe_only=options.enforcement.observe_only,
            record=partial(self._record, network_classes.OWNER),
        )

    def _has_net_cls(self) -> bool:
        layout = self._sources.layout
        return layout.version is CgroupVersion.V1 and exists(
            f"{layout.folder('net_cls', layout.kubepods)}/{NET_CLASS.key}"
        )

    def _record(self, reason: str, message: str) -> None:
        logger.info("%s: %s", reason, message)
        if self._sources.audit is not None:
            self._sources.audit.record(AuditEvent(type="node", reason=reason, message=message), _AUDIT_LEVEL)

    def _report_groups(self, pods: Sequence[PodContext], rules: Rules) -> None:
        """Pods with a part of the cache get one event that says whether there was a group left for them."""
        reported: dict[str, pod_resctrl.PodEvent] = {}
        for pod in pods if rules.caches is not None else ():
            event = pod_resctrl.event_of(pod, rules, self._sources.executor.explain(pod_resctrl.tellable(pod)))
            if event is not None:
                reported[pod.uid] = event
                if self._reported.get(pod.uid) != event:
                    regarding = ObjectReference("v1", "Pod", pod.namespace, pod.name, uid=pod.uid)
                    kind, reason, note = event
                    self._sources.events.event(regarding, kind, reason, pod_resctrl.OWNER, note)
        self._reported = reported

    def _durations(self, name: str, labels: tuple[str, ...]) -> Callable[[str, str, str, float], None]:
        node = self._options.node_name
        durations = self._sources.metrics.internal.histogram(
            f"{PREFIX}runtime_{name}_invoked_duration_milliseconds",
            "time duration of invocations of runtime hooks, in milliseconds",
            ("node", *labels),
            buckets=_BUCKETS,
        )
        return lambda one, two, three, seconds: durations.labels(node, one, two, three).observe(seconds * 1000)

    def _export(self) -> None:
        metrics, states = self._sources.metrics, self._sources.states
        metrics.latest(
            "container_oom_score_adj",
            "oom_score_adj that the annotations of pods request",
            ("pod_namespace", "pod_name", "pod_uid", "container_name"),
            lambda: [(labels, float(score)) for labels, score in self.reconciler.oom_scores.items()],
        )
        metrics.latest(
            "runtime_hooks_mode",
            "1 for each mode in which runtime hooks are called now: by runtime proxies, by NRI, by the reconciler",
            ("mode",),
            lambda: [((mode,), float(is_active)) for mode, is_active in self.modes().items()],
        )
        per_cpu = self._options.features.enabled(features.PER_CPU_METRIC)
        for kind, text in (("ls", ""), ("be", "be_")):

            def cpus(kind: str = kind) -> list[int]:
                if states.topology is None:
                    return []
                shares = states.topology.shares
                return sorted(cpus_of(shares.ls_pools if kind == "ls" else shares.be_pools))

            def cores(cpus: Callable[[], list[int]] = cpus) -> Rows:
                return [((), float(len(cpus())))] if states.topology is not None else []

            def info(cpus: Callable[[], list[int]] = cpus) -> Rows:
                return [((str(cpu),), 1.0) for cpu in cpus()]

            name = f"cpuset_{text}share_pool"
            metrics.latest(f"{name}_cpu_cores", "Number of CPU cores that pods share", (), cores)
            if per_cpu:
                metrics.latest(f"{name}_info", "The CPUs that pods share", ("cpu",), info)
