"""The hooks of one agent: what they go by, and the ways in which they reach pods."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from koordinator.base.deadline import unless
from koordinator.base.loops import Loop, LoopMetrics
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import PREFIX, Expiry, Rows
from koordinator.koordlet.enforce.decision_report import BUCKETS, DecisionReport, record_of_node
from koordinator.koordlet.enforce.hooks import core_sched, network_classes, pod_resctrl
from koordinator.koordlet.enforce.hooks.built_in import make_hooks
from koordinator.koordlet.enforce.hooks.contexts import PodContext
from koordinator.koordlet.enforce.hooks.core_sched_cookies import COOKIE_LABELS, CookieManager
from koordinator.koordlet.enforce.hooks.devices import rdma_hook
from koordinator.koordlet.enforce.hooks.hook_server import HookServer
from koordinator.koordlet.enforce.hooks.network_qos import NetworkQoS
from koordinator.koordlet.enforce.hooks.options import FAIL
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler
from koordinator.koordlet.enforce.hooks.resized_pods import ResizedPods
from koordinator.koordlet.enforce.hooks.rules import CPUPools, Rules, cpus_of
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources
from koordinator.koordlet.enforce.strategies.snapshot import STATIC, pod_reference, system_cpus
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.report.node_topology.description import NodeTopology
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.core_scheduling import CoreScheduling
from koordinator.node.host import exists
from koordinator.node.kernel_files import CPU_BVT, NET_CLASS, SCHED_CORE, SCHED_FEATURES, SCHED_GROUP_IDENTITY, Target
from koordinator.node.rdma import device_file, verbs_device
from koordinator.node.resctrl import CacheAllocation, read_allocation

if TYPE_CHECKING:
    from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet-runtimehook"
_DEADLINE: Final = 30.0
_HOOK_SERVER: Final = "hook server"
_RESIZED_PODS: Final = "resized pods"
_NRI_PLUGIN: Final = "NRI plugin"
_FORGOTTEN_AFTER: Final = 300.0
"""Seconds after which the counts of a group of pods end that has not changed."""


class RuntimeHooks:
    """Add its ``loops`` to the agent's, and let ``serve`` run beside them."""

    def __init__(
        self,
        context: AgentContext,
        sources: SnapshotSources,
        bandwidths: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """``bandwidths`` are bits per second, by UID, that pods may send at most, whatever they say themselves."""
        self._context = context
        self._bandwidths = bandwidths
        self._sources = sources
        self._nri: NRIPlugin | None = None
        self._has_no_groups = False
        """Whether the gate Resctrl is off, and nothing is left of it."""
        self._reported: dict[str, pod_resctrl.PodEvent] = {}
        """Events of the last round, by the pod's UID."""
        self._events = context.events.recorder(COMPONENT)
        given, options = context.given, context.options
        rdma = rdma_hook(partial(verbs_device, options.host), device_file)
        hooks = make_hooks(options.features, rdma, given.plugins.hooks)
        self._cookies = self._cookie_manager()
        self._network = self._network_qos()
        self.reconciler = Reconciler(
            hooks,
            sources,
            self.rules,
            DecisionReport(options.node_name, self._events),
            given.clock,
            self._durations("hook_reconciler", ("level", "resource_type", "status")),
            followers=(self._report_groups, *(() if self._cookies is None else (self._cookies.follow,))),
        )
        """What keeps running pods at what the hooks return."""
        self._resized = ResizedPods(sources.executor, given.clock)
        self._starting = StartingHooks(
            hooks,
            self.rules,
            self.reconciler,
            self._resized,
            given.clock,
            self._durations("hook", ("hook", "stage", "status")),
            fails=options.hooks.plugin_failure_policy == FAIL,
        )
        self._server = HookServer(context, self._starting)
        self._switched = asyncio.Event()
        """Set when it may have changed whether koordlet only observes."""
        self._export()

    @property
    def _options(self) -> Options:
        return self._context.options

    def rules(self) -> Rules:
        options, sources = self._options, self._sources
        topology = sources.states.topology
        executor, root = sources.executor, sources.layout.kubepods
        switch = executor.present(Target(SCHED_GROUP_IDENTITY))
        bvt = f"{sources.layout.folder('cpu', root)}/{CPU_BVT.key}"
        return Rules(
            policy=sources.policy.spec,
            pools=None if topology is None else self._pools(topology),
            cpus=frozenset() if topology is None else frozenset(cpu.cpu for cpu in topology.cpus.cpus),
            normalization_ratio=sources.normalization_ratio(),
            has_group_identity=switch is not None or exists(bvt),
            group_identity_switch=switch if isinstance(switch, int) else None,
            has_core_scheduling_switch=executor.present(Target(SCHED_CORE)) is not None,
            has_core_scheduling_feature=executor.present(Target(SCHED_FEATURES, part=core_sched.FEATURE_WORD))
            is not None,
            is_suppression_on=options.features.enabled(features.BE_CPU_SUPPRESS),
            shares_best_effort_pools=options.features.enabled(features.BE_CPU_MANAGER),
            unsets_quota=options.hooks.unsets_quota,
            caches=self._caches(),
            now=self._context.given.clock.now().timestamp(),
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
        """Serve runtimes and their proxies until cancelled; neither while koordlet only observes, since what hooks
        respond changes containers."""
        while True:
            self._switched.clear()
            if self._options.enforcement.observe_only:
                logger.info("observe only: neither runtime proxies nor NRI are served")
                self._server.withdraw()
                await self._switched.wait()
            elif not await unless(self._switched, self._serve(loops)):
                for name in (_HOOK_SERVER, _RESIZED_PODS, _NRI_PLUGIN):
                    loops.forget(name)
                self._nri = None

    async def _serve(self, loops: LoopMetrics) -> None:
        async with asyncio.TaskGroup() as tasks:

            def start(name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
                tasks.create_task(loops.loop(name).watch(body), name=name)

            start(_HOOK_SERVER, self._server.run)
            start(_RESIZED_PODS, self._resized.run)
            nri = self._options.hooks.nri
            if nri.socket:
                # With the library of protocol buffers, 3 MiB that nobody else needs.
                from koordinator.koordlet.enforce.hooks.nri_plugin import NRIPlugin

                socket = os.path.join(self._options.host.var_run, nri.socket)
                self._nri = NRIPlugin(replace(nri, socket=socket), self._starting, self._context.given.clock)
                start(_NRI_PLUGIN, self._nri.run)

    def only_observe(self, is_only: bool) -> None:
        """Whether nothing is done, nor anybody served, from now on."""
        for each in (self._cookies, self._network):
            if each is not None:
                each.only_observe(is_only)
        self._switched.set()

    def modes(self) -> dict[str, bool]:
        """Whether hooks are called: by runtime proxies, by the runtime itself, and by going over all pods."""
        return {
            "proxy": self._server.is_serving,
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

    def _cookie_manager(self) -> CookieManager | None:
        context, is_enabled = self._context, self._options.features.enabled(features.CORE_SCHED)
        if context.given.prctl is None:
            if is_enabled:
                logger.warning("no core scheduling: the kernel of this node is simulated")
            return None
        count = context.metrics.counter(
            "core_sched_cookie_manage_status",
            "the manage status of the core scheduling cookie",
            ("core_sched_group", "status"),
            Expiry(context.given.clock, _FORGOTTEN_AFTER),
        )
        manager = CookieManager(
            CoreScheduling(context.given.prctl),
            self._sources.reader.processes,
            own_process=os.getpid(),
            is_enabled=is_enabled,
            observe_only=self._options.enforcement.observe_only,
            count=count.inc,
            record=partial(self._record, core_sched.OWNER),
        )
        context.metrics.latest(
            "container_core_sched_cookie", "the core scheduling cookie of the container", COOKIE_LABELS, manager.rows
        )
        return manager

    def _network_qos(self) -> NetworkQoS | None:
        """None where nothing is to be done: with the gate off, until koordlet takes back what it enforces."""
        options, sources = self._options, self._sources
        is_enabled = options.features.enabled(features.TC_NETWORK_QOS)
        if not is_enabled and not options.cleanup:
            return None
        traffic_control, states = self._context.given.traffic_control, sources.states
        if traffic_control is None:
            if is_enabled:
                logger.warning("no network QoS: the network of this node is simulated")
            return None

        def pods() -> list[NodePod] | None:
            return [pod for pod in states.pods if not pod.has_finished] if states.has_synced_pods else None

        return NetworkQoS(
            traffic_control,
            lambda: sources.policy.spec,
            pods,
            self._has_net_cls,
            self._bandwidths,
            is_enabled=is_enabled,
            observe_only=options.enforcement.observe_only,
            record=partial(self._record, network_classes.OWNER),
        )

    def _has_net_cls(self) -> bool:
        layout = self._sources.layout
        return layout.version is CgroupVersion.V1 and exists(
            f"{layout.folder('net_cls', layout.kubepods)}/{NET_CLASS.key}"
        )

    def _record(self, owner: str, message: str) -> None:
        logger.info("%s: %s", owner, message)
        record_of_node(self._context.audit, owner, message)

    def _report_groups(self, pods: Sequence[PodContext], rules: Rules) -> None:
        """Pods with a part of the cache get one event that says whether there was a group left for them."""
        reported: dict[str, pod_resctrl.PodEvent] = {}
        for pod in pods if rules.caches is not None else ():
            event = pod_resctrl.event_of(pod, rules, self._sources.executor.explain(pod_resctrl.tellable(pod)))
            if event is not None:
                reported[pod.uid] = event
                if self._reported.get(pod.uid) != event:
                    kind, reason, note = event
                    about = pod_reference(pod.namespace, pod.name, pod.uid)
                    self._events.event(about, kind, reason, pod_resctrl.OWNER, note)
        self._reported = reported

    def _durations(self, name: str, labels: tuple[str, ...]) -> Callable[[str, str, str, float], None]:
        node = self._options.node_name
        durations = self._context.metrics.internal.histogram(
            f"{PREFIX}runtime_{name}_invoked_duration_milliseconds",
            "time duration of invocations of runtime hooks, in milliseconds",
            ("node", *labels),
            buckets=BUCKETS,
        )
        return lambda one, two, three, seconds: durations.labels(node, one, two, three).observe(seconds * 1000)

    def _export(self) -> None:
        metrics = self._context.metrics
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
        for text, is_best_effort in (("", False), ("be_", True)):
            cpus = partial(self._shared_cpus, is_best_effort)
            name = f"cpuset_{text}share_pool"
            metrics.latest(f"{name}_cpu_cores", "Number of CPU cores that pods share", (), partial(_count_of, cpus))
            if self._options.features.enabled(features.PER_CPU_METRIC):
                metrics.latest(f"{name}_info", "The CPUs that pods share", ("cpu",), partial(_one_for_each, cpus))

    def _shared_cpus(self, is_best_effort: bool) -> list[int] | None:
        """None while the topology of the node is not known."""
        topology = self._sources.states.topology
        if topology is None:
            return None
        return sorted(cpus_of(topology.shares.be_pools if is_best_effort else topology.shares.ls_pools))


def _count_of(cpus: Callable[[], list[int] | None]) -> Rows:
    found = cpus()
    return [] if found is None else [((), float(len(found)))]


def _one_for_each(cpus: Callable[[], list[int] | None]) -> Rows:
    return [((str(cpu),), 1.0) for cpu in cpus() or ()]
