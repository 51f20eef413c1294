"""A pod in the queue, with the results of its attempts, and its place in the order by a QueueSort plugin that may fail:
an error costs a pod its place at most, never the queue.

If a key cannot be computed, or cannot be compared with another one, that is an error of the plugin; the pod's priority
decides then. Plugins of this package need none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from functools import cache, total_ordering
from typing import Any, Final

import msgspec

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.event_listeners import OnError
from koordinator.scheduler.engine.framework import QueueSortPlugin
from koordinator.scheduler.engine.pod_info import PodInfo

_ASSIGNED: Final = "Assigned"


class Cause:
    """What brings a pod into a pool, except for cluster events, whose labels ``of_event`` returns."""

    ADDED: Final = "UnschedulablePodAdd"
    CHANGED: Final = "UnschedulablePodUpdate"
    FAILED: Final = "ScheduleAttemptFailure"
    BACKED_OFF: Final = "BackoffComplete"
    TAKEN_EARLY: Final = "PopFromBackoffQ"
    TIMED_OUT: Final = "UnschedulableTimeout"
    ACTIVATED: Final = "ForceActivate"


@cache
def of_event(kind: str) -> str:
    """The label of an event kind such as ``Node/Add``. Events about pods are about those on nodes."""
    resource, _, action = kind.partition("/")
    return f"{_ASSIGNED if resource == 'Pod' else ''}{resource}{action}"


class Pool(Enum):
    """The pool that a pod is in; the value is the ``queue`` label of upstream's scheduler_pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"
    """Being decided about or bound; not pending for the metric."""
    PREEMPTING = "preempting"
    """Victims are being evicted for it; its attempt ends with their eviction. Counted as pending, and by the metric as
    gated."""

    # Enum's own hashes the name at each call, and the queue counts each move of a pod.
    __hash__ = object.__hash__


UNDER_WAY: Final = (Pool.IN_FLIGHT, Pool.PREEMPTING)
"""An attempt is in progress, so the pod must not be tried."""


NO_KINDS: Final[frozenset[str]] = frozenset()


class QueuedPod(msgspec.Struct, eq=False):
    """One pod; only the queue writes it."""

    pod: PodInfo
    created_at: float
    """When the queue first saw it, in seconds of the queue's clock."""
    queued_at: float
    """When it was last put into the queue: orders pods of equal priority."""
    pool: Pool = Pool.ACTIVE
    attempts: int = 0
    rejections: int = 0
    """Consecutive attempts for which no node fitted."""
    errors: int = 0
    """Consecutive attempts that failed for another reason."""
    backoff_until: float = 0.0
    """The end of the second in which its back-off ends."""
    events_to_register: frozenset[str] = NO_KINDS
    """The kinds of event that may make it schedulable."""
    reason: str = ""
    """Why it is unschedulable or gated."""
    refusal: str = ""
    """What the plugin said that ended its last attempt before any node was filtered; a part of ``reason``."""
    updated_at: float = 0.0
    """When ``refusal`` was last updated without an attempt, in seconds of the queue's clock."""
    plugins: frozenset[str] = NO_KINDS
    """The plugins that rejected its nodes."""
    group: Hashable = None
    """Equal for pods that the same events make schedulable; None for a pod without such a group."""
    popped_at: float = 0.0
    """When its last attempt began."""
    seen: int = 0
    """The number of the last event before its attempt began."""
    changed: bool = False
    """Whether the pod itself changed during its attempt."""
    ticket: int = 0
    """The number of its valid heap entry; older ones are skipped."""


def may_matter(old: Pod, new: Pod) -> bool:
    """Whether the change of a pending pod may make it schedulable; changes of its status cannot."""
    before, after = old.metadata, new.metadata
    return old.spec != new.spec or before.labels != after.labels or before.annotations != after.annotations


def checked_sort_key(plugin: QueueSortPlugin, on_error: OnError) -> Callable[[PodInfo, float], tuple[Any, ...]]:
    """The keys of ``plugin`` in a form that can always be compared; their last item is the age."""

    def notified(error: Exception) -> None:
        on_error(plugin.name, "sort_key", error)

    def sort_key(pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        try:
            *importance, age = plugin.sort_key(pod, queued_at)
            return _Importance(tuple(importance), pod.priority, notified), float(age)
        except Exception as error:
            notified(error)
            return _Importance(None, pod.priority, notified), queued_at

    return sort_key


@total_ordering
class _Importance:
    """The smallest is scheduled first; pods without a key of the plugin come after those that have one."""

    __slots__ = ("_key", "_notified", "_priority")

    def __init__(self, key: tuple[Any, ...] | None, priority: int, notified: Callable[[Exception], None]) -> None:
        self._key = key
        self._priority = priority
        self._notified = notified

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Importance):
            return NotImplemented
        return self._compare(other, lambda one, another: one == another)

    def __lt__(self, other: _Importance) -> bool:
        return self._compare(other, lambda one, another: one < another)

    def __hash__(self) -> int:
        return hash(self._priority)

    def _compare(self, other: _Importance, compare: Callable[[Any, Any], Any]) -> bool:
        if self._key is not None and other._key is not None:
            try:
                return bool(compare(self._key, other._key))
            except Exception as error:
                self._notified(error)
        has_none = self._key is None, other._key is None
        return bool(compare((has_none[0], -self._priority), (has_none[1], -other._priority)))
