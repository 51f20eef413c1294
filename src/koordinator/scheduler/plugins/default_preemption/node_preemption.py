"""Which less important pods are evicted from one node so that a pod fits there.

Kubernetes 1.35, pkg/scheduler/framework/preemption: of the nodes where eviction may help, at least so many as the
arguments say are tried, from a random one on, and the one where it hurts least is chosen.
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
    """A node and those who would have to leave it, the most important first."""

    row: int
    victims: tuple[PodInfo, ...]
    violations: int
    """How many of them a disruption budget protects."""
    harm: tuple[int, int, int, int, float]
    """The less, the better: see ``harm_of``."""


def select_victims(
    attempt: FailedAttempt, row: int, potential: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> Candidate | None:
    """Take all of ``potential`` off, then let them back one by one, protected ones and important ones first, as long as
    the pod still fits. None when it does not even fit without all of them."""
    protected, others = by_protection(sorted(potential, key=importance), budgets)
    victims = attempt.reprieve(row, (*protected, *others))
    if victims is None:
        return None
    violating = {pod.uid for pod in protected}
    violations = sum(1 for pod in victims if pod.uid in violating)
    return Candidate(row, tuple(sorted(victims, key=importance)), violations, harm_of(victims, violations))


def harm_of(victims: Sequence[PodInfo], violations: int) -> tuple[int, int, int, int, float]:
    """What counts, the most important first: protected victims, how important the most important victim is, the sum of
    all priorities, the number of victims, and last for how long the most important ones have run: the shorter, the
    better."""
    if not victims:
        return violations, 0, 0, 0, 0.0
    priorities = [victim.priority for victim in victims]
    highest = max(priorities)
    # Priorities may be negative: shifted, so that many of them never weigh less than few.
    total = sum(priorities) + _SHIFT * len(priorities)
    started = min([start_of(victim) for victim in victims if victim.priority == highest])
    return violations, highest, total, len(priorities), -started.timestamp()


def importance(pod: PodInfo) -> tuple[int, datetime]:
    """Sorts the most important first: higher priority, then earlier start; what has not started counts as last."""
    return -pod.priority, start_of(pod)


def start_of(pod: PodInfo) -> datetime:
    """When the pod began to run; the end of time if it has not."""
    return pod.pod.status.start_time or _LAST


def by_protection(
    pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """Those whose eviction a budget would not allow any more when the earlier ones had gone, and all others."""
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
    """The budgets that the pod counts against: not those that know of its eviction already."""
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
    """Whether the budget's selector matches; an empty one, or one that cannot be read, matches nothing."""
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
    """For the plugin ``name``. ``may_go``: whether a pod that is less important may be a victim at all.

    Of nodes where it may help, at least ``percentage`` of all, and ``absolute`` many, are tried."""

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
        """Who leaves which node, or why nobody does."""
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
        """Why the pod may not preempt anybody (now); empty when it may."""
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
        """Nodes with their victims, enough of them to choose from."""
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
        """Asked only when there is no candidate at all: finding the reasons costs more than seeing that there are
        some."""
        potential = self._potential(pod, row)
        if not potential:
            return (NO_VICTIMS,)
        return tuple(reason.text for reason in attempt.reasons(row, potential))

    def _potential(self, pod: PodInfo, row: int) -> list[PodInfo]:
        """Who might have to go; what stands for a Reservation cannot be evicted, however unimportant it is."""
        pseudo_pods = self._view.pseudo_pods
        less_important = [other for other in self._view.pods_on[row].values() if other.priority < pod.priority]
        return [other for other in less_important if other.uid not in pseudo_pods and self._may_go(other)]

    def _wanted(self, nodes: int) -> int:
        share: int = nodes * self._percentage // 100
        least: int = self._absolute
        return min(max(share, least), nodes)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The one that hurts least; among equals the first."""
    return min(candidates, key=_HARM)
