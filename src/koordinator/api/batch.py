"""batch/v1: Jobs and CronJobs, as the controllers that act on them read them; their templates keep every field."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordinator.api.meta import FreeForm, LabelSelector, Object, ObjectReference, WireStruct
from koordinator.api.timestamps import Time


class OnExitCodes(WireStruct):
    """A requirement of a pod failure policy on the exit codes of containers."""

    container_name: str | None = None
    operator: str = ""
    """In or NotIn."""
    values: Sequence[int] = ()


class OnPodCondition(WireStruct):
    type: str = ""
    status: str = "True"


class PodFailurePolicyRule(WireStruct):
    action: str = ""
    """FailJob, FailIndex, Ignore or Count."""
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: Sequence[OnPodCondition] = ()


class PodFailurePolicy(WireStruct):
    rules: Sequence[PodFailurePolicyRule] = ()


class SuccessPolicyRule(WireStruct):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(WireStruct):
    rules: Sequence[SuccessPolicyRule] = ()


class JobSpec(WireStruct):
    """What the API server defaults is None here only in objects that it did not default."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    pod_replacement_policy: str = "TerminatingOrFailed"
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None
    selector: LabelSelector | None = None
    template: FreeForm = {}


class JobCondition(WireStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None


class UncountedTerminatedPods(WireStruct):
    """The UIDs of pods that have ended and are not in the counters yet, since their finalizers may still be there."""

    succeeded: Sequence[str] = ()
    failed: Sequence[str] = ()


class JobStatus(WireStruct):
    conditions: Sequence[JobCondition] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    active: int = 0
    terminating: int | None = None
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Object):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobTemplate(WireStruct):
    metadata: FreeForm = {}
    spec: FreeForm = {}


class CronJobSpec(WireStruct):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    """Allow, Forbid or Replace."""
    suspend: bool = False
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    job_template: JobTemplate = msgspec.field(default=JobTemplate())


class CronJobStatus(WireStruct):
    active: Sequence[ObjectReference] = ()
    last_schedule_time: Time | None = None
    last_successful_time: Time | None = None


class CronJob(Object):
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


def finished_condition(job: Job) -> JobCondition | None:
    """The condition, Complete or Failed, with which the Job has ended; None while it has not."""
    return next((c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), None)
