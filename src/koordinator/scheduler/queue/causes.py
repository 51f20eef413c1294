"""What brings a pod into a pool of the queue, as upstream labels it in scheduler_queue_incoming_pods_total."""

from __future__ import annotations

from functools import cache
from typing import Final

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
