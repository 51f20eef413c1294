"""Runs the strategies: each in its loop takes a snapshot, decides, and submits its wishes to the executor."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from koordinator.api.meta import ObjectReference
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.clock import Clock
from koordinator.base.loops import Loop
from koordinator.base.metrics import exponential_buckets
from koordinator.koordlet import features, terway_files
from koordinator.koordlet.agent_metrics import PREFIX, AgentMetrics, Rows
from koordinator.koordlet.audit.log import AuditEvent, AuditLog
from koordinator.koordlet.claim_volumes import ClaimVolumes
from koordinator.koordlet.evictor import Evictor
from koordinator.koordlet.executor.round import Round
from koordinator.koordlet.executor.wishes import Outcome
from koordinator.koordlet.interference.monitor import InterferenceMonitor
from koordinator.koordlet.node_snapshot import (
    SnapshotSources,
    best_effort_cpu,
    node_cpu_average,
    read_cpusets,
    read_disks,
    read_hot_plug,
    read_kubelet_memory,
    read_resctrl,
    shared_cpu_average,
    take_snapshot,
)
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.qos import (
    block_io,
    class_resctrl,
    cpu_burst,
    cpu_suppress,
    eviction,
    interference_cap,
    memory_qos,
    returned_cpus,
    system_config,
)
from koordinator.koordlet.qos.cpu_burst import BurstState
from koordinator.koordlet.qos.interference_cap import CapState
from koordinator.koordlet.qos.returned_cpus import HotPlug
from koordinator.koordlet.qos.snapshot import Decision, Problem, Snapshot, Strategy
from koordinator.koordlet.suppression import SuppressionReport
from koordinator.koordlet.terway_files import TerwayQoS
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, KernelFile, Target

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet-qosManager"
_DEADLINE: Final = 30.0
_CLAIMS_INTERVAL: Final = 2.0
_AUDIT_LEVEL: Final = 3
_OF_CONTAINER: Final = ("pod_namespace", "pod_name", "container_id", "container_name")
_BUCKETS: Final = exponential_buckets(0.01, 4, 8)
"""Milliseconds."""


class QoSManager:
    """Add its ``loops`` to the agent's."""

    def __init__(
        self,
        options: Options,
        sources: SnapshotSources,
        evictor: Evictor,
        metrics: AgentMetrics,
        events: EventRecorder,
        clock: Clock,
        random: Random,
        client: Client,
        audit: AuditLog | None,
        interference: InterferenceMonitor | None = None,
        installed: Sequence[Strategy] = (),
    ) -> None:
        """``client`` is for the few strategies that read objects; ``interference`` is for the detection, if it runs;
        ``installed`` are strategies of other packages."""
        self._installed = installed
        self._interference = interference
        self._caps = CapState()
        self._options = options
        self._sources = sources
        self._evictor = evictor
        self._clock = clock
        self._random = random
        self._audit = audit
        self._burst = BurstState()
        self._hot_plug = HotPlug()
        self.suppression = SuppressionReport(sources.executor, clock)
        """Of CPU suppress, for the NodeMetric."""
        self._claims = ClaimVolumes(
            client, lambda: block_io.claims(pod.pod for pod in sources.states.pods if not pod.has_finished)
        )
        self._limited: frozenset[str] | None = None
        """Pods whose block I/O is limited, as ``block_io.decide`` has it."""
        # As the original: for CPU the first pause begins with the agent, for memory there is none before an eviction.
        self._last_eviction = {"CPU": clock.monotonic(), "memory": -math.inf}
        self._events = events
        self._reasons: dict[str, str] = {}
        self._problems: dict[str, frozenset[tuple[str, str]]] = {}
        """Owner -> the pods' UIDs and the texts of the events that their authors got."""
        self._figures: dict[str, Mapping[str, float]] = {}
        self._export(metrics)
        sources.states.on_node_slo(self._accept)
        if (spec := sources.states.node_slo_spec) is not None:
            self._accept(spec)

    def loops(self) -> list[Loop]:
        """One for each strategy whose interval is above 0."""
        enforcement = self._options.enforcement
        loops = [self._loop(strategy) for strategy in self._strategies() if strategy.interval > 0]
        for resource, features_, interval, cool_down in (
            ("CPU", eviction.CPU_FEATURES, enforcement.cpu_evict_interval, enforcement.cpu_evict_cool_down),
            ("memory", eviction.MEMORY_FEATURES, enforcement.memory_evict_interval, enforcement.memory_evict_cool_down),
        ):
            enabled = [feature for feature in features_ if self._options.features.enabled(feature)]
            if enabled and interval > 0:
                loops.append(self._eviction_loop(resource, enabled, interval, cool_down))
        if self._options.features.enabled(features.TERWAY_QOS) and enforcement.reconcile_interval > 0:
            loops.append(self._terway_loop(enforcement.reconcile_interval))
        if self._options.features.enabled(features.BLOCK_IO_RECONCILE) and enforcement.reconcile_interval > 0:
            loops.append(Loop("claims of pods' volumes", self._claims.refresh, _CLAIMS_INTERVAL, _DEADLINE))
        return loops

    def _strategies(self) -> list[Strategy]:
        gates, enforcement = self._options.features, self._options.enforcement
        interval, host, layout = enforcement.reconcile_interval, self._options.host, self._sources.layout
        strategies = [
            Strategy(
                cpu_suppress.OWNER, enforcement.cpu_suppress_interval, self._decide_suppress, reads_best_effort=True
            ),
            Strategy(cpu_burst.OWNER, interval, self._decide_burst),
            Strategy(
                class_resctrl.OWNER,
                interval,
                lambda snapshot: class_resctrl.decide(
                    snapshot, read_resctrl(host, layout, snapshot), is_enabled=gates.enabled(features.RDT_RESCTRL)
                ),
            ),
        ]
        is_v1 = layout.version is CgroupVersion.V1
        if is_v1 and (gates.enabled(features.BE_CPU_SUPPRESS) or gates.enabled(features.CPUSET_ALLOCATOR)):
            strategies.append(
                Strategy(returned_cpus.OWNER, enforcement.cpu_suppress_interval, self._decide_returned_cpus)
            )
        # What these two write has no value of kubelet's to go back to: where they are off they write nothing.
        if gates.enabled(features.CGROUP_RECONCILE):
            strategies.append(Strategy(memory_qos.OWNER, interval, self._decide_memory))
        if gates.enabled(features.BLOCK_IO_RECONCILE):
            strategies.append(Strategy(block_io.OWNER, interval, self._decide_block_io))
        if self._interference is not None:
            strategies.append(
                Strategy(interference_cap.OWNER, self._options.collectors.interference_interval, self._decide_caps)
            )
        if gates.enabled(features.SYSTEM_CONFIG):
            strategies.append(Strategy(system_config.OWNER, interval, system_config.decide))
        return [*strategies, *self._installed]

    def _decide_suppress(self, snapshot: Snapshot) -> Decision:
        gates = self._options.features
        decision = cpu_suppress.decide(
            snapshot,
            is_enabled=gates.enabled(features.BE_CPU_SUPPRESS),
            is_cpu_managed=gates.enabled(features.BE_CPU_MANAGER),
        )
        self.suppression.observe(snapshot, decision)
        return decision

    def _decide_returned_cpus(self, snapshot: Snapshot) -> Decision:
        layout = self._sources.layout
        self._hot_plug = read_hot_plug(layout, self._hot_plug, self._clock.monotonic())
        pods = (usage.pod.cgroup for usage in snapshot.pods)
        folders = returned_cpus.folders(layout, pods) if self._hot_plug.returned else ()
        return returned_cpus.decide(self._hot_plug, read_cpusets(layout, folders))

    def _decide_memory(self, snapshot: Snapshot) -> Decision:
        return memory_qos.decide(snapshot, self._sources.layout, read_kubelet_memory(self._sources, snapshot))

    def _decide_burst(self, snapshot: Snapshot) -> Decision:
        is_enabled = self._options.features.enabled(features.CPU_BURST)
        used = shared_cpu_average(self._sources.usage, snapshot, self._options.enforcement.reconcile_interval)
        decision, self._burst = cpu_burst.decide(
            snapshot,
            self._bandwidths(snapshot),
            used,
            self._burst,
            self._clock.monotonic(),
            self._random.uniform,
            is_enabled=is_enabled,
            normalization_ratio=self._sources.normalization_ratio(),
        )
        return decision

    def _terway_loop(self, interval: float) -> Loop:
        terway = TerwayQoS(
            self._options.host,
            lambda: take_snapshot(self._sources),
            self._report,
            self._audit,
            observe_only=self._options.enforcement.observe_only,
        )
        return Loop(terway_files.OWNER, terway.reconcile, interval, _DEADLINE)

    def _decide_block_io(self, snapshot: Snapshot) -> Decision:
        layout = self._sources.layout
        folders = block_io.folders(snapshot, layout, self._limited)
        disks = read_disks(self._options.host, self._sources, folders, self._claims.names)
        decision, self._limited = block_io.decide(snapshot, layout, disks, self._limited)
        return decision

    def _decide_caps(self, snapshot: Snapshot) -> Decision:
        findings = self._interference.findings if self._interference is not None else ()
        strategy, now = self._sources.policy.interference, self._clock.monotonic()
        decision, self._caps = interference_cap.decide(
            snapshot, self._bandwidths(snapshot), findings, strategy, self._caps, now
        )
        return decision

    def _bandwidths(self, snapshot: Snapshot) -> Mapping[str, Bandwidth]:
        return self._sources.bandwidths.of([usage.pod for usage in snapshot.pods])

    def _eviction_loop(self, resource: str, enabled: list[eviction.Feature], interval: float, cool_down: float) -> Loop:
        async def evict() -> None:
            if self._clock.monotonic() - self._last_eviction[resource] < cool_down:
                return
            snapshot = take_snapshot(self._sources)
            present = {usage.pod.uid for usage in snapshot.pods}
            usage, policy = self._sources.usage, self._sources.policy.spec
            inputs = eviction.Inputs(snapshot, best_effort_cpu(usage, policy), node_cpu_average(usage, policy))
            plan = eviction.plan(inputs, enabled)
            self._say(f"evictions for {resource}", "; ".join(plan.problems) or "settings are valid")
            try:
                has_evicted = bool(await self._evictor.carry_out(plan, present))
            except asyncio.CancelledError:
                # The eviction that was requested last may have taken place.
                self._last_eviction[resource] = self._clock.monotonic()
                raise
            if has_evicted:
                self._last_eviction[resource] = self._clock.monotonic()

        return Loop(f"evictions for {resource}", evict, interval, _DEADLINE)

    def _say(self, name: str, text: str) -> None:
        """A reason, once."""
        if self._reasons.get(name) != text:
            logger.debug("%s: %s", name, text)
            self._reasons[name] = text

    def _loop(self, strategy: Strategy) -> Loop:
        async def enforce() -> None:
            self._enforce(strategy)

        return Loop(strategy.name, enforce, strategy.interval, _DEADLINE)

    def _enforce(self, strategy: Strategy) -> None:
        decision = strategy.decide(take_snapshot(self._sources, with_best_effort=strategy.reads_best_effort))
        self._say(strategy.name, decision.reason)
        self._report(strategy.name, decision.problems)
        if decision.wishes is None:
            return
        self._figures[strategy.name] = decision.figures
        self._sources.executor.submit(strategy.name, decision.wishes)
        self._sources.executor.apply()

    def _report(self, owner: str, problems: tuple[Problem, ...]) -> None:
        """Record events for settings that cannot be applied, once until they have been corrected."""
        reported = self._problems.get(owner, frozenset())
        self._problems[owner] = frozenset((_uid(problem), problem.text) for problem in problems)
        for problem in problems:
            if (_uid(problem), problem.text) in reported:
                continue
            if problem.pod is None:
                self._reject_node_slo(problem.text)
            else:
                pod = problem.pod.metadata
                regarding = ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid)
                logger.warning("pod %s/%s: %s", pod.namespace, pod.name, problem.text)
                self._events.event(regarding, "Warning", "InvalidAnnotation", "Enforcing", problem.text)

    def _accept(self, spec: NodeSLOSpec) -> None:
        for section in self._sources.policy.accept(spec):
            self._reject_node_slo(str(section))

    def _reject_node_slo(self, text: str) -> None:
        name = self._options.node_name
        regarding = ObjectReference("slo.koordinator.sh/v1alpha1", "NodeSLO", "", name)
        logger.warning("NodeSLO %s: %s", name, text)
        self._events.event(regarding, "Warning", "InvalidNodeSLO", "Enforcing", text)

    def _export(self, metrics: AgentMetrics) -> None:
        metrics.latest(
            "be_suppress_cpu_cores",
            "Number of cores suppress by koordlet",
            ("type",),
            lambda: _suppressed(self._figures.get(cpu_suppress.OWNER, {})),
        )
        metrics.latest(
            "be_suppress_ls_used_cpu_cores",
            "Number of cpu cores used by LS. We consider non-BE pods and podMeta-missing pods as LS.",
            (),
            self._online_cores,
        )
        for name, help_text, file in (
            (
                "container_scaled_cfs_burst_us",
                "The maximum accumulated run-time(in microseconds) in container-level set by koordlet",
                CPU_BURST,
            ),
            (
                "container_scaled_cfs_quota_us",
                "Run-time replenished within a period (in microseconds) in container-level set by koordlet",
                CPU_QUOTA,
            ),
        ):
            metrics.latest(name, help_text, _OF_CONTAINER, partial(self._in_force, file))

    def _online_cores(self) -> Rows:
        cores = self._figures.get(cpu_suppress.OWNER, {}).get("online_cores")
        return () if cores is None else [((), cores)]

    def _in_force(self, file: KernelFile) -> Rows:
        """What containers have of CPU burst's own wishes, microseconds each."""
        for pod in self._sources.states.pods:
            metadata = pod.pod.metadata
            for container in pod.containers:
                found = self._sources.executor.explain(Target(file, container.cgroup))
                if found is None or found.outcome not in (Outcome.WRITTEN, Outcome.THERE_ALREADY):
                    continue
                if cpu_burst.OWNER in found.setting.owners and isinstance(found.setting.value, int):
                    labels = (metadata.namespace, metadata.name, container.id, container.name)
                    yield labels, found.setting.value


def _uid(problem: Problem) -> str:
    return "" if problem.pod is None else problem.pod.metadata.uid


def _suppressed(figures: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    if "quota" in figures:
        return [(("cfsQuota",), figures["quota"] / 100_000)]
    return [(("cpuset",), figures["cpus"])] if "cpus" in figures else []


def account_for_rounds(
    metrics: AgentMetrics, audit: AuditLog | None, *, observe_only: bool = False
) -> Callable[[Round], None]:
    """What records every write of an executor: in the audit log, and how long it took in the metrics. What would have
    been written is none."""
    durations = metrics.internal.histogram(
        f"{PREFIX}resource_update_duration_milliseconds",
        "time duration of resource update, in milliseconds",
        ("type", "status"),
        buckets=_BUCKETS,
    )

    def account(finished: Round) -> None:
        if observe_only:
            return
        for written in finished.written:
            kind = written.setting.target.file.root.value
            durations.labels(kind, "success").observe(written.seconds * 1000)
            if audit is not None:
                message = f"update {written.path} to {written.text.strip()} ({written.setting.winner.reason})"
                event = AuditEvent(type="node", reason=written.setting.winner.owner, message=message)
                audit.record(event, _AUDIT_LEVEL)
        for failed in finished.failed:
            durations.labels(failed.setting.target.file.root.value, "failed").observe(0.0)

    return account
