"""A pod in the queue, with what its attempts have left behind."""

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
    """Everything but events of the cluster, whose labels ``of_event`` gives."""

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
    """Where a pod waits; the value is the ``queue`` label of upstream's scheduler_pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"
    """Being decided about or bound; not pending for the metric."""
    PREEMPTING = "preempting"
    """Victims are being evicted for it; until then its attempt is not over. Pending, and gated as the metric has it."""

    # That of Enum hashes the name anew each time, and the queue counts each move of a pod.
    __hash__ = object.__hash__


UNDER_WAY: Final = (Pool.IN_FLIGHT, Pool.PREEMPTING)
"""An attempt is under way, so that the pod is not to be tried."""


NO_KINDS: Final[frozenset[str]] = frozenset()


class QueuedPod(msgspec.Struct, eq=False):
    """One pod; the queue alone writes it."""

    pod: PodInfo
    created_at: float
    """When the queue first saw it, in seconds of the queue's clock."""
    queued_at: float
    """When it was last put into the queue: its age among equals."""
    pool: Pool = Pool.ACTIVE
    attempts: int = 0
    rejections: int = 0
    """Attempts in a row for which no node fitted."""
    errors: int = 0
    """Attempts in a row that failed for another reason."""
    backoff_until: float = 0.0
    events_to_register: frozenset[str] = NO_KINDS
    """The kinds of event that may free it."""
    reason: str = ""
    """Why it is unschedulable or gated."""
    plugins: frozenset[str] = NO_KINDS
    """Those that rejected its nodes."""
    group: Hashable = None
    """Equal for pods that the same events free; None for a pod that is like no other."""
    popped_at: float = 0.0
    """When its last attempt began."""
    seen: int = 0
    """Events that had happened when its attempt began."""
    changed: bool = False
    """Whether the pod itself changed during its attempt."""
    ticket: int = 0
    """Which entry of a heap is the valid one; older ones are skipped."""


def may_matter(old: Pod, new: Pod) -> bool:
    """Whether the change of a waiting pod could change its fate; what its status says about it cannot."""
    before, after = old.metadata, new.metadata
    return old.spec != new.spec or before.labels != after.labels or before.annotations != after.annotations
