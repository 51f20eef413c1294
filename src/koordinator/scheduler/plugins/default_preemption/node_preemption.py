"""Chooses a node, and the lower-priority victims on it, so that a pod fits there.

Kubernetes 1.35, pkg/scheduler/framework/preemption: of the nodes where preemption may help, at least as many candidates
as the arguments say are collected, starting from another node each time, and the one with the least harm is chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Final

from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.api.workload import PodDisruptionBudget
from koordinator.model.label_selector import compile_selector
from koordinator.scheduler.engine.fit_error import NO_VICTIMS, preemption_error
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, PostFilterResult, is_preempted
from koordinator.scheduler.engine.view import ClusterView

_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SHIFT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node row and its victims, the most important first."""

    row: int
    victims: tuple[PodInfo, ...]
    violations: int
    """How many victims violate a PodDisruptionBudget."""
    harm: tuple[int, int, int, int, float]
    """The sort key of candidates, lower is better: see ``harm_of``."""


def select_victims(
    attempt: FailedAttempt, row: int, potential: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> Candidate | None:
    """Remove all ``potential`` victims, then reprieve them one by one as long as the pod still fits: first those
    protected by a budget, each by importance. None if the pod does not fit without all of them."""
    protected, others = by_protection(sorted(potential, key=importance), budgets)
    victims = attempt.reprieve(row, (*protected, *others))
    if victims is None:
        return None
    violating = {pod.uid for pod in protected}
    violations = sum(1 for pod in victims if pod.uid in violating)
    return Candidate(row, tuple(sorted(victims, key=importance)), violations, harm_of(victims, violations))


def harm_of(victims: Sequence[PodInfo], violations: int) -> tuple[int, int, int, int, float]:
    """The sort key of candidates, in this order: the number of budget violations, the highest priority of a victim, the
    sum of the priorities, the number of victims, and the start time of the longest-running victim of the highest
    priority, a later one being better."""
    if not victims:
        return violations, 0, 0, 0, 0.0
    priorities = [victim.priority for victim in victims]
    highest = max(priorities)
    # Priorities may be negative: they are shifted so that more victims never sum up to less.
    total = sum(priorities) + _SHIFT * len(priorities)
    started = min([start_of(victim) for victim in victims if victim.priority == highest])
    return violations, highest, total, len(priorities), -started.timestamp()


def importance(pod: PodInfo) -> tuple[int, datetime]:
    """A sort key, the most important first: higher priority, then earlier start; pods not started come last."""
    return -pod.priority, start_of(pod)


def start_of(pod: PodInfo) -> datetime:
    """The pod's start time; the latest possible time if it has not started."""
    return pod.pod.status.start_time or _LAST


def by_protection(
    pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """The pods whose eviction, after that of the earlier ones, would violate a budget; and all others."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        violated = False
        for index in _budgets_of(pod, budgets):
            allowed[index] -= 1
            violated |= allowed[index] < 0
        (protected if violated else others).append(pod)
    return protected, others


def _budgets_of(pod: PodInfo, budgets: Sequence[PodDisruptionBudget]) -> list[int]:
    """The indices of the budgets that the pod's eviction counts against, without those that list it as disrupted
    already."""
    metadata = pod.pod.metadata
    if not metadata.labels:
        return []
    return [
        index
        for index, budget in enumerate(budgets)
        if budget.metadata.namespace == metadata.namespace
        and metadata.name not in budget.status.disrupted_pods
        and protects(budget, pod)
    ]


def protects(budget: PodDisruptionBudget, pod: PodInfo) -> bool:
    """Whether the budget's selector matches the pod; an empty or invalid selector matches nothing."""
    selector = budget.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    try:
        return compile_selector(selector).matches(pod.pod.metadata.labels)
    except ValueError:
        return False


_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_LEAVING: Final = "not eligible due to a terminating pod on the nominated node."
_VICTIMS: Final = "preemption/victims"
_WHY_NOT: Final = "preemption/why not"
_HARM: Final = attrgetter("harm")


class NodePreemption:
    """Plans preemption for the plugin ``name``. ``may_go`` returns whether a pod of lower priority may be a victim.

    At least ``percentage`` of the nodes where preemption may help, and at least ``absolute``, are collected as
    candidates, if there are as many."""

    def __init__(
        self, name: str, view: ClusterView, percentage: int, absolute: int, may_go: Callable[[PodInfo], bool]
    ) -> None:
        self._name = name
        self._view = view
        self._percentage = percentage
        self._absolute = absolute
        self._may_go = may_go
        self._start = 0

    def plan(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        """The node with its victims, or why there is no plan."""
        refusal = self._not_eligible(pod, attempt)
        if refusal:
            return PostFilterResult(f"preemption: {refusal}")
        hopeful = [row for status in attempt.statuses if not status.unresolvable for row in status.rows.tolist()]
        candidates = self._candidates(pod, attempt, hopeful)
        if candidates:
            best = choose(candidates)
            return PostFilterResult("", self._view.columns.names[best.row], best.victims, self._name)
        refusals: Counter[str] = Counter()
        why_not = attempt.remember((_WHY_NOT, self._name, pod.priority), partial(self._why_not, pod, attempt))
        for row in hopeful:
            refusals.update(why_not(row))
        nodes = len(self._view.columns.row_of)
        return PostFilterResult(preemption_error(nodes, refusals, nodes - len(hopeful)), nominated_node="")

    def _not_eligible(self, pod: PodInfo, attempt: FailedAttempt) -> str:
        """Why the pod may not preempt any pod (now); empty if it may."""
        if pod.pod.spec.preemption_policy == "Never":
            return _NEVER
        row = self._view.columns.row_of.get(self._view.nominations.node_of(pod.uid))
        if row is None:
            return ""
        if any(status.unresolvable and row in status.rows for status in attempt.statuses):
            return ""
        on_node = self._view.pods_on[row].values()
        return _LEAVING if any(other.priority < pod.priority and is_preempted(other) for other in on_node) else ""

    def _candidates(self, pod: PodInfo, attempt: FailedAttempt, rows: Sequence[int]) -> list[Candidate]:
        """Candidates, those without budget violations first; the search stops when there are enough."""
        budgets = list(self._view.objects_of(POD_DISRUPTION_BUDGETS).values())
        key = (
            _VICTIMS,
            self._name,
            pod.priority,
            tuple((each.metadata.uid, each.metadata.resource_version) for each in budgets),
        )
        on_node = attempt.remember(key, partial(self._on_node, pod, attempt, budgets))
        wanted = self._wanted(len(rows))
        unprotected: list[Candidate] = []
        protected: list[Candidate] = []
        for step in range(len(rows)):
            row = rows[(self._start + step) % len(rows)]
            found = on_node(row)
            if found is not None:
                (protected if found.violations else unprotected).append(found)
                if unprotected and len(unprotected) + len(protected) >= wanted:
                    # The next pod starts where this one has stopped, so that no node is always the first.
                    self._start += step + 1
                    break
        return unprotected + protected

    def _on_node(
        self, pod: PodInfo, attempt: FailedAttempt, budgets: Sequence[PodDisruptionBudget], row: int
    ) -> Candidate | None:
        potential = self._potential(pod, row)
        found = select_victims(attempt, row, potential, budgets) if potential else None
        return found if found is not None and found.victims else None

    def _why_not(self, pod: PodInfo, attempt: FailedAttempt, row: int) -> tuple[str, ...]:
        """The reasons why preemption does not help on a node. Called only if there is no candidate at all, since
        finding all reasons costs more than finding that there is one."""
        potential = self._potential(pod, row)
        if not potential:
            return (NO_VICTIMS,)
        return tuple(reason.text for reason in attempt.reasons(row, potential))

    def _potential(self, pod: PodInfo, row: int) -> list[PodInfo]:
        """The potential victims on a node row, without pseudo pods, which represent Reservations and cannot be
        evicted."""
        pseudo_pods = self._view.pseudo_pods
        less_important = [other for other in self._view.pods_on[row].values() if other.priority < pod.priority]
        return [other for other in less_important if other.uid not in pseudo_pods and self._may_go(other)]

    def _wanted(self, nodes: int) -> int:
        share: int = nodes * self._percentage // 100
        least: int = self._absolute
        return min(max(share, least), nodes)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate with the least harm; among equals the first."""
    return min(candidates, key=_HARM)
