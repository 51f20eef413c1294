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
from functools import cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.scheduler.engine.decision import NO_VICTIMS, preemption_error
from koordinator.scheduler.engine.framework_hooks import DisruptionUnits
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import (
    NO_PLAN,
    FailedAttempt,
    NodeStatus,
    Nomination,
    PostFilterResult,
    Predicate,
    VictimUnit,
    is_preempted,
)
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.victims import (
    SPARED,
    Gangs,
    MayBeVictim,
    by_protection,
    harm_of,
    importance,
    is_potential,
    potential_victims,
    together,
    with_gangs,
)

T = TypeVar("T")

NEVER: Final = "not eligible due to preemptionPolicy=Never."
SUCCESS: Final = "preempt success"
_NOT_HELPFUL: Final = "preemption not helpful"
_PREFIX: Final = "preemption: "
_HARM: Final = attrgetter("harm")

PotentialVictims = Callable[[int], list[PodInfo]]


Placements = Sequence[tuple[PodInfo, int]]
"""Pods with the rows of their nodes."""


class Found(NamedTuple):
    """Nodes for all preemptors, and the victims there, the most important first."""

    placements: Placements
    victims: Sequence[PodInfo]
    with_gangs: Mapping[str, str]
    """See PostFilterResult."""


class Plan(NamedTuple):
    """``outcome`` is one of a few fixed phrases, used as a metric label; ``message`` has the details."""

    outcome: str
    message: str
    result: PostFilterResult


class Preempting(Protocol):
    """The plugin that preempts. Its handle is there once its profile is complete."""

    @property
    def name(self) -> str: ...
    @property
    def view(self) -> ClusterView: ...
    @property
    def handle(self) -> Handle: ...


class Preemption(ABC):
    """Plans preemption for the plugin. The subclasses choose the nodes and the victims."""

    leaving: ClassVar[str] = "not eligible due to a terminating pod on the nominated node."
    """What the message says while a pod is awaited."""
    waiting: Mapping[str, tuple[PodInfo, str]] = MappingProxyType({})
    """Uid -> a pod that has a node already, which is the second item, and waits there for the others."""

    def __init__(self, plugin: Preempting) -> None:
        self.name, self.view = plugin.name, plugin.view
        self._plugin = plugin

    @property
    def handle(self) -> Handle:
        return self._plugin.handle

    def gangs(self, preemptor: PodInfo, may_be_victim: MayBeVictim) -> Gangs:
        """The gangs of which ``preemptor`` may evict members."""
        units = self.handle.plugin(DisruptionUnits)
        return Gangs(units, lambda pod: is_potential(self.view, preemptor.priority, may_be_victim, pod))

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
        others, victims = tuple(nodes.values()), tuple(found.victims)
        return PostFilterResult("", own.node_name, victims, self.name, others, cause, found.with_gangs)

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
        gangs = self.gangs(pod, may_be_victim)
        if candidates := self._candidates(attempt, rows, potential, gangs):
            best = min(candidates, key=_HARM)
            return Found([(pod, best.row)], best.victims, best.with_gangs)
        return self._why_not(attempt, rows, potential, gangs)

    def _candidates(
        self, attempt: FailedAttempt, rows: Sequence[int], potential: PotentialVictims, gangs: Gangs
    ) -> Sequence[Candidate]:
        budgets = list(self.view.objects_of(POD_DISRUPTION_BUDGETS).values())

        def on_node(row: int) -> Candidate | None:
            pods = sorted(potential(row), key=importance)
            protected, others = by_protection((*pods, *gangs.elsewhere(pods)), budgets)
            units = self._left(attempt, row, [*protected, *others], gangs)
            if not units:
                return None
            victims = together(units)
            violations = len({pod.uid for pod in protected}.intersection([pod.uid for pod in victims]))
            in_order = tuple(sorted(victims, key=importance))
            return Candidate(row, in_order, harm_of(victims, violations), with_gangs(units))

        versions = tuple((each.metadata.uid, each.metadata.resource_version) for each in budgets)
        key = "preemption/victims", versions
        candidate_on = self._cached(attempt, key, on_node, potential, gangs)
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

    def _left(
        self, attempt: FailedAttempt, row: int, in_order: Sequence[PodInfo], gangs: Gangs
    ) -> Sequence[VictimUnit] | None:
        """Those of the potential victims on ``row`` that have to leave. None when the pod does not fit whoever does."""
        if not gangs.include(in_order):
            victims = attempt.reprieve(row, in_order, self.require) if in_order else None
            return [VictimUnit((victim,)) for victim in victims or ()]
        here = self.view.pods_on[row]
        units = [_reprieved_whole(unit, here) for unit in gangs.units([pod for pod in in_order if pod.uid in here])[0]]
        pod = attempt.state.pod
        with self.handle.simulate(attempt) as simulation:
            if self.require is not None:
                simulation.require(self.require)
            for victim in together(units):
                simulation.remove(victim)
            if not simulation.fits(pod, row):
                return None
            left = simulation.put_back_while(lambda: simulation.fits(pod, row), units)
            return left if simulation.fits(pod, row) else None

    def _why_not(
        self, attempt: FailedAttempt, rows: Sequence[int], potential: PotentialVictims, gangs: Gangs
    ) -> Mapping[str, int]:
        """Reason why preemption does not help -> the number of nodes with it. Called only if there is no candidate at
        all, since finding all reasons costs more than finding that there is one."""

        def on_node(row: int) -> tuple[str, ...] | None:
            if not (pods := potential(row)):
                return None
            units, staying = gangs.units(sorted(pods, key=importance))
            texts = [reason.text for reason in attempt.reasons(row, together(units), self.require)] if units else []
            return (*texts, *([SPARED] if staying else ()))

        why_not = self._cached(attempt, ("preemption/why not",), on_node, potential, gangs)
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
        self,
        attempt: FailedAttempt,
        key: tuple[Hashable, ...],
        compute: Callable[[int], T],
        potential: PotentialVictims,
        gangs: Gangs,
    ) -> Callable[[int], T]:
        if not self.is_local:
            return compute
        cached = attempt.remember((*key, self.name, attempt.state.pod.priority), compute)
        if not gangs.are_known:
            return cached
        # Whether a gang can spare a member depends on those on other nodes.
        return lambda row: compute(row) if gangs.include(potential(row)) else cached(row)


def _reprieved_whole(unit: VictimUnit, here: Mapping[str, PodInfo]) -> VictimUnit:
    """The unit with its companions on other nodes as its own pods: they stay when it does. Those ``here`` are reprieved
    by themselves."""
    elsewhere = [pod for pod in unit.companions if pod.uid not in here]
    companions = [pod for pod in unit.companions if pod.uid in here]
    return VictimUnit((*unit.pods, *elsewhere), tuple(companions), unit.gang)


class PodPreemption(NodePreemption):
    """Pods of lower priority may be evicted if ``may_be_victim`` returns True for them. ``args`` are the plugin's: how
    many of the nodes where preemption may help are collected as candidates at least, if there are as many."""

    def __init__(self, plugin: Preempting, args: Any, may_be_victim: MayBeVictim = lambda pod: True) -> None:
        super().__init__(plugin)
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
    with_gangs: Mapping[str, str]
    """See PostFilterResult."""


def pods_on_nominated_node(view: ClusterView, pod: PodInfo, statuses: Iterable[NodeStatus]) -> Iterable[PodInfo]:
    """The pods on the node that ``pod`` is nominated to; empty if preemption cannot help there any more."""
    row = view.columns.row_of.get(view.nominations.node_of(pod.uid))
    if row is None or any(status.unresolvable and row in status.rows for status in statuses):
        return ()
    return view.pods_on[row].values()
