"""A PodMigrationJob that is under way, and the plans that every stage of it ends in: one condition on, or over."""

from __future__ import annotations

from datetime import datetime

import msgspec

from koordinator.api import pod_migration_job as jobs
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobCondition, PodMigrationJobStatus
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.job_status import COMPLETE, at_condition
from koordinator.descheduler.migration.plan import JobFacts, JobPlan, WriteStatus
from koordinator.descheduler.plan_controller import PlannedEvent


class Migration(msgspec.Struct, frozen=True):
    """A job that is under way, and all that is looked at."""

    job: PodMigrationJob
    facts: JobFacts
    args: MigrationControllerArgs
    now: datetime

    @property
    def status(self) -> PodMigrationJobStatus:
        return self.job.status

    @property
    def pod(self) -> Pod | None:
        """The pod to move; another one under its name is not it."""
        pod, reference = self.facts.pod, self.job.spec.pod_ref
        if pod is None or reference is None or (reference.uid and pod.metadata.uid != reference.uid):
            return None
        return pod

    def to(self, condition: PodMigrationJobCondition, *events: PlannedEvent) -> JobPlan | None:
        """A plan to the condition; None if the job has it already."""
        changed = at_condition(self.status, condition, self.now)
        return None if changed is self.status else moved(self.job, changed, *events)


def missing_pod(job: PodMigrationJob) -> JobPlan:
    return failed(job, jobs.MISSING_POD, f'Abort job caused by missing Pod "{pod_key(job)}"')


def failed(job: PodMigrationJob, reason: str, message: str) -> JobPlan:
    status = msgspec.structs.replace(job.status, phase=jobs.FAILED, reason=reason, message=message)
    return moved(job, status, PlannedEvent("Warning", reason, message))


def completed(status: PodMigrationJobStatus, message: str) -> PodMigrationJobStatus:
    return msgspec.structs.replace(status, phase=jobs.SUCCEEDED, status=COMPLETE, reason="", message=message)


def moved(job: PodMigrationJob, status: PodMigrationJobStatus, *events: PlannedEvent) -> JobPlan:
    assert status != job.status, f"a plan that changes nothing about {job.metadata.name}"
    return JobPlan((WriteStatus(status),), events)


def new_condition(type_: str, status: str, reason: str = "", message: str = "") -> PodMigrationJobCondition:
    return PodMigrationJobCondition(type=type_, status=status, reason=reason, message=message)


def pod_key(job: PodMigrationJob) -> str:
    reference = job.spec.pod_ref
    return f"{reference.namespace}/{reference.name}" if reference is not None else "/"
