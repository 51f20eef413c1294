"""The preemption planner: chooses nodes, and the lower-priority victims there, so that pods fit.

Kubernetes 1.35, pkg/scheduler/framework/preemption. The planner has the steps that all preemption has in common: may
the pod preempt at all, which nodes may help, what the plan nominates and evicts, or what the message says. Its
subclasses choose the nodes and the victims: ``NodePreemption`` one node for one pod, and
``coscheduling.job_preemption`` nodes for all members of a gang group. All of them ask hypothetical nodes, from which
pods are removed and on which others are placed: see ``engine.simulation``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.api.workload import PodDisruptionBudget
from koordinator.model.label_selector import compile_selector
from koordinator.scheduler.engine.decision import NO_VICTIMS, preemption_error
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import (
    NO_PLAN,
    FailedAttempt,
    NodeStatus,
    Nomination,
    PostFilterResult,
    Predicate,
    is_preempted,
)
from koordinator.scheduler.engine.view import ClusterView

T = TypeVar("T")

NEVER: Final = "not eligible due to preemptionPolicy=Never."
SUCCESS: Final = "preempt success"
_NOT_HELPFUL: Final = "preemption not helpful"
_PREFIX: Final = "preemption: "
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SHIFT: Final = 2**31
_HARM: Final = attrgetter("harm")

MayBeVictim = Callable[[PodInfo], bool]
"""Whether a pod of lower priority than the preemptor may be evicted for it."""
PotentialVictims = Callable[[int], list[PodInfo]]


Placements = Sequence[tuple[PodInfo, int]]
"""Pods with the rows of their nodes."""


class Found(NamedTuple):
    """Nodes for all preemptors, and the victims there, the most important first."""

    placements: Placements
    victims: Sequence[PodInfo]


class Plan(NamedTuple):
    """``outcome`` is one of a few fixed phrases, used as a metric label; ``message`` has the details."""

    outcome: str
    message: str
    result: PostFilterResult


class Preemption(ABC):
    """Plans preemption for the plugin ``name``. The subclasses choose the nodes and the victims."""

    leaving: ClassVar[str] = "not eligible due to a terminating pod on the nominated node."
    """What the message says while a pod is awaited."""
    waiting: Mapping[str, tuple[PodInfo, str]] = MappingProxyType({})
    """Uid -> a pod that has a node already, which is the second item, and waits there for the others."""

    def __init__(self, name: str, view: ClusterView) -> None:
        self.name = name
        self.view = view

    # What preemption does in its own way.

    @abstractmethod
    def search(self, attempt: FailedAttempt, rows: Sequence[int]) -> Found | Mapping[str, int] | str:
        """The nodes and the victims; or reason -> the number of nodes with it, or a text, why there are none. ``rows``
        are those where preemption may help."""

    def preemptors(self, pod: PodInfo) -> Sequence[PodInfo]:
        """The pods that get nodes together, of which ``pod`` is one."""
        return (pod,)

    def statuses(self, attempt: FailedAttempt) -> Sequence[NodeStatus]:
        """Why nodes do not take the pods."""
        return attempt.statuses

    def is_awaited(self, pod: PodInfo, other: PodInfo) -> bool:
        """Whether ``pod`` must not preempt before ``other``, a pod of lower priority on its nominated node, is gone."""
        return is_preempted(other)

    def nomination(self, pod: PodInfo) -> str | None:
        """The nomination in the result for a pod for which preemption is not tried now. See PostFilterResult."""
        return None

    def success(self, pod: PodInfo) -> str:
        """What the plan's message says."""
        return SUCCESS

    def cause(self, pod: PodInfo) -> str:
        """See PostFilterResult."""
        return NO_PLAN.cause

    # What all preemption has in common.

    def plan(self, pod: PodInfo, attempt: FailedAttempt) -> Plan:
        """The nodes with their victims, or why there is no plan."""
        refusal = self._not_eligible(pod, attempt)
        if refusal:
            return self.unchanged(pod, refusal, refusal)
        rows = [row for each in self.statuses(attempt) if not each.unresolvable for row in each.rows.tolist()]
        found = self.search(attempt, rows)
        if isinstance(found, Found):
            return Plan(SUCCESS, self.success(pod), self._result(pod, found))
        nodes = len(self.view.columns.row_of)
        text = found if isinstance(found, str) else preemption_error(nodes, found, len(rows))
        return Plan(_NOT_HELPFUL, text, PostFilterResult(f"{_PREFIX}{text}", "", nominations=self._cleared(pod)))

    def unchanged(self, pod: PodInfo, outcome: str, message: str) -> Plan:
        """The plan without victims for a pod for which preemption is not tried now."""
        return Plan(outcome, message, PostFilterResult(f"{_PREFIX}{message}", self.nomination(pod)))

    def _not_eligible(self, pod: PodInfo, attempt: FailedAttempt) -> str:
        """Why the pod may not preempt (now); empty if it may."""
        if pod.pod.spec.preemption_policy == "Never":
            return NEVER
        if self.view.nominations.is_empty:
            return ""
        for each in self.preemptors(pod):
            # For other preemptors, it is not known on which nodes preemption would not help.
            statuses = self.statuses(attempt) if each.uid == pod.uid else ()
            on_node = pods_on_nominated_node(self.view, each, statuses)
            if any(other.priority < pod.priority and self.is_awaited(pod, other) for other in on_node):
                return self.leaving
        return ""

    def _result(self, pod: PodInfo, found: Found) -> PostFilterResult:
        names = self.view.columns.names
        nodes = {each.uid: Nomination(each, names[row]) for each, row in found.placements}
        # Waiting pods release their nodes when the attempt ends, so they are nominated to the same nodes.
        nodes.update({uid: Nomination(each, node_name) for uid, (each, node_name) in self.waiting.items()})
        own, cause = nodes.pop(pod.uid), self.cause(pod)
        return PostFilterResult("", own.node_name, tuple(found.victims), self.name, tuple(nodes.values()), cause)

    def _cleared(self, pod: PodInfo) -> tuple[Nomination, ...]:
        """The nominations of a failed plan: all others are cleared, so that other pods can use their nodes."""
        nominations, waiting = self.view.nominations, [each for each, _ in self.waiting.values()]
        others = [each for each in (*self.preemptors(pod), *waiting) if each.uid != pod.uid]
        return tuple(Nomination(each, "") for each in others if nominations.node_of(each.uid))


class NodePreemption(Preemption):
    """One node for one pod: on each node where preemption may help, all potential victims are removed hypothetically,
    as many as possible are reprieved, and the node with the least harm is chosen."""

    is_local: ClassVar[bool] = True
    """Whether the results for a node depend on no other node. They are then cached for pods of one class and of equal
    priority."""
    require: Predicate | None = None
    """What the pod has to meet on a node beside all filters, when the victims have left."""
    _start = 0

    @abstractmethod
    def victims_of(self, pod: PodInfo) -> MayBeVictim | None:
        """Which pods of lower priority may be evicted for ``pod``. None if none on any node may, so that the nodes need
        not be searched."""

    def enough(self, nodes: int) -> int | None:
        """How many candidates end the search, if one of them violates no PodDisruptionBudget; the next search starts
        where this one has ended. ``nodes``: the number of nodes where preemption may help. None: all are searched."""
        return None

    def no_victims(self, pod: PodInfo, rows: Sequence[int]) -> Mapping[str, int]:
        """What the message says about ``rows``, which have no potential victims: text -> number of nodes."""
        return {NO_VICTIMS: len(rows)}

    def search(self, attempt: FailedAttempt, rows: Sequence[int]) -> Found | Mapping[str, int]:
        """The candidate with the least harm, among equals the first."""
        pod = attempt.state.pod
        may_be_victim = self.victims_of(pod)
        if may_be_victim is None:
            return self.no_victims(pod, rows)
        # If there is no candidate, the potential victims of each node are needed for a second time.
        potential = cache(partial(potential_victims, self.view, pod.priority, may_be_victim))
        if candidates := self._candidates(attempt, rows, potential):
            best = min(candidates, key=_HARM)
            return Found([(pod, best.row)], best.victims)
        return self._why_not(attempt, rows, potential)

    def _candidates(
        self, attempt: FailedAttempt, rows: Sequence[int], potential: PotentialVictims
    ) -> Sequence[Candidate]:
        budgets = list(self.view.objects_of(POD_DISRUPTION_BUDGETS).values())

        def on_node(row: int) -> Candidate | None:
            protected, others = by_protection(sorted(potential(row), key=importance), budgets)
            in_order = (*protected, *others)
            victims = attempt.reprieve(row, in_order, self.require) if in_order else None
            if not victims:
                return None
            violations = len({pod.uid for pod in protected}.intersection([pod.uid for pod in victims]))
            return Candidate(row, tuple(sorted(victims, key=importance)), harm_of(victims, violations))

        versions = tuple((each.metadata.uid, each.metadata.resource_version) for each in budgets)
        candidate_on = self._cached(attempt, ("preemption/victims", versions), on_node)
        found, respects_budgets = list[Candidate](), False
        enough = self.enough(len(rows))
        for step in range(len(rows)):
            candidate = candidate_on(rows[(self._start + step) % len(rows)])
            if candidate is None:
                continue
            found.append(candidate)
            respects_budgets = respects_budgets or not candidate.harm[0]
            if respects_budgets and enough is not None and len(found) >= enough:
                # The next pod starts where this one has stopped, so that no node is always the first.
                self._start += step + 1
                break
        return found

    def _why_not(self, attempt: FailedAttempt, rows: Sequence[int], potential: PotentialVictims) -> Mapping[str, int]:
        """Reason why preemption does not help -> the number of nodes with it. Called only if there is no candidate at
        all, since finding all reasons costs more than finding that there is one."""

        def on_node(row: int) -> tuple[str, ...] | None:
            if not (victims := potential(row)):
                return None
            return tuple(reason.text for reason in attempt.reasons(row, victims, self.require))

        why_not = self._cached(attempt, ("preemption/why not",), on_node)
        counts: Counter[str] = Counter()
        no_victims: list[int] = []
        for row in rows:
            texts = why_not(row)
            if texts is None:
                no_victims.append(row)
            else:
                counts.update(texts)
        counts.update(self.no_victims(attempt.state.pod, no_victims))
        return counts

    def _cached(
        self, attempt: FailedAttempt, key: tuple[Hashable, ...], compute: Callable[[int], T]
    ) -> Callable[[int], T]:
        if not self.is_local:
            return compute
        return attempt.remember((*key, self.name, attempt.state.pod.priority), compute)


class PodPreemption(NodePreemption):
    """Pods of lower priority may be evicted if ``may_be_victim`` returns True for them. ``args`` are the plugin's: how
    many of the nodes where preemption may help are collected as candidates at least, if there are as many."""

    def __init__(self, name: str, view: ClusterView, args: Any, may_be_victim: MayBeVictim = lambda pod: True) -> None:
        super().__init__(name, view)
        self._args = args
        self._may_be_victim = may_be_victim

    def victims_of(self, pod: PodInfo) -> MayBeVictim:
        return self._may_be_victim

    def enough(self, nodes: int) -> int:
        least: int = max(
            nodes * self._args.min_candidate_nodes_percentage // 100, self._args.min_candidate_nodes_absolute
        )
        return min(least, nodes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node row and its victims, the most important first."""

    row: int
    victims: tuple[PodInfo, ...]
    harm: tuple[int, int, int, int, float]
    """The sort key of candidates, lower is better: see ``harm_of``. It begins with the violations of budgets."""


def pods_on_nominated_node(view: ClusterView, pod: PodInfo, statuses: Iterable[NodeStatus]) -> Iterable[PodInfo]:
    """The pods on the node that ``pod`` is nominated to; empty if preemption cannot help there any more."""
    row = view.columns.row_of.get(view.nominations.node_of(pod.uid))
    if row is None or any(status.unresolvable and row in status.rows for status in statuses):
        return ()
    return view.pods_on[row].values()


def potential_victims(view: ClusterView, priority: int, may_be_victim: MayBeVictim, row: int) -> list[PodInfo]:
    """The pods on a node row that may be evicted for a preemptor of ``priority``, without pseudo pods, which represent
    Reservations and cannot be evicted."""
    pseudo_pods = view.pseudo_pods
    less_important = [other for other in view.pods_on[row].values() if other.priority < priority]
    return [other for other in less_important if other.uid not in pseudo_pods and may_be_victim(other)]


def harm_of(victims: Sequence[PodInfo], violations: int) -> tuple[int, int, int, int, float]:
    """The sort key of candidates, in this order: the number of budget violations, the highest priority of a victim, the
    sum of the priorities, the number of victims, and the start time of the longest-running victim of the highest
    priority, a later one being better."""
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
