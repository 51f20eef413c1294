"""Job preemption: choosing lower-priority victims so that all pending members of a gang group fit at once.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/preemption.go. All or nothing: the members are placed one after
another in a simulation in which each sees the earlier ones, as many victims as possible are reprieved, and the whole
plan is simulated once more without the remaining victims. A plan that cannot place every member evicts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from koordinator.api.labels import DISABLE_PREEMPTIBLE, QUESTIONED_OBJECT_KEY, QUOTA_PREEMPTIBLE
from koordinator.scheduler.engine.cached_results import Failure
from koordinator.scheduler.engine.fit_error import preemption_error
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import (
    FailedAttempt,
    NodeStatus,
    Nomination,
    PostFilterResult,
    is_preempted,
)
from koordinator.scheduler.engine.simulation import Simulate, Simulation, reasons_of
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.preemption import NEVER, pods_on_nominated_node, potential_victims, resolvable_rows

_LEAVING: Final = "not eligible due to terminating pod on the nominated node."
_NOT_HELPFUL: Final = "preemption not helpful"
SUCCESS: Final = "preempt success"
_NO_VICTIMS: Final = "no potential victims"
_PREFIX: Final = "preemption: "


@dataclass(frozen=True, slots=True)
class Job:
    """Pods that are placed together: the members of a gang group, or a single pod. ``trigger`` is the pod for which no
    node was found; it is one of ``pending``. ``waiting``: uid -> a pod that waits at Permit, and its node's name."""

    trigger: PodInfo
    pending: Sequence[PodInfo]
    waiting: Mapping[str, tuple[PodInfo, str]]
    name: str
    """The id of the gang group, or the key of the pod."""
    in_network: PlaceInNetwork | None = None
    """Plans nodes for all of ``pending`` by the network topology; None if they have no such requirements."""
    statuses: Sequence[NodeStatus] | None = None
    """Why nodes cannot take more members, if that is known for the whole job; otherwise the statuses of the trigger's
    attempt are used."""

    @property
    def uids(self) -> set[str]:
        return {*(pod.uid for pod in self.pending), *self.waiting}


class JobPlan(NamedTuple):
    """``outcome`` is one of a few fixed phrases, used as a metric label; ``message`` has the details."""

    outcome: str
    message: str
    result: PostFilterResult


Placements = list[tuple[PodInfo, int]]
Refusal = Callable[[PodInfo], Reason | None]
PlaceInNetwork = Callable[[Simulation, Mapping[int, int]], Placements | str]
"""Called in a simulation without the potential victims, with a score for each node row: the higher the priorities of
the potential victims there, the lower. Returns the placements, or as a text why there are none."""


class JobPreemption:
    """Plans the preemption of jobs. ``refusal`` returns why a pod can be placed on no node in the state of a
    simulation, such as exceeded quota; None if it can. ``simulate`` is that of the plugin's handle."""

    def __init__(self, name: str, view: ClusterView, refusal: Refusal, simulate: Simulate) -> None:
        self._name = name
        self._view = view
        self._refusal = refusal
        self._simulate = simulate

    def plan(self, job: Job, attempt: FailedAttempt) -> JobPlan:
        """The nodes of the members and the victims, or why there is no plan."""
        refusal = self._not_eligible(job, attempt)
        if refusal:
            return self.unchanged(job.trigger, refusal, refusal)
        rows = resolvable_rows(_statuses(job, attempt))
        potential = {row: victims for row in rows if (victims := self._potential(job, row))}
        nodes = len(self._view.columns.row_of)
        if not potential:
            return self._not_helpful(job, preemption_error(nodes, {_NO_VICTIMS: len(rows)}, len(rows)))
        found = self._placed(job, attempt, self._costs(rows, potential), potential)
        if isinstance(found, str):
            return self._not_helpful(job, found)
        if isinstance(found, Counter):
            return self._not_helpful(job, preemption_error(nodes, found, len(rows)))
        placements, victims = found
        message = f"{SUCCESS}, alreadyWaitingForBound: {len(job.waiting)}/{len(job.pending) + len(job.waiting)}"
        return JobPlan(SUCCESS, message, self._result(job, placements, victims))

    def unchanged(self, pod: PodInfo, outcome: str, message: str) -> JobPlan:
        """The plan without victims for a pod for which preemption is not tried now. The pod keeps its nomination, and
        the result ends PostFilter: another plugin that finds no node would clear the nomination."""
        nominated = self._view.nominations.node_of(pod.uid) or None
        return JobPlan(outcome, message, PostFilterResult(f"{_PREFIX}{message}", nominated))

    def _not_helpful(self, job: Job, text: str) -> JobPlan:
        """A failed plan, which clears the nominations of all members, the waiting ones included, so that other pods can
        use their nodes."""
        members = (*job.pending, *(pod for pod, _ in job.waiting.values()))
        cleared = tuple(Nomination(pod, "") for pod in members if self._view.nominations.node_of(pod.uid))
        return JobPlan(_NOT_HELPFUL, text, PostFilterResult(f"{_PREFIX}{text}", "", nominations=cleared))

    def _result(self, job: Job, placements: Placements, victims: Sequence[PodInfo]) -> PostFilterResult:
        names = self._view.columns.names
        nodes = {pod.uid: Nomination(pod, names[row]) for pod, row in placements}
        # Waiting members release their nodes when the attempt ends, so they are nominated to the same nodes.
        nodes.update({uid: Nomination(pod, node_name) for uid, (pod, node_name) in job.waiting.items()})
        own = nodes.pop(job.trigger.uid)
        cause = f"preempting to accommodate higher priority pods, preemptor: {job.name}, triggerPod: {job.trigger.key}"
        return PostFilterResult("", own.node_name, tuple(victims), self._name, tuple(nodes.values()), cause)

    def _not_eligible(self, job: Job, attempt: FailedAttempt) -> str:
        """Why the job may not preempt any pod (now); empty if it may."""
        if job.trigger.pod.spec.preemption_policy == "Never":
            return NEVER
        for pod in job.pending:
            # For the other members, it is not known on which nodes preemption would not help.
            statuses = _statuses(job, attempt) if pod.uid == job.trigger.uid else ()
            on_node = pods_on_nominated_node(self._view, pod, statuses)
            less_important = [other for other in on_node if other.priority < job.trigger.priority]
            if any(is_preempted(other) and _may_be_victim(job, other) for other in less_important):
                return _LEAVING
        return ""

    def _potential(self, job: Job, row: int) -> list[PodInfo]:
        """The potential victims on a node row, in the order in which they are considered for reprieve."""
        victims = potential_victims(self._view, job.trigger.priority, partial(_may_be_victim, job), row)
        return sorted(victims, key=lambda pod: (-pod.priority, _job_of(pod), pod.key))

    def _costs(self, rows: Sequence[int], potential: Mapping[int, Sequence[PodInfo]]) -> dict[int, int]:
        """Node row -> cost, in ascending order: first nodes without potential victims, then by the ranks of the
        victims' priorities, then by name."""
        priorities = sorted({pod.priority for victims in potential.values() for pod in victims})
        rank = {priority: number for number, priority in enumerate(priorities)}
        names = self._view.columns.names

        def cost(row: int) -> int:
            # Preempting one member disrupts its whole job: further victims of that job add no cost.
            ranks: dict[str, int] = {}
            for pod in potential.get(row, ()):
                key = _job_of(pod) or pod.uid
                ranks[key] = max(ranks.get(key, 0), rank[pod.priority])
            return sum(ranks.values()) if ranks else -1

        costs = {row: cost(row) for row in rows}
        return dict(sorted(costs.items(), key=lambda item: (item[1], names[item[0]])))

    def _placed(
        self, job: Job, attempt: FailedAttempt, rows: Mapping[int, int], potential: Mapping[int, Sequence[PodInfo]]
    ) -> tuple[Placements, list[PodInfo]] | Counter[str] | str:
        """All pending members with their nodes, and the victims; or, if a member finds no node, reason -> the number of
        nodes with it; or, as a text, why the network topology has no placement."""
        uids = job.uids
        with self._simulate(attempt) as simulation:
            simulation.require(lambda pod, row: self._refusal(pod))
            start = simulation.mark
            _remove(simulation, [pod for row in rows for pod in potential.get(row, ())])
            placements: Placements = []
            if job.in_network is not None:
                found = job.in_network(simulation, {row: -1 - cost for row, cost in rows.items()})
                if isinstance(found, str):
                    return found
                placements = found
            for pod in job.pending if job.in_network is None else ():
                failures: list[Failure | Reason] = []
                for row in rows:
                    failure = _place(simulation, pod, row, uids)
                    if failure is None:
                        placements.append((pod, row))
                        break
                    failures.append(failure)
                else:
                    return Counter(reason.text for each in failures for reason in reasons_of(each, pod))
            simulation.undo(start)
            victims = self._victims(simulation, placements, potential, uids)
            simulation.undo(start)
            _remove(simulation, victims)
            for pod, row in placements:
                failure = _place(simulation, pod, row, uids)
                if failure is not None:
                    return Counter(reason.text for reason in reasons_of(failure, pod))
        return placements, victims

    def _victims(
        self,
        simulation: Simulation,
        placements: Placements,
        potential: Mapping[int, Sequence[PodInfo]],
        uids: Collection[str],
    ) -> list[PodInfo]:
        """The potential victims that cannot be reprieved; those of the highest priority are tried first. All members
        are placed in the simulation meanwhile, also those on other nodes, since they may share a quota."""
        chosen = dict.fromkeys(row for _, row in placements)
        _remove(simulation, [pod for row in chosen for pod in potential.get(row, ())])
        _place_all(simulation, placements, uids)
        victims: list[PodInfo] = []
        for row in chosen:
            on_row = [(pod, on) for pod, on in placements if on == row]
            _remove(simulation, [pod for pod, _ in on_row])
            victims += simulation.put_back_while(partial(_place_all, simulation, on_row, uids), potential.get(row, ()))
            _place_all(simulation, on_row, uids)
        return victims


def _statuses(job: Job, attempt: FailedAttempt) -> Sequence[NodeStatus]:
    return attempt.statuses if job.statuses is None else job.statuses


def _may_be_victim(job: Job, pod: PodInfo) -> bool:
    labels = pod.pod.metadata.labels
    return (
        labels.get(DISABLE_PREEMPTIBLE) != "true"
        and labels.get(QUOTA_PREEMPTIBLE) != "false"
        and pod.uid not in job.waiting
    )


def _job_of(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get(QUESTIONED_OBJECT_KEY, "")


def _remove(simulation: Simulation, pods: Iterable[PodInfo]) -> None:
    for pod in pods:
        simulation.remove(pod)


def _place(simulation: Simulation, pod: PodInfo, row: int, uids: Collection[str]) -> Failure | Reason | None:
    """Place the pod in the simulation, or return why it does not fit; then the simulation is unchanged."""
    return simulation.failure(pod, row, ignoring=uids) or simulation.place(pod, row)


def _place_all(simulation: Simulation, placements: Placements, uids: Collection[str]) -> bool:
    return all(_place(simulation, pod, row, uids) is None for pod, row in placements)
