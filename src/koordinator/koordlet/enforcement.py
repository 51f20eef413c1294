"""What enforces quality of service on a node: the strategies and the hooks, over one executor and one policy."""

from __future__ import annotations

import os

from koordinator.base.loops import Loop
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.collectors.node_info import NodeInfo
from koordinator.koordlet.evictor import Evictor, EvictorDependencies, count_evictions
from koordinator.koordlet.executor.executor import Executor
from koordinator.koordlet.hooks import runtime_hooks
from koordinator.koordlet.hooks.normalization_ratio import NormalizationRatio
from koordinator.koordlet.hooks.runtime_hooks import HookSources, RuntimeHooks
from koordinator.koordlet.interference.monitor import InterferenceMonitor
from koordinator.koordlet.node_snapshot import SnapshotSources
from koordinator.koordlet.pods.kubelet_bandwidths import KubeletBandwidths
from koordinator.koordlet.pods.node_pod import inner_folders
from koordinator.koordlet.policy import EnforcedPolicy
from koordinator.koordlet.qos_manager import COMPONENT, QoSManager, account_for_rounds
from koordinator.koordlet.suppression import SuppressionReport
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kernel_file_codec import KernelFileCodec


class Enforcement:
    """Run ``loops``, and serve ``hooks`` beside them."""

    def __init__(
        self, context: AgentContext, layout: CgroupLayout, info: NodeInfo, monitor: InterferenceMonitor | None
    ) -> None:
        """``monitor`` is what looks for interference, where it is looked for."""
        self._context = context
        options = context.options
        self.executor = Executor(
            context.given.kernel_files,
            KernelFileCodec(options.host, layout, os.sysconf("SC_PAGESIZE")),
            context.given.clock,
            reassert_seconds=options.enforcement.reassert_interval,
            observe_only=options.enforcement.observe_only,
            restores_unmarked=options.cleanup,
            on_round=account_for_rounds(context.metrics, context.audit, observe_only=options.enforcement.observe_only),
        )
        """What writes the kernel's files."""
        context.states.on_pods(lambda pods: self.executor.set_inner_folders(inner_folders(pods)))
        bandwidths = KubeletBandwidths(self.executor, context.states)
        ratio = NormalizationRatio(context.states, options.features)
        sources = SnapshotSources(
            states=context.states,
            policy=EnforcedPolicy(enables_nothing=options.cleanup),
            usage=context.recent_usage,
            layout=layout,
            executor=self.executor,
            bandwidths=bandwidths,
            topology=lambda: info.topology,
            block_devices=lambda: info.block_devices,
            normalization_ratio=ratio,
        )
        self._manager = self._make_manager(sources, monitor)
        self.hooks = self._make_hooks(sources, ratio)

    @property
    def suppression(self) -> SuppressionReport:
        """What the NodeMetric reports of CPU suppression."""
        return self._manager.suppression

    def loops(self) -> list[Loop]:
        return [*self._manager.loops(), *self.hooks.loops()]

    def _make_manager(self, sources: SnapshotSources, monitor: InterferenceMonitor | None) -> QoSManager:
        context, given = self._context, self._context.given
        recorder = context.events.recorder(COMPONENT)
        count = count_evictions(context.metrics, given.clock)
        evictor = Evictor(
            EvictorDependencies(given.client, given.clock, recorder, context.audit, on_evicted=count),
            observe_only=context.options.enforcement.observe_only,
        )
        return QoSManager(
            context.options,
            sources,
            evictor,
            context.metrics,
            recorder,
            given.clock,
            given.random,
            given.client,
            context.audit,
            monitor,
            given.plugins.strategies,
        )

    def _make_hooks(self, sources: SnapshotSources, ratio: NormalizationRatio) -> RuntimeHooks:
        context, given = self._context, self._context.given
        hooks = HookSources(
            states=context.states,
            policy=sources.policy,
            layout=sources.layout,
            executor=self.executor,
            bandwidths=sources.bandwidths,
            events=context.events.recorder(runtime_hooks.COMPONENT),
            clock=given.clock,
            metrics=context.metrics,
            ratio=ratio,
            connections=context.connections,
            audit=context.audit,
            installed=given.plugins.hooks,
            prctl=given.prctl,
            traffic_control=given.traffic_control,
        )
        return RuntimeHooks(context.options, hooks)
