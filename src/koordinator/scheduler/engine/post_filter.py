"""PostFilter: what is done for a pod for which no node passed, usually preemption."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo

T = TypeVar("T")
Predicate = Callable[[PodInfo, int], Reason | None]
"""Returns why the pod must not go to the row in the simulated state, although all filters pass."""


class FailedAttempt(Protocol):
    """What PostFilter plugins see of an attempt for which no node passed, or which a plugin has ended before Filter.
    ``Handle.simulate`` removes pods from nodes, and places them, hypothetically."""

    @property
    def state(self) -> CycleState:
        """The state in which plugins keep data of this attempt."""

    @property
    def statuses(self) -> Sequence[NodeStatus]:
        """Every node that was rejected, grouped by the first plugin that rejected it and its reasons."""

    def fits(self, row: int, without: Sequence[PodInfo]) -> bool:
        """Whether the pod would pass all filters on ``row`` if the pods ``without`` were not there. Nominated pods of
        at least its priority count as being there."""

    def reprieve(
        self, row: int, candidates: Sequence[PodInfo], require: Predicate | None = None
    ) -> list[PodInfo] | None:
        """Those of ``candidates`` that have to leave ``row`` for the pod to pass, and to meet what is required: all are
        removed, then each is put back (reprieved), from the front, if the pod still passes. None when the pod does not
        pass even without all of them."""

    def reasons(self, row: int, without: Sequence[PodInfo], require: Predicate | None = None) -> Sequence[Reason]:
        """Why the pod would not pass on ``row``, or not meet what is required, even if the pods ``without`` were not
        there; empty if it would."""

    def remember(self, key: Hashable, compute: Callable[[int], T]) -> Callable[[int], T]:
        """Return a function of a row: the result of ``compute`` for it, cached under ``key`` for identical pods until
        the row changes."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Rows that one plugin was the first to reject, for the same reasons. ``plugin`` is empty for rows that PreFilter
    excluded."""

    plugin: str
    reasons: tuple[Reason, ...]
    rows: Rows

    @property
    def unresolvable(self) -> bool:
        """Evicting pods from these nodes would not help."""
        return any(reason.unresolvable for reason in self.reasons)


class VictimUnit(NamedTuple):
    """Potential victims that are reprieved together: one pod, or those of a gang of which none can stay alone."""

    pods: tuple[PodInfo, ...]
    companions: tuple[PodInfo, ...] = ()
    """Pods on whatever nodes that leave if ``pods`` do: the other members of the gang."""
    gang: str = ""
    """The id of the gang that leaves whole with ``pods``; empty for a pod that leaves alone."""


class Nomination(NamedTuple):
    """Nominates the pod to the node; an empty name clears its nomination."""

    pod: PodInfo
    node_name: str


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """A plan: the nominated nodes, and the pods that must be evicted first."""

    message: str = ""
    """Text appended to the message of the failed attempt."""
    nominated_node: str | None = None
    """The node that the pod is nominated to; empty clears a nomination, None leaves it as it is."""
    victims: tuple[PodInfo, ...] = ()
    """The pods to evict, on whatever nodes they are."""
    plugin: str = ""
    """The plugin that made the plan."""
    nominations: tuple[Nomination, ...] = ()
    """Nominations of other pods, such as the members of the pod's gang."""
    cause: str = "preempting to accommodate a higher priority pod"
    """The text of the condition DisruptionTarget of the victims after the scheduler's name."""
    with_gangs: Mapping[str, str] = field(default_factory=dict)
    """Uid of a victim -> the id of its gang, which leaves whole."""

    @property
    def found(self) -> bool:
        return bool(self.nominated_node)


BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The reason of the condition DisruptionTarget of a preempted pod."""


def is_preempted(pod: PodInfo) -> bool:
    """Whether the pod is being deleted because a scheduler evicted it."""
    if pod.pod.metadata.deletion_timestamp is None:
        return False
    conditions = [each for each in pod.pod.status.conditions if each.type == "DisruptionTarget"]
    return bool(conditions) and conditions[0].status == "True" and conditions[0].reason == BY_SCHEDULER


NO_PLAN: Final = PostFilterResult()


class PostFilterPlugin(Plugin):
    @abstractmethod
    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        """Called when no node passed: return a plan of preemption, or a message why there is none. The first plugin
        with a node wins, the others do not run."""

    def result_key(self, pod: PodInfo) -> Hashable:
        """If not None: pods of one class with equal keys get the same result until something changes, and the plugin
        runs once for all of them. By default it runs for every attempt."""
        return None
