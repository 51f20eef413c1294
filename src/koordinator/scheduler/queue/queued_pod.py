"""A pod in the queue, with the results of its attempts."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from functools import cache
from typing import Final

import msgspec

from koordinator.api.pod import Pod
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
