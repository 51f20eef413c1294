"""What enforces quality of service on a node: the strategies and the hooks, over one executor and one policy."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.loops import Loop, LoopMetrics
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce import terway_files
from koordinator.koordlet.enforce.claim_volumes import ClaimVolumes
from koordinator.koordlet.enforce.controller_loops import ControllerLoops
from koordinator.koordlet.enforce.decision_report import DecisionReport, account_for_writes
from koordinator.koordlet.enforce.enforcing_pass import EnforcingPass
from koordinator.koordlet.enforce.evictions import Evictions, Evictor, count_evictions
from koordinator.koordlet.enforce.executor.desired_settings import Applied
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks.runtime_hooks import RuntimeHooks
from koordinator.koordlet.enforce.interference import InterferenceRemedies
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources, take_snapshot
from koordinator.koordlet.enforce.policy import EnforcedPolicy, NormalizationRatio
from koordinator.koordlet.enforce.strategies import block_io
from koordinator.koordlet.enforce.strategy_table import StrategyTable
from koordinator.koordlet.enforce.terway_files import TerwayQoS
from koordinator.koordlet.observe.interference.monitor import InterferenceMonitor
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.pods.kubelet_bandwidths import KubeletBandwidths
from koordinator.koordlet.pods.node_pod import inner_folders
from koordinator.koordlet.report.modifications import PERIOD, ModificationReport
from koordinator.koordlet.report.suppression import SuppressionReport
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kernel_file_codec import KernelFileCodec

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet-qosManager"
"""Of the events, as the original has it."""
_DEADLINE: Final = 30.0
_CLAIMS_INTERVAL: Final = 2.0


class Enforcement:
    """Run ``loops``, and serve ``hooks`` beside them."""

    def __init__(
        self,
        context: AgentContext,
        layout: CgroupLayout,
        info: NodeInfo,
        monitor: InterferenceMonitor | None,
        loops: LoopMetrics,
    ) -> None:
        """``monitor`` is what looks for interference, where it is looked for."""
        self._context = context
        options, states = context.options, context.states
        self._observe_only = observe_only = options.enforcement.observe_only
        self._account = account_for_writes(context.metrics, context.audit)
        self.executor = Executor(
            context.given.kernel_files,
            KernelFileCodec(options.host, layout, os.sysconf("SC_PAGESIZE")),
            context.given.clock,
            reassert_seconds=options.enforcement.reassert_interval,
            observe_only=observe_only,
            restores_unmarked=options.cleanup,
            on_applied=self._on_applied,
        )
        """What writes the kernel's files."""
        # What --cleanup takes back is of pods that were synced before.
        self.executor.set_inner_folders(inner_folders(states.pods))
        states.on_pods(lambda pods: self.executor.set_inner_folders(inner_folders(pods)))
        self._sources = SnapshotSources(
            states=states,
            policy=EnforcedPolicy(enables_nothing=options.cleanup),
            usage=context.recent_usage,
            layout=layout,
            executor=self.executor,
            bandwidths=KubeletBandwidths(self.executor, states),
            topology=lambda: info.topology,
            block_devices=lambda: info.block_devices,
            normalization_ratio=NormalizationRatio(states, options.features),
        )
        recorder = context.events.recorder(COMPONENT)
        self._report = DecisionReport(options.node_name, recorder)
        self._report.export(context.metrics, states, self.executor)
        states.on_node_slo(self._accept)
        if (spec := states.node_slo_spec) is not None:
            self._accept(spec)
        given = context.given
        self._claims = ClaimVolumes(
            given.client, lambda: block_io.claims(pod for pod in states.pods if not pod.has_finished)
        )
        self.remedies = None if monitor is None else InterferenceRemedies(context, self._sources, monitor, recorder)
        """Against interference, where it is looked for."""
        self._table = StrategyTable(context, self._sources, self._claims, self.remedies)
        self._modifications = ModificationReport(options.node_name, states, self.suppression, recorder, given.clock)
        count = count_evictions(context.metrics, given.clock)
        self._evictor = Evictor(given.client, given.clock, recorder, context.audit, count, observe_only=observe_only)
        self._evictions = Evictions(context, self._sources, self._evictor, self._report.say)
        self._terway = TerwayQoS(
            options.host,
            partial(take_snapshot, self._sources),
            self._report.report,
            context.audit,
            observe_only=observe_only,
        )
        self.hooks = RuntimeHooks(context, self._sources, dict if self.remedies is None else self.remedies.bandwidths)
        self.controllers = ControllerLoops(context, self._sources, self._report)
        """Of other packages."""
        self.enforcing = EnforcingPass(
            self._table.strategies(),
            self.hooks.reconciler,
            options.hooks.reconcile_interval,
            lambda with_best_effort: take_snapshot(self._sources, with_best_effort=with_best_effort),
            self.executor,
            self._report,
            loops,
            given.clock,
        )
        """The pass of each second."""
        self._pass = asyncio.Lock()
        """Held while one is under way."""
        for follow in (states.on_pods, states.on_node, states.on_node_slo, states.on_topology):
            follow(lambda _: self.enforcing.wake())

    async def reconfigure(self) -> None:
        """Go by the options of the context as they are now. What decides keeps what it knows, and the kernel what it
        has."""
        async with self._pass:
            enforcement = self._context.options.enforcement
            self.executor.reassert_every(enforcement.reassert_interval)
            if enforcement.observe_only != self._observe_only:
                self._only_observe(enforcement.observe_only)
            self.enforcing.replace(self._table.strategies())
            self.controllers.reconfigure()

    def _only_observe(self, is_only: bool) -> None:
        logger.info("from now on this node is %s", "only observed" if is_only else "changed, not only observed")
        # Nothing is recorded of a node that is only observed.
        self.finish()
        self._observe_only = is_only
        for each in (self.executor, self._evictor, self._terway, self.hooks):
            each.only_observe(is_only)

    @property
    def suppression(self) -> SuppressionReport:
        """What the NodeMetric reports of CPU suppression."""
        return self._table.suppression

    def loops(self) -> list[Loop]:
        """The enforcing pass, and what waits for others than the kernel."""

        async def enforce() -> None:
            await self._context.table.is_whole.wait()
            await self._go_through(self.enforcing.steps)

        loops = [Loop("enforce", enforce, self.enforcing.interval, _DEADLINE), *self._evictions.loops()]
        if self.remedies is not None:
            loops.append(self.remedies.loop(self._evictor))
        gates, interval = self._context.options.features, self._context.options.enforcement.reconcile_interval
        if gates.enabled(features.TERWAY_QOS) and interval > 0:
            loops.append(Loop(terway_files.OWNER, self._terway.reconcile, interval, _DEADLINE))
        if not self._observe_only:
            loops.append(Loop("modifications", self._record_modifications, PERIOD, _DEADLINE))
        if gates.enabled(features.BLOCK_IO_RECONCILE) and interval > 0:
            loops.append(Loop("claims of pods' volumes", self._claims.refresh, _CLAIMS_INTERVAL, _DEADLINE))
        return [*loops, *self.hooks.loops(), *self.controllers.loops()]

    async def follow_changes(self) -> None:
        """Call the hooks when pods or policies have changed, until cancelled."""
        while True:
            await self.enforcing.is_woken.wait()
            await self._go_through(self.enforcing.woken_steps)

    async def _go_through(self, steps: Callable[[], Iterator[None]]) -> None:
        async with self._pass:
            for _ in steps():
                # Runtimes that start containers come first.
                await asyncio.sleep(0)

    def finish(self) -> None:
        """Record what has been modified since the last summary, when nothing more is enforced."""
        if not self._observe_only:
            self._modifications.observe(at_end=True)

    async def _record_modifications(self) -> None:
        self._modifications.observe()

    def _on_applied(self, applied: Applied) -> None:
        self._account(applied)
        self._modifications.on_applied(applied)

    def _accept(self, spec: NodeSLOSpec) -> None:
        for section in self._sources.policy.accept(spec):
            self._report.reject_node_slo(section)
