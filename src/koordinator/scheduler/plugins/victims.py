"""Victims of preemption: who may leave, who leaves with whom, and how much harm that does.

With a plugin that knows ``DisruptionUnits``, a gang gives up only the members that it can do without, or leaves whole:
of its members on all nodes, those that are not spare are one unit, which leaves if each of them may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from koordinator.api.workload import PodDisruptionBudget
from koordinator.model.label_selector import compile_selector
from koordinator.scheduler.engine.framework_hooks import DisruptionUnit, DisruptionUnits
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import VictimUnit
from koordinator.scheduler.engine.view import ClusterView

SPARED: Final = "Gang members that do not leave, since their gang cannot leave whole"
"""What the message says about nodes where gangs are spared."""
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SHIFT: Final = 2**31

MayBeVictim = Callable[[PodInfo], bool]
"""Whether a pod of lower priority than the preemptor may be evicted for it."""


def is_potential(view: ClusterView, priority: int, may_be_victim: MayBeVictim, pod: PodInfo) -> bool:
    """Whether a pod may be evicted for a preemptor of ``priority``. Pseudo pods, which represent Reservations, cannot
    be."""
    return pod.priority < priority and pod.uid not in view.pseudo_pods and may_be_victim(pod)


def potential_victims(view: ClusterView, priority: int, may_be_victim: MayBeVictim, row: int) -> list[PodInfo]:
    """The pods on a node row that may be evicted, see ``is_potential``."""
    less_important = [other for other in view.pods_on[row].values() if other.priority < priority]
    return [other for other in less_important if is_potential(view, priority, may_be_victim, other)]


class Gangs:
    """The gangs of potential victims, for one plan: each is looked up once. ``may_leave``: whether the plan may evict a
    pod."""

    def __init__(self, known: DisruptionUnits | None, may_leave: MayBeVictim) -> None:
        self._known, self._may_leave = known, may_leave
        self._units: dict[str, DisruptionUnit] = {}
        """By the id of the gang."""
        self._leaves: dict[tuple[str, ...], bool] = {}
        """The ids of gangs that stay together -> whether all of their members may leave."""

    @property
    def are_known(self) -> bool:
        """Whether any pod may have to leave with others."""
        return self._known is not None

    def include(self, pods: Iterable[PodInfo]) -> bool:
        """Whether any of the pods does not simply leave alone."""
        return self.are_known and any(self._unit_of(pod) is not None for pod in pods)

    def elsewhere(self, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """The other pods that leave if one of the gangs of ``pods`` leaves whole."""
        here, found = {pod.uid for pod in pods}, dict[str, PodInfo]()
        for pod in pods:
            if (unit := self._unit_of(pod)) is not None:
                found.update(unit.members)
        return [pod for uid, pod in found.items() if uid not in here]

    def units(self, pods: Sequence[PodInfo]) -> tuple[list[VictimUnit], list[PodInfo]]:
        """The units of ``pods``, which are in the order in which they are reprieved; and those of the pods that stay
        whatever happens, since their gang can neither spare them nor leave whole.

        A gang that can spare fewer than there are spares the least important; all others are one unit, in the place of
        the first."""
        core = self._core(pods)
        units: list[VictimUnit] = []
        staying: list[PodInfo] = []
        begun: set[tuple[str, ...]] = set()
        for pod in pods:
            unit = self._unit_of(pod)
            if unit is None or pod.uid not in core.get(unit.group, ()):
                units.append(VictimUnit((pod,)))
            elif not self._leaves_whole(unit):
                staying.append(pod)
            elif unit.group not in begun:
                begun.add(unit.group)
                together = core[unit.group]
                others = tuple([each for uid, each in unit.members.items() if uid not in together])
                units.append(VictimUnit(tuple(together.values()), others, ",".join(unit.group)))
        return units, staying

    def _core(self, pods: Sequence[PodInfo]) -> Mapping[tuple[str, ...], Mapping[str, PodInfo]]:
        """By gangs that stay together: the pods that none of them can spare, by uid."""
        of_gang: dict[str, tuple[DisruptionUnit, list[PodInfo]]] = {}
        for pod in pods:
            if (unit := self._unit_of(pod)) is not None:
                of_gang.setdefault(unit.gang, (unit, []))[1].append(pod)
        core: dict[tuple[str, ...], dict[str, PodInfo]] = {}
        for unit, members in of_gang.values():
            if needed := members[: max(len(members) - unit.spare, 0)]:
                core.setdefault(unit.group, {}).update({pod.uid: pod for pod in needed})
        return core

    def _unit_of(self, pod: PodInfo) -> DisruptionUnit | None:
        """None for a pod that leaves alone, or is on its way out already."""
        gang = self._known.gang_of(pod) if self._known is not None else ""
        if self._known is None or not gang:
            return None
        unit = self._units.get(gang)
        if unit is None:
            unit = self._units[gang] = self._known.unit(gang)
        return unit if pod.uid in unit.members else None

    def _leaves_whole(self, unit: DisruptionUnit) -> bool:
        if unit.group not in self._leaves:
            self._leaves[unit.group] = all(map(self._may_leave, unit.members.values()))
        return self._leaves[unit.group]


def together(units: Iterable[VictimUnit]) -> list[PodInfo]:
    """All pods of the units, with their companions, each once."""
    pods = {pod.uid: pod for unit in units for pod in (*unit.pods, *unit.companions)}
    return list(pods.values())


def with_gangs(units: Iterable[VictimUnit]) -> Mapping[str, str]:
    """Uid of a pod -> the id of its gang, which leaves whole."""
    return {pod.uid: unit.gang for unit in units if unit.gang for pod in (*unit.pods, *unit.companions)}


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
