"""Job preemption: choosing lower-priority victims so that all pending members of a gang group fit at once.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/preemption.go. All or nothing: the members are placed one after
another in a simulation in which each sees the earlier ones, as many victims as possible are reprieved, and the whole
plan is simulated once more without the remaining victims. A plan that cannot place every member evicts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from koordinator.api.labels import DISABLE_PREEMPTIBLE, QUESTIONED_OBJECT_KEY, QUOTA_PREEMPTIBLE
from koordinator.scheduler.engine.cached_results import Failure
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, NodeStatus, is_preempted
from koordinator.scheduler.engine.simulation import Simulation, reasons_of
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.preemption import (
    SUCCESS,
    Found,
    Placements,
    Preemption,
    potential_victims,
)

_NO_VICTIMS: Final = "no potential victims"


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


PotentialByRow = Mapping[int, Sequence[PodInfo]]
PlaceInNetwork = Callable[[Simulation, Mapping[int, int]], Placements | str]
"""Called in a simulation without the potential victims, with a score for each node row: the higher the priorities of
the potential victims there, the lower. Returns the placements, or as a text why there are none."""


class JobPreemption(Preemption):
    """Nodes for all pending pods of a job."""

    leaving: ClassVar = "not eligible due to terminating pod on the nominated node."

    def __init__(self, name: str, view: ClusterView, job: Job, handle: Handle) -> None:
        super().__init__(name, view)
        self._job = job
        self._handle = handle
        self.waiting = job.waiting

    def preemptors(self, pod: PodInfo) -> Sequence[PodInfo]:
        return self._job.pending

    def statuses(self, attempt: FailedAttempt) -> Sequence[NodeStatus]:
        return attempt.statuses if self._job.statuses is None else self._job.statuses

    def is_awaited(self, pod: PodInfo, other: PodInfo) -> bool:
        return is_preempted(other) and self._may_be_victim(other)

    def nomination(self, pod: PodInfo) -> str | None:
        """The pod keeps its nomination, and the result ends PostFilter: another plugin that finds no node would clear
        the nomination."""
        return self.view.nominations.node_of(pod.uid) or None

    def success(self, pod: PodInfo) -> str:
        waiting = len(self.waiting)
        return f"{SUCCESS}, alreadyWaitingForBound: {waiting}/{len(self._job.pending) + waiting}"

    def cause(self, pod: PodInfo) -> str:
        preemptor = f"preemptor: {self._job.name}, triggerPod: {pod.key}"
        return f"preempting to accommodate higher priority pods, {preemptor}"

    def search(self, attempt: FailedAttempt, rows: Sequence[int]) -> Found | Mapping[str, int] | str:
        potential = {row: victims for row in rows if (victims := self._potential(row))}
        if not potential:
            return {_NO_VICTIMS: len(rows)}
        costs = _by_cost(self.view.columns.names, rows, potential)
        with self._handle.simulate(attempt) as simulation:
            simulation.require(self._refusal)
            start = simulation.mark
            _remove(simulation, [pod for row in costs for pod in potential.get(row, ())])
            placements = self._placed(simulation, costs)
            if isinstance(placements, str | Counter):
                return placements
            simulation.undo(start)
            victims = self._victims(simulation, placements, potential)
            simulation.undo(start)
            _remove(simulation, victims)
            if failed := self._failed(simulation, placements):
                pod, failure = failed
                return Counter(reason.text for reason in reasons_of(failure, pod))
        return Found(placements, victims)

    def _refusal(self, pod: PodInfo, row: int) -> Reason | None:
        """Why PreFilter of a plugin would reject the pod in the state of the simulation, such as exceeded quota."""
        refusals = (plugin.refusal_if_tried(pod) for plugin in self._handle.profile.pre_filter_cycle)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _may_be_victim(self, pod: PodInfo) -> bool:
        labels = pod.pod.metadata.labels
        spared = labels.get(DISABLE_PREEMPTIBLE) == "true" or labels.get(QUOTA_PREEMPTIBLE) == "false"
        return not spared and pod.uid not in self.waiting

    def _potential(self, row: int) -> list[PodInfo]:
        """The potential victims on a node row, in the order in which they are considered for reprieve."""
        victims = potential_victims(self.view, self._job.trigger.priority, self._may_be_victim, row)
        return sorted(victims, key=lambda pod: (-pod.priority, _job_of(pod), pod.key))

    def _placed(self, simulation: Simulation, rows: Mapping[int, int]) -> Placements | Counter[str] | str:
        """All pending members with their nodes; or, if a member finds no node, reason -> the number of nodes with it;
        or, as a text, why the network topology has no placement."""
        if self._job.in_network is not None:
            return self._job.in_network(simulation, {row: -1 - cost for row, cost in rows.items()})
        placements: list[tuple[PodInfo, int]] = []
        for pod in self._job.pending:
            failures: list[Failure | Reason] = []
            for row in rows:
                failure = simulation.admit(pod, row, ignoring=self._job.uids)
                if failure is None:
                    placements.append((pod, row))
                    break
                failures.append(failure)
            else:
                return Counter(reason.text for each in failures for reason in reasons_of(each, pod))
        return placements

    def _victims(self, simulation: Simulation, placements: Placements, potential: PotentialByRow) -> list[PodInfo]:
        """The potential victims that cannot be reprieved; those of the highest priority are tried first. All members
        are placed in the simulation meanwhile, also those on other nodes, since they may share a quota."""
        chosen = dict.fromkeys(row for _, row in placements)
        _remove(simulation, [pod for row in chosen for pod in potential.get(row, ())])
        self._failed(simulation, placements)
        victims: list[PodInfo] = []
        for row in chosen:
            on_row = [(pod, on) for pod, on in placements if on == row]
            _remove(simulation, [pod for pod, _ in on_row])
            still_fit = partial(self._all_fit, simulation, on_row)
            victims += simulation.put_back_while(still_fit, potential.get(row, ()))
            self._failed(simulation, on_row)
        return victims

    def _all_fit(self, simulation: Simulation, placements: Placements) -> bool:
        return self._failed(simulation, placements) is None

    def _failed(self, simulation: Simulation, placements: Placements) -> tuple[PodInfo, Failure | Reason] | None:
        """Place the pods, up to the first that does not fit: it is returned with why not."""
        for pod, row in placements:
            failure = simulation.admit(pod, row, ignoring=self._job.uids)
            if failure is not None:
                return pod, failure
        return None


def _by_cost(names: Sequence[str], rows: Sequence[int], potential: PotentialByRow) -> dict[int, int]:
    """Node row -> cost, in ascending order: first nodes without potential victims, then by the ranks of the victims'
    priorities, then by name."""
    priorities = sorted({pod.priority for victims in potential.values() for pod in victims})
    rank = {priority: number for number, priority in enumerate(priorities)}

    def cost(row: int) -> int:
        # Preempting one member disrupts its whole job: further victims of that job add no cost.
        ranks: dict[str, int] = {}
        for pod in potential.get(row, ()):
            key = _job_of(pod) or pod.uid
            ranks[key] = max(ranks.get(key, 0), rank[pod.priority])
        return sum(ranks.values()) if ranks else -1

    costs = {row: cost(row) for row in rows}
    return dict(sorted(costs.items(), key=lambda item: (item[1], names[item[0]])))


def _job_of(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get(QUESTIONED_OBJECT_KEY, "")


def _remove(simulation: Simulation, pods: Iterable[PodInfo]) -> None:
    for pod in pods:
        simulation.remove(pod)
