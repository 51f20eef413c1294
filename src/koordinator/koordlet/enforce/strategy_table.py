"""The strategies of an agent in one table: each with its switch, its interval and what it keeps from one decision to
the next."""

from __future__ import annotations

from typing import Final

from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.claim_volumes import ClaimVolumes
from koordinator.koordlet.enforce.interference import InterferenceRemedies
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources, tasks_of
from koordinator.koordlet.enforce.strategies import (
    block_io,
    class_resctrl,
    cpu_burst,
    cpu_suppress,
    memory_qos,
    returned_cpus,
    system_config,
)
from koordinator.koordlet.enforce.strategies.block_io import Disks
from koordinator.koordlet.enforce.strategies.cpu_burst import BurstState
from koordinator.koordlet.enforce.strategies.returned_cpus import HotPlug
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.options import Options
from koordinator.koordlet.report.suppression import SuppressionReport
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.kernel_files import Target
from koordinator.node.resctrl import read_allocation

_LONGEST_BURST_WINDOW: Final = 10.0
"""Seconds."""


class StrategyTable:
    """``strategies`` are those that are on."""

    def __init__(
        self,
        context: AgentContext,
        sources: SnapshotSources,
        claims: ClaimVolumes,
        remedies: InterferenceRemedies | None = None,
    ) -> None:
        """``remedies`` are those against interference, where it is looked for."""
        self._context = context
        self._given = context.given
        self._sources = sources
        self._claims = claims
        self._remedies = remedies
        self._burst = BurstState()
        self._hot_plug = HotPlug()
        self._limited: frozenset[str] | None = None
        """Pods whose block I/O is limited, as ``block_io.decide`` has it."""
        self.suppression = SuppressionReport(sources.executor, context.given.clock)
        """Of CPU suppress, for the NodeMetric."""

    @property
    def _options(self) -> Options:
        return self._context.options

    def strategies(self) -> list[Strategy]:
        """In the order in which they decide."""
        gates, enforcement, layout = self._options.features, self._options.enforcement, self._sources.layout
        interval, suppress_interval = enforcement.reconcile_interval, enforcement.cpu_suppress_interval
        is_v1 = layout.version is CgroupVersion.V1
        shares_cpus = gates.enabled(features.BE_CPU_SUPPRESS) or gates.enabled(features.CPUSET_ALLOCATOR)
        # What has a value of the kubelet's to go back to decides with its gate off, too; the others write nothing then.
        table = (
            (True, Strategy(cpu_suppress.OWNER, suppress_interval, self._suppress, reads_best_effort=True)),
            (True, Strategy(cpu_burst.OWNER, interval, self._bursts)),
            (True, Strategy(class_resctrl.OWNER, interval, self._class_resctrl)),
            (is_v1 and shares_cpus, Strategy(returned_cpus.OWNER, suppress_interval, self._returned_cpus)),
            (gates.enabled(features.CGROUP_RECONCILE), Strategy(memory_qos.OWNER, interval, self._memory)),
            (gates.enabled(features.BLOCK_IO_RECONCILE), Strategy(block_io.OWNER, interval, self._block_io)),
            (gates.enabled(features.SYSTEM_CONFIG), Strategy(system_config.OWNER, interval, system_config.decide)),
        )
        remedies = [] if self._remedies is None else [self._remedies.strategy]
        return [*(strategy for is_on, strategy in table if is_on), *remedies, *self._given.plugins.strategies]

    def _suppress(self, snapshot: Snapshot) -> Decision:
        gates = self._options.features
        decision = cpu_suppress.decide(
            snapshot,
            is_enabled=gates.enabled(features.BE_CPU_SUPPRESS),
            is_cpu_managed=gates.enabled(features.BE_CPU_MANAGER),
        )
        self.suppression.observe(snapshot, decision)
        return decision

    def _bursts(self, snapshot: Snapshot) -> Decision:
        is_enabled = self._options.features.enabled(features.CPU_BURST)
        interval = self._options.enforcement.reconcile_interval
        decision, self._burst = cpu_burst.decide(
            snapshot,
            self._sources.bandwidths_of(snapshot),
            shared_cpu_average(self._sources.usage, snapshot, interval) if is_enabled else None,
            self._burst,
            self._given.clock.monotonic(),
            self._given.random.uniform,
            is_enabled=is_enabled,
            normalization_ratio=self._sources.normalization_ratio(),
        )
        return decision

    def _class_resctrl(self, snapshot: Snapshot) -> Decision:
        is_enabled = self._options.features.enabled(features.RDT_RESCTRL)
        allocation, reader = read_allocation(self._options.host), self._sources.reader
        pods = [usage.pod for usage in snapshot.pods] if is_enabled and allocation is not None else []
        tasks = {pod.uid: tasks_of(reader, (each.cgroup for each in pod.running)) for pod in pods}
        return class_resctrl.decide(snapshot, allocation, tasks, is_enabled=is_enabled)

    def _returned_cpus(self, snapshot: Snapshot) -> Decision:
        layout, cpus_of = self._sources.layout, self._sources.cpus_of
        kubepods, online = cpus_of(layout.kubepods), cpus_of("")
        if kubepods is not None and online is not None:
            now = self._given.clock.monotonic()
            self._hot_plug = returned_cpus.observe(self._hot_plug, kubepods, online, now)
        pods = (usage.pod.cgroup for usage in snapshot.pods)
        folders = returned_cpus.folders(layout, pods) if self._hot_plug.returned else ()
        shown = {folder: cpus for folder in folders if (cpus := cpus_of(folder)) is not None}
        return returned_cpus.decide(self._hot_plug, shown)

    def _memory(self, snapshot: Snapshot) -> Decision:
        layout, executor = self._sources.layout, self._sources.executor
        absent = tuple(file for file in memory_qos.FILES if executor.lacks(Target(file, layout.kubepods)))
        return memory_qos.decide(snapshot, layout, self._kubelet_memory(snapshot), absent)

    def _kubelet_memory(self, snapshot: Snapshot) -> dict[Target, int] | None:
        """What a kubelet with the gate MemoryQoS has given, as ``memory_qos.decide`` wants it; None for one without."""
        sources = self._sources
        configuration, executor = sources.states.kubelet_configuration, sources.executor
        if configuration is None or not configuration.manages_memory or sources.layout.version is not CgroupVersion.V2:
            return None
        classes, others = memory_qos.targets_of_kubelet(snapshot, sources.layout)
        found = {target: executor.kept(target) for target in (*classes, *others)}
        found |= {target: executor.present(target) for target in classes if found[target] is None}
        return {target: value for target, value in found.items() if isinstance(value, int)}

    def _block_io(self, snapshot: Snapshot) -> Decision:
        sources, layout = self._sources, self._sources.layout
        shown = {
            folder: {file: sources.executor.present_devices(file, folder) for file in block_io.neutral(folder)}
            for folder in block_io.folders(snapshot, layout, self._limited)
        }
        disks = Disks(sources.block_devices(), self._options.host.var_lib_kubelet, shown, self._claims.names)
        decision, self._limited = block_io.decide(snapshot, layout, disks, self._limited)
        return decision


def shared_cpu_average(usage: RecentUsage, snapshot: Snapshot, interval: float) -> float | None:
    """Cores that all but LSE, LSR and BE pods use, on the mean of five rounds of ``interval`` seconds, ten seconds at
    most: one quiet second must not let everybody burst. None where the node was not measured."""
    window = max(min(5 * interval, _LONGEST_BURST_WINDOW), usage.interval)
    used = usage.average(kinds.NODE_CPU_USAGE, window)
    if used is None:
        return None
    others = [each.pod.uid for each in snapshot.pods if each.pod.qos in cpu_burst.NOT_SHARING]
    return used - sum(usage.averages(kinds.POD_CPU_USAGE, window, others))
