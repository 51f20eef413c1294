"""One attempt to place one pod: its state (upstream: CycleState), PreFilter for the attempt, and PostFilter, usually
preemption, if no node passed.

What PreFilter and PreScore prepare is kept for a class of identical pods. What holds for one attempt alone, such as
whether the pod's gang is complete or how much of its quota is left, is computed in each attempt, and what plugins write
into its state for each other lasts until the pod is bound or the attempt fails.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec

from koordinator.scheduler.engine.columns import NodeReference, Rows
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class CycleState(msgspec.Struct, eq=False):
    """``pod`` is the pod of the attempt; ``node`` the node that was chosen, None before Reserve."""

    pod: PodInfo
    node: NodeReference | None = None
    _data: dict[Hashable, Any] | None = None

    def write(self, key: Hashable, value: Any) -> None:
        """Store ``value`` for plugins that read ``key`` later in this attempt."""
        if self._data is None:
            self._data = {}
        self._data[key] = value

    def read(self, key: Hashable, default: Any = None) -> Any:
        """The value last written to ``key``, else ``default``."""
        return default if self._data is None else self._data.get(key, default)


class CyclePreFilterPlugin(Plugin):
    """A plugin that is called where it is listed at PreFilter, in every attempt, before the plugins that are called
    once for each class."""

    sees_all_attempts: ClassVar[bool] = False
    """Whether it is called before plugins without this flag, wherever it is listed, so that none of these can end an
    attempt that it has not seen (upstream: a PreFilterTransformer)."""

    @abstractmethod
    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        """The reason to end this attempt; None to continue. Called in every attempt, so it must be quick. The class of
        the pod keeps its filter results: PostFilter plugins are called as if this plugin had rejected every node, and
        may simulate. The pod waits for ``events_to_register``."""

    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        """The reason for which an attempt of the pod would be ended at present, or within a simulation; called by
        plugins that plan for several pods, and every few seconds for the condition of a pod that this plugin keeps
        waiting. Changes nothing. The default is None."""
        return None

    def waits_as(self, pod: PodInfo) -> Hashable:
        """If not None: pods that this plugin has rejected and whose keys are equal wait for the same events, so that
        ``queueing_hint`` is called once for all of them. By default it is called for every pod."""
        return None


T = TypeVar("T")


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

    def reprieve(self, row: int, candidates: Sequence[PodInfo]) -> list[PodInfo] | None:
        """Those of ``candidates`` that have to leave ``row`` for the pod to pass: all are removed, then each is put
        back (reprieved), from the front, if the pod still passes. None when the pod does not pass even without all of
        them."""

    def reasons(self, row: int, without: Sequence[PodInfo]) -> Sequence[Reason]:
        """Why the pod would not pass on ``row`` even if the pods ``without`` were not there; empty if it would."""

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
