"""Preemption within a quota: choosing lower-priority victims of the same quota on one node, so that a pod is admitted
and fits there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.api.workload import PodDisruptionBudget
from koordinator.scheduler.engine.fit_error import preemption_error
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, PostFilterResult
from koordinator.scheduler.engine.simulation import Simulate
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_preemption.node_preemption import (
    Candidate,
    by_protection,
    choose,
    harm_of,
    importance,
)
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.event_handlers import is_non_preemptible

_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_LEAVING: Final = "not eligible due to a terminating pod on the nominated node."
_NAMED_NODES: Final = 20
"""Up to this many nodes without victims are named in the message; of more, only the count. The original names all."""

Refusal = Callable[[PodInfo], str | None]
"""Returns why the pod's quota does not admit it, also in the state of a simulation; None if it does."""


class QuotaPreemption:
    """Plans preemption within a quota. ``spares_default``: pods of the default quota are no victims, since many of them
    do not use quotas on purpose."""

    def __init__(
        self,
        name: str,
        view: ClusterView,
        accounts: Accounts,
        refusal: Refusal,
        simulate: Simulate,
        *,
        spares_default: bool,
    ) -> None:
        self._name = name
        self._view = view
        self._accounts = accounts
        self._refusal = refusal
        self._simulate = simulate
        self._spares_default = spares_default

    def plan(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        """The node with its victims, or why preemption does not help."""
        quota = self._accounts.node_of(pod.pod.metadata)
        if pod.pod.spec.preemption_policy == "Never":
            return PostFilterResult(f"preemption: {_NEVER}")
        victims_on = self._potential(pod, quota.name) if quota is not None else {}
        if self._is_waiting_for_victims(pod, attempt, quota.name if quota is not None else ""):
            return PostFilterResult(f"preemption: {_LEAVING}")
        hopeful = [row for status in attempt.statuses if not status.unresolvable for row in status.rows.tolist()]
        tried = [row for row in hopeful if row in victims_on]
        candidates: list[Candidate] = []
        refusals: Counter[str] = Counter()
        for row in tried:
            found = self._on_row(pod, attempt, row, victims_on[row])
            if isinstance(found, Candidate):
                candidates.append(found)
            else:
                refusals.update(found)
        if candidates:
            best = choose(candidates)
            return PostFilterResult("", self._view.columns.names[best.row], best.victims, self._name)
        refusals.update(self._without_victims(pod, [row for row in hopeful if row not in victims_on]))
        nodes = len(self._view.columns.row_of)
        return PostFilterResult(preemption_error(nodes, refusals, nodes - len(hopeful)), nominated_node="")

    def _potential(self, pod: PodInfo, quota: str) -> dict[int, list[PodInfo]]:
        """Node row -> potential victims; nodes without any are left out."""
        lowest = self._accounts.lowest_priority(quota)
        if lowest is None or lowest >= pod.priority or (self._spares_default and quota == DEFAULT_QUOTA):
            return {}
        found: dict[int, list[PodInfo]] = {}
        for row, pods in self._view.pods_on.items():
            victims = [other for other in pods.values() if self._may_be_victim(other, pod, quota)]
            if victims:
                found[row] = victims
        return found

    def _may_be_victim(self, other: PodInfo, pod: PodInfo, quota: str) -> bool:
        if other.priority >= pod.priority or is_non_preemptible(other.pod) or other.uid in self._view.pseudo_pods:
            return False
        return self._quota_of(other) == quota

    def _quota_of(self, pod: PodInfo) -> str:
        node = self._accounts.node_of(pod.pod.metadata)
        return node.name if node is not None else ""

    def _is_waiting_for_victims(self, pod: PodInfo, attempt: FailedAttempt, quota: str) -> bool:
        row = self._view.columns.row_of.get(self._view.nominations.node_of(pod.uid))
        if row is None or any(status.unresolvable and row in status.rows for status in attempt.statuses):
            return False
        return any(
            other.pod.metadata.deletion_timestamp is not None
            and other.priority < pod.priority
            and self._quota_of(other) == quota
            for other in self._view.pods_on[row].values()
        )

    def _on_row(
        self, pod: PodInfo, attempt: FailedAttempt, row: int, potential: Sequence[PodInfo]
    ) -> Candidate | tuple[str, ...]:
        """The candidate on one node, or the reasons why preemption does not help there."""
        budgets: Sequence[PodDisruptionBudget] = list(self._view.objects_of(POD_DISRUPTION_BUDGETS).values())
        protected, others = by_protection(sorted(potential, key=importance), budgets)
        with self._simulate(attempt) as simulation:
            simulation.require(self._admits)
            victims = simulation.reprieve(pod, row, (*protected, *others))
            if victims is None:
                for other in potential:
                    simulation.remove(other)
                return tuple(reason.text for reason in simulation.reasons(pod, row))
        if not victims:
            return ()
        violating = {each.uid for each in protected}
        violations = sum(1 for each in victims if each.uid in violating)
        return Candidate(row, tuple(sorted(victims, key=importance)), violations, harm_of(victims, violations))

    def _admits(self, pod: PodInfo, row: int) -> Reason | None:
        refusal = self._refusal(pod)
        return Reason(refusal) if refusal is not None else None

    def _without_victims(self, pod: PodInfo, rows: Iterable[int]) -> dict[str, int]:
        rows = list(rows)
        name = pod.pod.metadata.name
        if len(rows) > _NAMED_NODES:
            return {f"No victims found on these nodes for preemptor pod {name}": len(rows)}
        names = self._view.columns.names
        return {f"No victims found on node {names[row]} for preemptor pod {name}": 1 for row in rows}
