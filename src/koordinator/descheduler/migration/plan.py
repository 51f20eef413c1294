"""The inputs of the state machine of PodMigrationJobs, its possible steps, and the plans that stages end in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from koordinator.api import pod_migration_job as jobs
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobCondition, PodMigrationJobStatus
from koordinator.api.reservation import Reservation
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.job_facts import refers_to
from koordinator.descheduler.migration.job_status import COMPLETE, at_condition
from koordinator.descheduler.plan_controller import PlannedEvent


@dataclass(frozen=True, slots=True)
class GangFacts:
    """The other jobs that move the gang of a job's pod."""

    siblings: tuple[PodMigrationJob, ...]
    size: int
    """How many jobs there were when they were let through."""
    budget_problem: str = ""
    """Why a PodDisruptionBudget does not let all members leave; empty as long as one of them cannot leave anyhow."""
    newcomer: str = ""
    """A member that no job moves, since it came when the jobs had been let through; empty as with a budget."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The cluster around one job."""

    pod: Pod | None = None
    """The pod that ``spec.podRef`` names, whatever its uid."""
    reservation: Reservation | None = None
    """The Reservation that the job refers to; before it refers to one, that which was created for it."""
    bound_pod: Pod | None = None
    """The pod that uses the Reservation."""
    limited: bool = False
    """Too many pods of the same workload or namespace have been evicted lately."""
    gang: GangFacts | None = None
    """None for a pod that moves alone."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Patch the job's status so that it becomes this."""

    status: PodMigrationJobStatus


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Merge this into the job, but for its status."""

    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create the Reservation for the job's pod; that it exists already is as good."""

    def __str__(self) -> str:
        return "create a Reservation for its pod"


@dataclass(frozen=True, slots=True)
class OrderReservation:
    """Label a Reservation that has no place in the order of Reservations."""

    name: str
    order: str

    def __str__(self) -> str:
        return f"put Reservation {self.name} in order"


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete a Reservation; that it is gone is as good."""

    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete Reservation {self.name}"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict this very pod in this way."""

    pod: Pod
    policy: str

    def __str__(self) -> str:
        return f"evict pod {self.pod.metadata.key} from node {self.pod.spec.node_name}"


Step = WriteStatus | PatchJob | CreateReservation | OrderReservation | DeleteReservation | EvictPod


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Steps to take in this order, each only once the one before it has succeeded.

    After all of them ``events`` are recorded and the job is reconciled again at once. Without steps, it is reconciled
    again after ``after`` seconds, or, if that is None, when something about it changes."""

    steps: tuple[Step, ...] = ()
    events: tuple[PlannedEvent, ...] = ()
    after: float | None = None
    final: bool = False
    """Nothing is left to decide after the steps."""


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
        pod = self.facts.pod
        return pod if pod is not None and refers_to(self.job, pod) else None

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
