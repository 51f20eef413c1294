"""What the Job controller wants to know of one pod of a Job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from koordinator.api.batch import Job
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.pod_state import is_terminating

TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
"""On a pod until the Job's status has counted it."""
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""An annotation and a label of each pod of an Indexed Job."""
INDEX_FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-failure-count"
"""An annotation, where there is a backoffLimitPerIndex: the failures of the index before this pod."""
INDEX_IGNORED_FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
"""The same for the failures that the podFailurePolicy ignores."""


def is_indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def completion_index(job: Job, pod: Pod) -> int | None:
    """The index of a pod of an Indexed Job; None without a valid one."""
    index = _number(pod.metadata.annotations, COMPLETION_INDEX)
    return index if index is not None and index < (job.spec.completions or 0) else None


def failure_count(pod: Pod) -> int:
    """The counted failures of the pod's index before this pod."""
    return _number(pod.metadata.annotations, INDEX_FAILURE_COUNT) or 0


def ignored_failure_count(pod: Pod) -> int:
    """The ignored failures of the pod's index before this pod."""
    return _number(pod.metadata.annotations, INDEX_IGNORED_FAILURE_COUNT) or 0


def _number(annotations: Mapping[str, str], key: str) -> int | None:
    text = annotations.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def has_finalizer(pod: Pod) -> bool:
    return TRACKING_FINALIZER in pod.metadata.finalizers


def replaces_only_failed(job: Job) -> bool:
    """Whether a pod is replaced once it has ended, rather than when its deletion begins."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def has_failed(job: Job, pod: Pod) -> bool:
    """A pod that is deleted before it ends has failed, too, unless the Job waits for its end."""
    if pod.status.phase == "Failed":
        return True
    return not replaces_only_failed(job) and is_terminating(pod)


def finish_time(pod: Pod, now: datetime) -> datetime:
    """When the pod ended: when it was no longer ready, or else when its deletion was requested."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "False" and condition.last_transition_time is not None:
            return condition.last_transition_time
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        return deleted - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return pod.metadata.creation_timestamp or now


def restarts(pods: Iterable[Pod]) -> int:
    """How often the containers of pods that have not ended were restarted."""
    return sum(
        container.restart_count
        for pod in pods
        if not is_finished(pod)
        for container in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
