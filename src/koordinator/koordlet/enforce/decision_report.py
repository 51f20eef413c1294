"""What users see of decisions: why each is as it is, events for the authors of settings that cannot be followed, and
metrics of what was decided and written."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from koordinator.api.meta import ObjectReference
from koordinator.base.metrics import exponential_buckets
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_metrics import PREFIX, AgentMetrics, Rows
from koordinator.koordlet.enforce.executor.desired_settings import IN_FORCE, Applied
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies import cpu_burst, cpu_suppress
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Problem
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.audit.log import AuditEvent, AuditLog
from koordinator.kube.events import EventRecorder
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, KernelFile, Target

logger = logging.getLogger(__name__)

_AUDIT_LEVEL: Final = 3
_OF_CONTAINER: Final = ("pod_namespace", "pod_name", "container_id", "container_name")
BUCKETS: Final = exponential_buckets(0.01, 4, 8)
"""Milliseconds."""


class DecisionReport:
    """Call ``observe`` with each decision."""

    def __init__(self, node_name: str, events: EventRecorder) -> None:
        self._node_name = node_name
        self._events = events
        self._reasons: dict[str, str] = {}
        self._problems = defaultdict[str, SaidOnce](lambda: SaidOnce(logger))
        """By owner."""
        self._figures: dict[str, Mapping[str, float]] = {}

    def observe(self, owner: str, decision: Decision) -> None:
        """Why the owner decided so, and what it could not follow."""
        self.say(owner, decision.reason)
        self.report(owner, decision.problems)
        if decision.settings is not None:
            self._figures[owner] = decision.figures

    def forget(self, owner: str) -> None:
        """It decides no more."""
        self._reasons.pop(owner, None)
        self._problems.pop(owner, None)
        self._figures.pop(owner, None)

    def say(self, owner: str, text: str) -> None:
        """A reason, once."""
        if self._reasons.get(owner) != text:
            logger.debug("%s: %s", owner, text)
            self._reasons[owner] = text

    def report(self, owner: str, problems: Sequence[Problem]) -> None:
        """Record events for settings that cannot be applied, once until they have been corrected."""
        said = self._problems[owner]
        with said.round():
            for problem in problems:
                pod = problem.pod
                where = f"NodeSLO {self._node_name}" if pod is None else f"pod {pod.namespace}/{pod.name}"
                if not said.say(f"{owner}, {where}: {problem.text}", (pod and pod.uid, problem.text)):
                    continue
                if pod is None:
                    self._event_of_node_slo(problem.text)
                else:
                    self._events.event(pod, "Warning", "InvalidAnnotation", owner, problem.text)

    def reject_node_slo(self, text: str) -> None:
        """A section of it stays as it was."""
        logger.warning("NodeSLO %s: %s", self._node_name, text)
        self._event_of_node_slo(text)

    def _event_of_node_slo(self, text: str) -> None:
        regarding = ObjectReference("slo.koordinator.sh/v1alpha1", "NodeSLO", "", self._node_name)
        self._events.event(regarding, "Warning", "InvalidNodeSLO", "Enforcing", text)

    def export(self, metrics: AgentMetrics, states: StatesInformer, executor: Executor) -> None:
        """What was decided, under the original's names."""
        help_text = "Number of cores suppress by koordlet"
        metrics.latest("be_suppress_cpu_cores", help_text, ("type",), self._suppressed_cores)
        help_text = "Number of cpu cores used by LS. We consider non-BE pods and podMeta-missing pods as LS."
        metrics.latest("be_suppress_ls_used_cpu_cores", help_text, (), self._online_cores)
        for name, what, file in (
            ("burst", "The maximum accumulated run-time(in microseconds)", CPU_BURST),
            ("quota", "Run-time replenished within a period (in microseconds)", CPU_QUOTA),
        ):
            help_text, rows = f"{what} in container-level set by koordlet", partial(_in_force, states, executor, file)
            metrics.latest(f"container_scaled_cfs_{name}_us", help_text, _OF_CONTAINER, rows)

    def _suppressed_cores(self) -> Rows:
        figures = self._figures.get(cpu_suppress.OWNER, {})
        if "quota" in figures:
            return [(("cfsQuota",), figures["quota"] / 100_000)]
        return [(("cpuset",), figures["cpus"])] if "cpus" in figures else []

    def _online_cores(self) -> Rows:
        cores = self._figures.get(cpu_suppress.OWNER, {}).get("online_cores")
        return () if cores is None else [((), cores)]


def _in_force(states: StatesInformer, executor: Executor, file: KernelFile) -> Rows:
    """What containers have of CPU burst's own settings, microseconds each."""
    for pod in states.pods:
        metadata = pod.pod.metadata
        for container in pod.containers:
            found = executor.explain(Target(file, container.cgroup))
            if found is None or found.outcome not in IN_FORCE:
                continue
            if cpu_burst.OWNER in found.setting.owners and isinstance(found.setting.value, int):
                labels = (metadata.namespace, metadata.name, container.id, container.name)
                yield labels, found.setting.value


def account_for_writes(metrics: AgentMetrics, audit: AuditLog | None) -> Callable[[Applied], None]:
    """What records every write of an executor: in the audit log, and how long it took in the metrics."""
    durations = metrics.internal.histogram(
        f"{PREFIX}resource_update_duration_milliseconds",
        "time duration of resource update, in milliseconds",
        ("type", "status"),
        buckets=BUCKETS,
    )

    def account(applied: Applied) -> None:
        for written in applied.written:
            kind = written.setting.target.file.root.value
            durations.labels(kind, "success").observe(written.seconds * 1000)
            winner = written.setting.winner
            record_of_node(audit, winner.owner, f"update {written.path} to {written.text.strip()} ({winner.reason})")
        for failed in applied.failed:
            durations.labels(failed.setting.target.file.root.value, "failed").observe(0.0)

    return account


def record_of_node(audit: AuditLog | None, owner: str, message: str) -> None:
    """What was done to the node, in the audit log if there is one."""
    if audit is not None:
        audit.record(AuditEvent(type="node", reason=owner, message=message), _AUDIT_LEVEL)
