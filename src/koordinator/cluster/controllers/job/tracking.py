"""How the status of a Job comes to count its pods, each once, whatever fails in between. Pure.

In three steps: the UIDs of pods that have ended are written into ``status.uncountedTerminatedPods`` (``track``); then
their finalizers are removed, and only then may the pods vanish; then the counters grow by those UIDs of which no pod
with a finalizer is left, and the UIDs are removed in the same write (``conclude``). Who takes over at any point finds
in the API what is left to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from koordinator.api.batch import JobCondition, JobStatus, UncountedTerminatedPods
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.job.assessment import SUCCESS_CRITERIA_MET, Assessment, condition
from koordinator.cluster.controllers.job.failure_policy import verdict
from koordinator.cluster.controllers.job.indexes import Indexes
from koordinator.cluster.controllers.job.pods import completion_index, has_failed, is_indexed
from koordinator.cluster.controllers.pod_state import is_ready

MOST_UNCOUNTED: Final = 500
"""UIDs in one status."""


@dataclass(frozen=True, slots=True)
class PodWrites:
    """What became of a pass's plan for pods."""

    created: int = 0
    deleted: Collection[str] = ()
    """The UIDs of active pods that are deleted by now."""
    is_complete: bool = True
    """Whether all pods that were to be deleted are."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """``status`` is to be written if it differs; then ``release`` lose their finalizers; then ``conclude`` follows."""

    status: JobStatus
    release: Sequence[Pod]
    tracked: frozenset[str]
    """The UIDs of pods with a finalizer, those to be released among them."""
    final: JobCondition | None
    """Complete or Failed: how the Job ends once everything is counted."""
    suspension: JobCondition | None = None
    """The condition Suspended, where it has changed."""


def track(assessment: Assessment, writes: PodWrites, now: datetime) -> Tracking:
    """The status before finalizers are removed."""
    status, suspension = _started(assessment, writes, now)
    target = _target(assessment, writes, now)
    tracked = frozenset(pod.metadata.uid for pod in assessment.tracked)
    status = _counted(status, tracked)
    release, uncounted, is_all = _ended_pods(assessment, status, target)
    status = replace(
        status,
        active=len(assessment.active) + writes.created - len(writes.deleted),
        ready=sum(is_ready(pod) and pod.metadata.uid not in writes.deleted for pod in assessment.active),
        terminating=assessment.terminating + len(writes.deleted),
        uncounted_terminated_pods=uncounted,
    )
    if is_indexed(assessment.job):
        status = _with_indexes(status, assessment, release)
    if target is not None:
        status = replace(status, conditions=_with_condition(status.conditions, target))
    final = _final(target, now) if target is not None and is_all else None
    return Tracking(status, release, tracked, final, suspension)


def conclude(tracking: Tracking, released: Collection[str]) -> tuple[JobStatus, bool]:
    """The status once the pods with the UIDs ``released`` have lost their finalizers; whether the Job has ended."""
    status = _counted(tracking.status, tracking.tracked.difference(released))
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    final = tracking.final
    if final is None or uncounted.succeeded or uncounted.failed or status.terminating:
        return status, False
    status = replace(status, conditions=_with_condition(status.conditions, final))
    if final.type == "Complete":
        status = replace(status, completion_time=final.last_transition_time)
    return status, True


def _started(assessment: Assessment, writes: PodWrites, now: datetime) -> tuple[JobStatus, JobCondition | None]:
    """With the time at which the Job began or went on, and the condition Suspended."""
    job = assessment.job
    status = job.status
    if status.start_time is None and not job.spec.suspend:
        status = replace(status, start_time=now)
    if assessment.target is not None or job.metadata.deletion_timestamp is not None or _is_complete(assessment, writes):
        return status, None
    known = next((each for each in status.conditions if each.type == "Suspended"), None)
    if job.spec.suspend and (known is None or known.status != "True"):
        changed = condition("Suspended", "JobSuspended", "Job suspended", now)
    elif not job.spec.suspend and known is not None and known.status == "True":
        changed = condition("Suspended", "JobResumed", "Job resumed", now, holds=False)
        # The deadline counts the seconds that the Job was active in one go.
        status = replace(status, start_time=now)
    else:
        return status, None
    return replace(status, conditions=_with_condition(status.conditions, changed)), changed


def _target(assessment: Assessment, writes: PodWrites, now: datetime) -> JobCondition | None:
    """Why the Job ends; None too while a pod is active that was to be deleted."""
    if assessment.target is not None:
        return assessment.target if writes.is_complete else None
    if not _is_complete(assessment, writes):
        return None
    text = "Reached expected number of succeeded pods"
    return condition(SUCCESS_CRITERIA_MET, "CompletionsReached", text, now)


def _is_complete(assessment: Assessment, writes: PodWrites) -> bool:
    completions = assessment.job.spec.completions
    enough = assessment.succeeded > 0 if completions is None else assessment.succeeded >= completions
    return enough and len(assessment.active) + writes.created == len(writes.deleted)


def _final(target: JobCondition, now: datetime) -> JobCondition:
    type_ = "Complete" if target.type == SUCCESS_CRITERIA_MET else "Failed"
    return condition(type_, target.reason, target.message, now)


def _with_condition(conditions: Iterable[JobCondition], new: JobCondition) -> Sequence[JobCondition]:
    known = list(conditions)
    for position, old in enumerate(known):
        if old.type == new.type:
            is_same = (old.status, old.reason, old.message) == (new.status, new.reason, new.message)
            known[position] = old if is_same else new
            return known
    return [*known, new]


def _counted(status: JobStatus, tracked: Collection[str]) -> JobStatus:
    """The pods of which no finalizer is left move from the list of UIDs into the counters."""
    before = status.uncounted_terminated_pods
    if before is None:
        return status
    succeeded = [uid for uid in before.succeeded if uid in tracked]
    failed = [uid for uid in before.failed if uid in tracked]
    return replace(
        status,
        succeeded=status.succeeded + len(before.succeeded) - len(succeeded),
        failed=status.failed + len(before.failed) - len(failed),
        uncounted_terminated_pods=_uncounted(succeeded, failed),
    )


def _ended_pods(
    assessment: Assessment, status: JobStatus, target: JobCondition | None
) -> tuple[list[Pod], UncountedTerminatedPods, bool]:
    """The pods to release, the UIDs still to be counted, and whether no pod had to wait for the next pass."""
    before = status.uncounted_terminated_pods or UncountedTerminatedPods()
    succeeded, failed = list(before.succeeded), list(before.failed)
    known_succeeded, known_failed = frozenset(succeeded), frozenset(failed)
    release: list[Pod] = []
    indexed = is_indexed(assessment.job)
    for pod in sorted(assessment.tracked, key=lambda pod: completion_index(assessment.job, pod) or 0):
        if not _may_be_released(assessment, pod, target):
            continue
        if len(release) + len(before.succeeded) + len(before.failed) >= MOST_UNCOUNTED:
            return release, _uncounted(succeeded, failed), False
        release.append(pod)
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded" and uid not in known_failed:
            # The index of an Indexed Job is enough to count it once.
            if not indexed and uid not in known_succeeded:
                succeeded.append(uid)
        elif uid not in known_failed and _counts_as_failed(assessment, pod, target):
            failed.append(uid)
    return release, _uncounted(succeeded, failed), True


def _uncounted(succeeded: Iterable[str], failed: Iterable[str]) -> UncountedTerminatedPods:
    return UncountedTerminatedPods(succeeded=tuple(succeeded), failed=tuple(failed))


def _may_be_released(assessment: Assessment, pod: Pod, target: JobCondition | None) -> bool:
    job = assessment.job
    ends = job.metadata.deletion_timestamp is not None or target is not None
    if ends or pod.status.phase == "Succeeded":
        return True
    if not has_failed(job, pod):
        return False
    index = completion_index(job, pod)
    waiting = assessment.replaced_later.get(index) if index is not None else None
    return waiting is None or waiting.metadata.uid != pod.metadata.uid


def _counts_as_failed(assessment: Assessment, pod: Pod, target: JobCondition | None) -> bool:
    """Once a Job fails, what has not ended has failed, too."""
    job = assessment.job
    fails = target is not None and target.type != SUCCESS_CRITERIA_MET
    if not has_failed(job, pod) and not fails:
        return False
    if is_indexed(job) and completion_index(job, pod) is None:
        return False
    return verdict(job.spec.pod_failure_policy, pod).counts


def _with_indexes(status: JobStatus, assessment: Assessment, release: Sequence[Pod]) -> JobStatus:
    """Counts the indexes of the pods that are released now: for the others their finalizers still speak."""
    job = assessment.job
    completions = job.spec.completions or 0
    ended = (completion_index(job, pod) for pod in release if pod.status.phase == "Succeeded")
    before = Indexes.parse(job.status.completed_indexes, completions)
    succeeded = before | Indexes.of(index for index in ended if index is not None)
    failed = assessment.failed_indexes
    return replace(
        status,
        succeeded=len(succeeded),
        completed_indexes=str(succeeded),
        failed_indexes=None if failed is None else str(failed),
    )
