"""Writes PodMigrationJobs: each write holds only if the job is still what was decided on."""

from __future__ import annotations

from typing import Any

from koordinator.api.kinds import POD_MIGRATION_JOBS
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobStatus
from koordinator.descheduler.migration.job_status import status_patch
from koordinator.descheduler.plan_controller import PlannedEvent, for_version
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client, PatchType


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
        return await self._client.patch(POD_MIGRATION_JOBS, name, body, PatchType.MERGE, subresource="status")

    async def read(self, name: str) -> PodMigrationJob:
        """The job as the API server has it now."""
        return await self._client.get(POD_MIGRATION_JOBS, name)

    def record_event(self, job: PodMigrationJob, event: PlannedEvent) -> None:
        about = reference_to(POD_MIGRATION_JOBS, job)
        self._recorder.event(about, event.type, event.reason, "Migrating", event.note)
