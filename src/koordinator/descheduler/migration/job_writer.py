"""Writes PodMigrationJobs: each write holds only if the job is still what was decided on."""

from __future__ import annotations

from typing import Any

from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from koordinator.api.meta import ObjectReference
from koordinator.api.modification import DONE, MOVED, Cause, Modification
from koordinator.api.modification import FAILED as NOT_DONE
from koordinator.api.pod_migration_job import FAILED, PodMigrationJob, PodMigrationJobStatus
from koordinator.descheduler.migration.job_facts import trigger_and_reason
from koordinator.descheduler.migration.job_status import is_terminal, status_patch
from koordinator.descheduler.plan_controller import PlannedEvent, for_version
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client, PatchType


def actor_of(job: PodMigrationJob) -> str:
    """What records of modifications call the job."""
    return f"{POD_MIGRATION_JOBS.name}/{job.metadata.name}"


def ended_migration(job: PodMigrationJob) -> Modification:
    """The record of a job that has ended."""
    status, pod, successor = job.status, job.spec.pod_ref, job.status.pod_ref
    has_failed = status.phase == FAILED
    trigger, reason = trigger_and_reason(job)
    # A record names pods of its own namespace only, and a successor is in that of its predecessor.
    is_named = pod is not None and successor is not None and successor.namespace == pod.namespace
    replaced_by = [f"{successor.namespace}/{successor.name}"] if is_named and successor is not None else []
    return Modification(
        action=MOVED,
        outcome=NOT_DONE if has_failed else DONE,
        actor=actor_of(job),
        node=status.node_name,
        target=replaced_by[0] if replaced_by else status.node_name,
        cause=Cause(code=status.reason, text=status.message) if has_failed else Cause(code=trigger, text=reason),
        since=job.metadata.creation_timestamp,
        pods=replaced_by,
    )


class JobWriter:
    """Patches jobs and records events about them."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, document: dict[str, Any]) -> PodMigrationJob:
        return await self._client.create(POD_MIGRATION_JOBS, document)

    async def patch(self, job: PodMigrationJob, patch: dict[str, Any]) -> PodMigrationJob:
        """Merge ``patch``, which is not about the status. Raises a conflict if the job has changed meanwhile."""
        body = for_version(job, patch)
        return await self._client.patch(POD_MIGRATION_JOBS, job.metadata.name, body, PatchType.MERGE)

    async def write_status(self, job: PodMigrationJob, status: PodMigrationJobStatus) -> PodMigrationJob:
        """Make this the status. Raises a conflict if the job has changed meanwhile."""
        body = for_version(job, {"status": status_patch(job.status, status)})
        name = job.metadata.name
        written = await self._client.patch(POD_MIGRATION_JOBS, name, body, PatchType.MERGE, subresource="status")
        if is_terminal(written) and not is_terminal(job):
            self._record_end(written)
        return written

    async def read(self, name: str) -> PodMigrationJob:
        """The job as the API server has it now."""
        return await self._client.get(POD_MIGRATION_JOBS, name)

    def _record_end(self, job: PodMigrationJob) -> None:
        """An event about the pod: the job itself is deleted minutes after its end."""
        pod = job.spec.pod_ref
        if pod is None or not pod.name or not pod.namespace:
            return
        about = ObjectReference("v1", PODS.name, pod.namespace, pod.name, pod.uid)
        record = ended_migration(job)
        if record.outcome == NOT_DONE:
            note = f"{record.actor} has not moved it: {record.cause.text}"
            self._recorder.event(about, "Warning", "NotMigrated", "Migrating", note, modification=record)
        else:
            note = f"{record.actor} has moved it: {job.status.message}"
            self._recorder.event(about, "Normal", "Migrated", "Migrating", note, modification=record)

    def record_event(self, job: PodMigrationJob, event: PlannedEvent) -> None:
        about = reference_to(POD_MIGRATION_JOBS, job)
        self._recorder.event(about, event.type, event.reason, "Migrating", event.note)
