"""PostFilter: what is done about a pod for which no node passed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo

if TYPE_CHECKING:
    from koordinator.scheduler.engine.simulation import Simulation

T = TypeVar("T")


class FailedAttempt(Protocol):
    """What PostFilter can ask about an attempt for which no node passed, or which a plugin has ended before."""

    @property
    def state(self) -> CycleState:
        """What plugins have noted in this attempt."""

    def simulate(self) -> Simulation:
        """What would be if pods were gone, or there, on any nodes: a block at the end of which all is as it was."""

    @property
    def statuses(self) -> Sequence[NodeStatus]:
        """Every node that was rejected, grouped by the plugin that did it first and its reasons."""

    def fits(self, row: int, without: Sequence[PodInfo]) -> bool:
        """Whether the pod would pass all filters on ``row`` if the pods ``without`` were not there. Nominated pods of
        at least its priority count as being there."""

    def reprieve(self, row: int, candidates: Sequence[PodInfo]) -> list[PodInfo] | None:
        """Those of ``candidates`` that have to leave ``row`` for the pod to pass: all are taken off, then each is let
        back, from the front, if the pod still passes. None when it does not even pass without all of them."""

    def reasons(self, row: int, without: Sequence[PodInfo]) -> Sequence[Reason]:
        """Why the pod would not pass on ``row`` even if the pods ``without`` were not there; empty if it would."""

    def remember(self, key: Hashable, compute: Callable[[int], T]) -> Callable[[int], T]:
        """A function of a row: what ``compute`` returns for it, cached under ``key`` for identical pods until the row
        changes."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Rows that one plugin was the first to reject, for the same reasons. ``plugin`` is empty for rows that PreFilter
    left out."""

    plugin: str
    reasons: tuple[Reason, ...]
    rows: Rows

    @property
    def unresolvable(self) -> bool:
        """Evicting pods from these nodes would not help."""
        return any(reason.unresolvable for reason in self.reasons)


class Nomination(NamedTuple):
    """The pod waits for the node; an empty name takes its nomination back."""

    pod: PodInfo
    node_name: str


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """A plan: who goes where, and who has to leave for that."""

    message: str = ""
    """What is added to the message of the failure."""
    nominated_node: str | None = None
    """The node that the pod waits for; empty takes a nomination back, None leaves it as it is."""
    victims: tuple[PodInfo, ...] = ()
    """To be evicted, from whatever nodes they are on."""
    plugin: str = ""
    """Who made the plan."""
    nominations: tuple[Nomination, ...] = ()
    """Of other pods, such as the members of the pod's gang."""
    cause: str = "preempting to accommodate a higher priority pod"
    """What the condition DisruptionTarget of the victims says after the scheduler's name."""

    @property
    def found(self) -> bool:
        return bool(self.nominated_node)


BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The reason of the condition that an evicted pod gets."""


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
        """No node passed: make room, or say why not. The first plugin with a node wins, the others do not run."""

    def result_key(self, pod: PodInfo) -> Hashable:
        """If not None: pods of one class with equal keys get the same result until something changes, and the plugin is
        run once for all of them. The default runs it for every attempt."""
        return None
