"""The hooks of one agent: what they go by, and the ways in which they reach pods."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.feature_gates import FeatureGates
from koordinator.base.loops import Loop
from koordinator.base.metrics import exponential_buckets
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import PREFIX, AgentMetrics, Rows
from koordinator.koordlet.command_line import Options
from koordinator.koordlet.executor.executor import Executor
from koordinator.koordlet.hooks.contexts import HookError
from koordinator.koordlet.hooks.cpu_normalization import normalization_ratio
from koordinator.koordlet.hooks.nri_plugin import NRIPlugin
from koordinator.koordlet.hooks.proxy_server import handlers
from koordinator.koordlet.hooks.rdma_devices import RDMADeviceInject
from koordinator.koordlet.hooks.reconciler import Reconciler, ReconcilerSources
from koordinator.koordlet.hooks.registration import RegistrationError, clear_socket, register
from koordinator.koordlet.hooks.registry import make_hooks
from koordinator.koordlet.hooks.rules import CPUPools, Rules, cpus_of
from koordinator.koordlet.hooks.starting import StartingHooks
from koordinator.koordlet.node_topology.description import NodeTopology
from koordinator.koordlet.node_topology.kubelet_cpus import STATIC
from koordinator.koordlet.policy import EnforcedPolicy
from koordinator.koordlet.qos.snapshot import system_cpus
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.events import EventRecorder
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.grpc_server import GrpcServer
from koordinator.node.host import exists
from koordinator.node.kernel_files import CPU_BVT, SCHED_CORE, SCHED_GROUP_IDENTITY, Target
from koordinator.node.rdma import device_file, verbs_device

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet-runtimehook"
_DEADLINE: Final = 30.0
_RETRY: Final = 10.0
"""Seconds until it is tried again to serve at a socket."""
_PATIENCE: Final = 30.0
"""Seconds that proxies are not served because it is not known which CPUs pods share."""
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
    events: EventRecorder
    clock: Clock
    metrics: AgentMetrics
    ratio: NormalizationRatio


class NormalizationRatio:
    """How many plain cores a core of the node is worth; one that cannot be read leaves the last good one."""

    def __init__(self, states: StatesInformer, gates: FeatureGates) -> None:
        self._states = states
        self._is_enabled = gates.enabled(features.CPU_NORMALIZATION)
        self._last: float | None = None
        self._bad = ""

    def __call__(self) -> float | None:
        """None where limits are not normalised."""
        node = self._states.node
        if not self._is_enabled or node is None:
            return None
        try:
            self._last, self._bad = normalization_ratio(node), ""
        except HookError as error:
            if str(error) != self._bad:
                logger.warning("%s; the ratio stays %s", error, self._last)
            self._bad = str(error)
        return self._last


class RuntimeHooks:
    """Add its ``loops`` to the agent's, and let ``serve`` run beside them."""

    def __init__(self, options: Options, sources: HookSources) -> None:
        self._options = options
        self._sources = sources
        self._unserved = ""
        host = options.host
        self._hooks = make_hooks(options.features, RDMADeviceInject(partial(verbs_device, host), device_file))
        reconciling = ReconcilerSources(
            pods=lambda: sources.states.pods,
            rules=self.rules,
            processes=CgroupReader(sources.layout, os.sysconf("SC_PAGESIZE")).processes,
            layout=sources.layout,
            executor=sources.executor,
            clock=sources.clock,
            events=sources.events,
        )
        self._reconciler = Reconciler(
            self._hooks, reconciling, self._durations("hook_reconciler", ("level", "resource_type", "status"))
        )
        self._starting = StartingHooks(
            self._hooks,
            self.rules,
            self._reconciler,
            sources.clock,
            self._durations("hook", ("hook", "stage", "status")),
            fails=options.hooks.hooks_fail,
        )
        self._export()
        states = sources.states
        for follow in (states.on_pods, states.on_node, states.on_node_slo, states.on_topology):
            follow(lambda _: self._reconciler.reconcile())

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
            is_suppression_on=options.features.enabled(features.BE_CPU_SUPPRESS),
            shares_best_effort_pools=options.features.enabled(features.BE_CPU_MANAGER),
            unsets_quota=options.hooks.unsets_quota,
            hami_library=options.hooks.hami_library,
        )

    def loops(self) -> list[Loop]:
        """The one that goes over all pods."""

        async def reconcile() -> None:
            self._reconciler.reconcile()

        return [Loop("runtime hooks", reconcile, self._options.hooks.reconcile_interval, _DEADLINE)]

    async def serve(self) -> None:
        """Answer runtimes and their proxies until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve_proxies(), name="hook server")
            nri = self._options.hooks.nri
            if nri.socket:
                socket = os.path.join(self._options.host.var_run, nri.socket)
                plugin = NRIPlugin(replace(nri, socket=socket), self._starting, self._sources.clock)
                tasks.create_task(plugin.run(), name="NRI plugin")

    async def _serve_proxies(self) -> None:
        """What keeps it from that is said, and tried again."""
        if self._options.hooks.socket:
            await self._until_pools_are_known()
        while self._options.hooks.socket:
            try:
                await self._serve_once(self._options.hooks.socket)
            except* (RegistrationError, OSError) as errors:
                text = "; ".join(str(error) for error in errors.exceptions)
                if text != self._unserved:
                    logger.warning("runtime proxies are not served: %s", text)
                self._unserved = text
            await self._sources.clock.sleep(_RETRY)

    async def _until_pools_are_known(self) -> None:
        """Until then a container would be told nothing about its CPUs, and could start on those of others.

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
            self._unserved = ""
            logger.info("runtime proxies are served at %s: %s", path, ", ".join(self._hooks.stages))

        await GrpcServer(handlers(self._starting)).run(path, listening)

    def _pools(self, topology: NodeTopology) -> CPUPools:
        node = self._sources.states.node
        return CPUPools(
            shared=topology.shares.ls_pools,
            best_effort=topology.shares.be_pools,
            system=frozenset() if node is None else system_cpus(node),
            is_kubelet_static=topology.kubelet.policy == STATIC,
        )

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
            "oom_score_adj that the annotations of pods ask for",
            ("pod_namespace", "pod_name", "pod_uid", "container_name"),
            lambda: [(labels, float(score)) for labels, score in self._reconciler.oom_scores.items()],
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
