"""Where a Job stands: which of its pods are active, how many have succeeded or failed, and whether it should end.

Pure. A pod is to be counted as long as it has the tracking finalizer; the status of the Job remembers what is counted,
so that any controller that takes over counts on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.batch import Job, JobCondition, SuccessPolicyRule
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.job.failure_policy import FAIL_INDEX, verdict
from koordinator.cluster.controllers.job.indexes import Indexes
from koordinator.cluster.controllers.job.pods import (
    completion_index,
    failure_count,
    has_failed,
    has_finalizer,
    ignored_failure_count,
    is_indexed,
    restarts,
)
from koordinator.cluster.controllers.pod_state import is_active, is_terminating

FAILURE_TARGET: Final = "FailureTarget"
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What follows from a Job and its pods alone."""

    job: Job
    pods: Sequence[Pod]
    tracked: Sequence[Pod]
    """Those that have their finalizer."""
    active: Sequence[Pod]
    terminating: int
    newly_succeeded: Sequence[Pod]
    newly_failed: Sequence[Pod]
    """Pods that the status does not know of."""
    succeeded: int
    failed: int
    """The counters, with pods that the status does not know of. Of an Indexed Job, ``succeeded`` counts indexes."""
    succeeded_indexes: Indexes
    failed_indexes: Indexes | None
    """None without a backoffLimitPerIndex."""
    replaced_later: Mapping[int, Pod]
    """By index, where there is a backoffLimitPerIndex: a failed pod that stays until its successor has its count."""
    target: JobCondition | None
    """FailureTarget or SuccessCriteriaMet: the Job ends as soon as all pods have ended and are counted."""


def assess(job: Job, pods: Sequence[Pod], now: datetime) -> Assessment:
    """``pods`` are all pods of the Job; they show every finalizer that was removed since ``job`` was read."""
    tracked = [pod for pod in pods if has_finalizer(pod)]
    uncounted = job.status.uncounted_terminated_pods
    known_succeeded = frozenset(uncounted.succeeded if uncounted is not None else ())
    known_failed = frozenset(uncounted.failed if uncounted is not None else ())
    counted = [pod for pod in tracked if not is_indexed(job) or completion_index(job, pod) is not None]
    new_succeeded = [p for p in counted if p.status.phase == "Succeeded" and p.metadata.uid not in known_succeeded]
    new_failed = [p for p in counted if has_failed(job, p) and p.metadata.uid not in known_failed]
    succeeded_indexes = _succeeded_indexes(job, counted)
    failed_indexes = _failed_indexes(job, counted)
    active = [pod for pod in pods if is_active(pod)]
    succeeded = job.status.succeeded + len(new_succeeded) + len(known_succeeded)
    counting_failures = [pod for pod in new_failed if verdict(job.spec.pod_failure_policy, pod).counts]
    failed = job.status.failed + len(counting_failures) + len(known_failed)
    target = (
        _known_target(job)
        or _failure(job, pods, failed, now)
        or _failure_of_indexes(job, succeeded_indexes, failed_indexes, now)
        or _success_by_policy(job, succeeded_indexes, now)
    )
    return Assessment(
        job=job,
        pods=pods,
        tracked=tracked,
        active=active,
        terminating=sum(map(is_terminating, pods)),
        newly_succeeded=new_succeeded,
        newly_failed=new_failed,
        succeeded=len(succeeded_indexes) if is_indexed(job) else succeeded,
        failed=failed,
        succeeded_indexes=succeeded_indexes,
        failed_indexes=failed_indexes,
        replaced_later=_replaced_later(job, counted, active, succeeded_indexes, failed_indexes),
        target=target,
    )


def _succeeded_indexes(job: Job, counted: Sequence[Pod]) -> Indexes:
    if not is_indexed(job):
        return Indexes()
    found = [completion_index(job, pod) for pod in counted if pod.status.phase == "Succeeded"]
    before = Indexes.parse(job.status.completed_indexes, job.spec.completions or 0)
    return before | Indexes.of(index for index in found if index is not None)


def _failed_indexes(job: Job, counted: Sequence[Pod]) -> Indexes | None:
    if not is_indexed(job) or job.spec.backoff_limit_per_index is None:
        return None
    found = [completion_index(job, pod) for pod in counted if _ends_its_index(job, pod)]
    before = Indexes.parse(job.status.failed_indexes or "", job.spec.completions or 0)
    return before | Indexes.of(index for index in found if index is not None)


def _ends_its_index(job: Job, pod: Pod) -> bool:
    if not has_failed(job, pod):
        return False
    said = verdict(job.spec.pod_failure_policy, pod)
    return said.action == FAIL_INDEX or (said.counts and failure_count(pod) >= (job.spec.backoff_limit_per_index or 0))


def _replaced_later(
    job: Job, counted: Sequence[Pod], active: Sequence[Pod], succeeded: Indexes, failed: Indexes | None
) -> Mapping[int, Pod]:
    if failed is None:
        return {}
    has_successor = {completion_index(job, pod) for pod in active}
    last: dict[int, Pod] = {}
    for pod in counted:
        index = completion_index(job, pod)
        if index is None or not has_failed(job, pod) or index in has_successor or index in succeeded or index in failed:
            continue
        before = last.get(index)
        if before is None or _attempt(pod) > _attempt(before):
            last[index] = pod
    return last


def _attempt(pod: Pod) -> int:
    return failure_count(pod) + ignored_failure_count(pod)


# Whether the Job should end.


def condition(type_: str, reason: str, message: str, now: datetime, *, holds: bool = True) -> JobCondition:
    status = "True" if holds else "False"
    return JobCondition(
        type=type_, status=status, reason=reason, message=message, last_probe_time=now, last_transition_time=now
    )


def _known_target(job: Job) -> JobCondition | None:
    known = {each.type: each for each in job.status.conditions if each.status == "True"}
    return known.get(SUCCESS_CRITERIA_MET) or known.get(FAILURE_TARGET)


def _failure(job: Job, pods: Sequence[Pod], failed: int, now: datetime) -> JobCondition | None:
    fails: Callable[[str, str], JobCondition] = lambda reason, text: condition(FAILURE_TARGET, reason, text, now)  # noqa: E731
    for pod in pods:
        message = verdict(job.spec.pod_failure_policy, pod).message if has_failed(job, pod) else ""
        if message:
            return fails("PodFailurePolicy", message)
    limit = job.spec.backoff_limit
    if limit is not None and (failed > limit or _restarts_reach(job, pods, limit)):
        return fails("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_to_deadline(job, now)
    if left is not None and left <= 0:
        return fails("DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _restarts_reach(job: Job, pods: Sequence[Pod], limit: int) -> bool:
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    return restarts(pods) >= max(limit, 1)


def seconds_to_deadline(job: Job, now: datetime) -> float | None:
    """Seconds until the Job has been active for too long; None without a deadline, or while it is suspended."""
    seconds, start = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is None or job.spec.suspend:
        return None
    return (start or now).timestamp() + seconds - now.timestamp()


def _failure_of_indexes(job: Job, succeeded: Indexes, failed: Indexes | None, now: datetime) -> JobCondition | None:
    if failed is None:
        return None
    most = job.spec.max_failed_indexes
    if most is not None and len(failed) > most:
        text = "Job has exceeded the specified maximal number of failed indexes"
        return condition(FAILURE_TARGET, "MaxFailedIndexesExceeded", text, now)
    if len(failed) and len(failed) + len(succeeded) >= (job.spec.completions or 0):
        return condition(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes", now)
    return None


def _success_by_policy(job: Job, succeeded: Indexes, now: datetime) -> JobCondition | None:
    if job.spec.success_policy is None or not is_indexed(job) or not len(succeeded):
        return None
    for position, rule in enumerate(job.spec.success_policy.rules):
        if _is_met(rule, succeeded, job.spec.completions or 0):
            text = f"Matched rules at index {position}"
            return condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", text, now)
    return None


def _is_met(rule: SuccessPolicyRule, succeeded: Indexes, completions: int) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and len(succeeded) >= rule.succeeded_count
    required = Indexes.parse(rule.succeeded_indexes, completions)
    found = len(required & succeeded)
    if not len(required):
        return False
    return found == len(required) or (rule.succeeded_count is not None and found >= rule.succeeded_count)
