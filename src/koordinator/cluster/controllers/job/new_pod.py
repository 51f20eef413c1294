"""The pods of a Job as they are created, and the patch with which the Job lets go of one."""

from __future__ import annotations

from typing import Final

from koordinator.api.batch import Job
from koordinator.api.document import Document
from koordinator.api.kinds import JOBS
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.job.failure_policy import verdict
from koordinator.cluster.controllers.job.pods import (
    COMPLETION_INDEX,
    INDEX_FAILURE_COUNT,
    INDEX_IGNORED_FAILURE_COUNT,
    TRACKING_FINALIZER,
    failure_count,
    ignored_failure_count,
)
from koordinator.cluster.controllers.pod_control import pod_of

_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX: Final = 58
"""Of a generated name: the server appends five characters."""


def new_pod(job: Job, index: int | None, predecessor: Pod | None) -> Document:
    """A pod with the completion index ``index``, None in a Job without indexes. ``predecessor``: where there is a
    backoffLimitPerIndex, the pod of this index that has failed before."""
    body = pod_of(JOBS, job, job.spec.template)
    metadata = body["metadata"]
    finalizers = metadata.setdefault("finalizers", [])
    if TRACKING_FINALIZER not in finalizers:
        finalizers.append(TRACKING_FINALIZER)
    if index is not None:
        _add_index(body, job.metadata.name, index)
        if job.spec.backoff_limit_per_index is not None:
            metadata["annotations"] |= _failure_counts(job, predecessor)
    return body


def _add_index(body: Document, job_name: str, index: int) -> None:
    metadata, spec = body["metadata"], body["spec"]
    for place in ("annotations", "labels"):
        metadata.setdefault(place, {})[COMPLETION_INDEX] = str(index)
    suffix = f"-{index}-"
    metadata["generateName"] = f"{job_name[: _LONGEST_PREFIX - len(suffix)]}{suffix}"
    spec["hostname"] = f"{job_name}-{index}"
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        variables = container.get("env") or []
        if all(variable.get("name") != _INDEX_VARIABLE for variable in variables):
            path = f"metadata.labels['{COMPLETION_INDEX}']"
            source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
            container["env"] = [*variables, {"name": _INDEX_VARIABLE, "valueFrom": source}]


def _failure_counts(job: Job, predecessor: Pod | None) -> dict[str, str]:
    if predecessor is None:
        return {INDEX_FAILURE_COUNT: "0"}
    counts = verdict(job.spec.pod_failure_policy, predecessor).counts
    ignored = ignored_failure_count(predecessor) + (not counts)
    found = {INDEX_FAILURE_COUNT: str(failure_count(predecessor) + counts)}
    return found | ({INDEX_IGNORED_FAILURE_COUNT: str(ignored)} if ignored else {})


def finalizer_removal(pod: Pod) -> Document:
    """A strategic merge patch after which nothing waits for the pod to be counted."""
    return {"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}
