"""Which pods of a Job to delete or to create next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from koordinator.api.pod import Pod
from koordinator.cluster.controllers.job.assessment import Assessment
from koordinator.cluster.controllers.job.backoff import Backoff, backoff_of_index
from koordinator.cluster.controllers.job.indexes import Indexes
from koordinator.cluster.controllers.job.pods import completion_index, is_indexed, replaces_only_failed
from koordinator.cluster.controllers.pod_control import BURST
from koordinator.cluster.controllers.pod_state import is_ready, is_terminating


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Either deletions or creations, never both in one pass."""

    delete: Sequence[Pod] = ()
    counts: bool = False
    """Whether the deleted pods are counted as failed; otherwise their finalizers are removed first."""
    create: Sequence[int | None] = ()
    """For each pod to create its completion index; None in a Job without indexes."""
    retry_after: float | None = None
    """Seconds after which a pod may be created."""


def plan_pods(assessment: Assessment, backoff: Backoff, now: datetime) -> PodPlan:
    """``backoff`` includes the pods that the assessment found to have ended."""
    job, active = assessment.job, assessment.active
    if assessment.target is not None:
        return PodPlan(delete=active, counts=True)
    if job.metadata.deletion_timestamp is not None:
        return PodPlan()
    if job.spec.suspend:
        return PodPlan(delete=active)
    wanted = _wanted(assessment)
    surplus = _surplus(assessment, max(0, len(active) - wanted))[:BURST]
    if surplus:
        return PodPlan(delete=surplus)
    awaited = assessment.terminating if replaces_only_failed(assessment.job) else 0
    missing = min(wanted - awaited - len(active), BURST)
    return _creations(assessment, missing, backoff, now) if missing > 0 else PodPlan()


def _wanted(assessment: Assessment) -> int:
    spec = assessment.job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        # A work queue: once a pod has succeeded, nothing is started, and what runs goes on.
        return len(assessment.active) if assessment.succeeded else parallelism
    ended = assessment.succeeded + len(assessment.failed_indexes or ())
    return max(0, min(parallelism, spec.completions - ended))


def _surplus(assessment: Assessment, at_least: int) -> list[Pod]:
    """Pods without an index of their own, and so many others that ``at_least`` go: those that lose least first."""
    left = sorted(assessment.active, key=_progress)
    surplus: list[Pod] = []
    if is_indexed(assessment.job):
        surplus = _without_own_index(assessment, left)
        gone = {pod.metadata.uid for pod in surplus}
        left = [pod for pod in left if pod.metadata.uid not in gone]
    return surplus + left[: max(0, at_least - len(surplus))]


def _without_own_index(assessment: Assessment, active: Sequence[Pod]) -> list[Pod]:
    """Of two pods with one index, the one that has come furthest stays."""
    keeps: dict[int, Pod] = {}
    for pod in active:
        index = completion_index(assessment.job, pod)
        if index is not None:
            keeps[index] = pod
    kept = {pod.metadata.uid for pod in keeps.values()}
    return [pod for pod in active if pod.metadata.uid not in kept]


def _progress(pod: Pod) -> tuple[bool, bool, bool, float]:
    """Pods that lose less sort first: without a node, pending, not ready, young."""
    created = pod.metadata.creation_timestamp
    age = -created.timestamp() if created is not None else 0.0
    return bool(pod.spec.node_name), pod.status.phase == "Running", is_ready(pod), age


def _creations(assessment: Assessment, missing: int, backoff: Backoff, now: datetime) -> PodPlan:
    job = assessment.job
    if assessment.failed_indexes is None:
        pause = backoff.remaining(now)
        if pause > 0:
            return PodPlan(retry_after=pause)
    if not is_indexed(job):
        return PodPlan(create=(None,) * missing)
    taken = assessment.succeeded_indexes | (assessment.failed_indexes or Indexes()) | _occupied(assessment)
    indexes = taken.absent(missing, job.spec.completions or 0)
    if assessment.failed_indexes is None:
        return PodPlan(create=indexes)
    pauses = {index: backoff_of_index(assessment.replaced_later.get(index), now).remaining(now) for index in indexes}
    due = [index for index in indexes if pauses[index] <= 0]
    return PodPlan(create=due, retry_after=min((p for p in pauses.values() if p > 0), default=None))


def _occupied(assessment: Assessment) -> Indexes:
    """The indexes of pods that are active, or whose end is awaited."""
    waits = replaces_only_failed(assessment.job)
    pods = [*assessment.active, *(pod for pod in assessment.pods if waits and is_terminating(pod))]
    found = (completion_index(assessment.job, pod) for pod in pods)
    return Indexes.of(index for index in found if index is not None)
