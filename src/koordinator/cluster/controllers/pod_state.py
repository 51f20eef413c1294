"""Whether a pod counts for its workload: active, terminating, ready, available."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from koordinator.api.pod import Pod, is_finished

_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)


def is_active(pod: Pod) -> bool:
    """Whether it runs or will run, and nobody has deleted it."""
    return not is_finished(pod) and pod.metadata.deletion_timestamp is None


def is_terminating(pod: Pod) -> bool:
    """Whether it has been deleted and still occupies its node."""
    return not is_finished(pod) and pod.metadata.deletion_timestamp is not None


def ready_since(pod: Pod) -> datetime | None:
    """Since when the pod is ready; the beginning of time if it does not say; None if it is not."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            if condition.status != "True":
                return None
            return condition.last_transition_time or _UNKNOWN
    return None


def is_ready(pod: Pod) -> bool:
    return ready_since(pod) is not None


def available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> timedelta | None:
    """After how long the pod will have been ready for ``min_ready_seconds``; zero if it has, None if it is not ready.

    A pod that does not say since when it is ready is available at once only where that does not matter.
    """
    since = ready_since(pod)
    if since is None:
        return None
    if min_ready_seconds == 0:
        return timedelta()
    if since is _UNKNOWN:
        return None
    return max(timedelta(), since + timedelta(seconds=min_ready_seconds) - now)


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    return available_in(pod, min_ready_seconds, now) == timedelta()
