"""Job preemption: choosing lower-priority victims so that all pending members of a gang group fit at once.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/preemption.go. All or nothing: the members are placed one after
another in a simulation in which each sees the earlier ones, as many victims as possible are reprieved, and the whole
plan is simulated once more without the remaining victims. A plan that cannot place every member evicts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import ClassVar, Final

from koordinator.api.labels import DISABLE_PREEMPTIBLE, QUESTIONED_OBJECT_KEY, QUOTA_PREEMPTIBLE
from koordinator.scheduler.engine.cached_results import Failure
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, NodeStatus, VictimUnit, is_preempted
from koordinator.scheduler.engine.simulation import Simulation, reasons_of
from koordinator.scheduler.plugins.preemption import SUCCESS, Found, Placements, Preempting, Preemption
from koordinator.scheduler.plugins.victims import SPARED, importance, potential_victims, together, with_gangs

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

    def __init__(self, plugin: Preempting, job: Job) -> None:
        super().__init__(plugin)
        self._job = job
        self.waiting = job.waiting
        self._gangs_of_victims = self.gangs(job.trigger, self._may_be_victim)

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
        everywhere = {row: victims for row in rows if (victims := self._potential(row))}
        found: Found | Mapping[str, int] | str = {_NO_VICTIMS: len(rows)} if rows else {}
        if not everywhere:
            return found
        for potential in self._alternatives(everywhere):
            found = self._search(attempt, rows, potential, spared=len(everywhere) - len(potential))
            if isinstance(found, Found):
                break
        return found

    def _search(
        self, attempt: FailedAttempt, rows: Sequence[int], potential: PotentialByRow, *, spared: int
    ) -> Found | Mapping[str, int] | str:
        """``spared``: the number of nodes where there are no potential victims since all are members of gangs that stay
        whatever happens."""
        if not potential:
            return Counter({_NO_VICTIMS: len(rows) - spared}) + Counter({SPARED: spared})
        costs = _by_cost(self.view.columns.names, rows, potential, self._companions(potential))
        with self.handle.simulate(attempt) as simulation:
            simulation.require(self._refusal)
            start = simulation.mark
            _remove(simulation, [pod for row in costs for pod in potential.get(row, ())])
            placements = self._placed(simulation, costs)
            if isinstance(placements, str | Counter):
                return placements
            simulation.undo(start)
            units = self._victims(simulation, placements, potential)
            simulation.undo(start)
            victims = together(units)
            _remove(simulation, victims)
            if failed := self._failed(simulation, placements):
                pod, failure = failed
                return Counter(reason.text for reason in reasons_of(failure, pod))
        return Found(placements, victims, with_gangs(units))

    def _refusal(self, pod: PodInfo, row: int) -> Reason | None:
        """Why PreFilter of a plugin would reject the pod in the state of the simulation, such as exceeded quota."""
        refusals = (plugin.refusal_if_tried(pod) for plugin in self.handle.profile.pre_filter_cycle)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _may_be_victim(self, pod: PodInfo) -> bool:
        labels = pod.pod.metadata.labels
        spared = labels.get(DISABLE_PREEMPTIBLE) == "true" or labels.get(QUOTA_PREEMPTIBLE) == "false"
        return not spared and pod.uid not in self.waiting

    def _alternatives(self, everywhere: PotentialByRow) -> Iterator[PotentialByRow]:
        """The potential victims without the members of gangs that stay whatever happens. First all that could be spared
        if no others left than those on their own nodes; and where that helps not, since they are too many together, the
        least important ones, as many as can be spared at once."""
        pods, gangs = [pod for victims in everywhere.values() for pod in victims], self._gangs_of_victims
        if not gangs.include(pods):
            yield everywhere
            return
        alone = _without([pod for victims in everywhere.values() for pod in gangs.units(victims)[1]], everywhere)
        yield alone
        at_once = _without(gangs.units(sorted(pods, key=importance))[1], everywhere)
        if at_once != alone:
            yield at_once

    def _potential(self, row: int) -> list[PodInfo]:
        """The potential victims on a node row, in the order in which they are considered for reprieve."""
        victims = potential_victims(self.view, self._job.trigger.priority, self._may_be_victim, row)
        return sorted(victims, key=lambda pod: (-pod.priority, _job_of(pod), pod.key))

    def _companions(self, potential: PotentialByRow) -> PotentialByRow:
        """Row -> the pods elsewhere that leave, too, if all potential victims of the row do."""
        gangs, found = self._gangs_of_victims, dict[int, Sequence[PodInfo]]()
        for row, victims in potential.items():
            if gangs.include(victims):
                here = {pod.uid for pod in victims}
                units, _ = gangs.units(victims)
                found[row] = [pod for pod in together(units) if pod.uid not in here]
        return found

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

    def _victims(self, simulation: Simulation, placements: Placements, potential: PotentialByRow) -> list[VictimUnit]:
        """The potential victims that cannot be reprieved; on each node, those of the highest priority are tried first.
        All members are placed in the simulation meanwhile, also those on other nodes, since they may share a quota."""
        chosen = dict.fromkeys(row for _, row in placements)
        row_of = {pod.uid: row for row in chosen for pod in potential.get(row, ())}
        in_order = [pod for row in chosen for pod in potential.get(row, ())]
        units, _ = self._gangs_of_victims.units(in_order)
        _remove(simulation, in_order)
        self._failed(simulation, placements)
        victims: list[VictimUnit] = []
        leaving: set[str] = set()
        for rows, there in groupby(units, lambda unit: {row_of[pod.uid] for pod in unit.pods}):
            on_rows = [(pod, on) for pod, on in placements if on in rows]
            _remove(simulation, [pod for pod, _ in on_rows])
            still_fit = partial(self._all_fit, simulation, on_rows)
            found = simulation.put_back_while(still_fit, [unit for unit in there if unit.pods[0].uid not in leaving])
            leaving.update(pod.uid for unit in found for pod in unit.companions)
            victims += found
            self._failed(simulation, on_rows)
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


def _by_cost(
    names: Sequence[str], rows: Sequence[int], potential: PotentialByRow, companions: PotentialByRow
) -> dict[int, int]:
    """Node row -> cost, in ascending order: first nodes without potential victims, then by the ranks of the priorities
    of the victims and their companions, then by the number of these, then by name."""
    everywhere = (*potential.values(), *companions.values())
    priorities = sorted({pod.priority for victims in everywhere for pod in victims})
    rank = {priority: number for number, priority in enumerate(priorities)}

    def cost(row: int) -> int:
        # Preempting one member disrupts its whole job: further victims of that job add no cost.
        ranks: dict[str, int] = {}
        for pod in (*potential.get(row, ()), *companions.get(row, ())):
            key = _job_of(pod) or pod.uid
            ranks[key] = max(ranks.get(key, 0), rank[pod.priority])
        return sum(ranks.values()) if ranks else -1

    costs = {row: cost(row) for row in rows}
    return dict(sorted(costs.items(), key=lambda item: (item[1], len(companions.get(item[0], ())), names[item[0]])))


def _without(staying: Iterable[PodInfo], potential: PotentialByRow) -> PotentialByRow:
    uids = {pod.uid for pod in staying}
    left = {row: [pod for pod in victims if pod.uid not in uids] for row, victims in potential.items()}
    return {row: victims for row, victims in left.items() if victims}


def _job_of(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get(QUESTIONED_OBJECT_KEY, "")


def _remove(simulation: Simulation, pods: Iterable[PodInfo]) -> None:
    for pod in pods:
        simulation.remove(pod)
