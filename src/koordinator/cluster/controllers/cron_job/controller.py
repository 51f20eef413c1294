"""The CronJob controller: it creates Jobs when their time has come, and deletes the oldest that have ended."""

from __future__ import annotations

from typing import Final

from koordinator.api.batch import CronJob, CronJobStatus, Job
from koordinator.api.codec import to_document
from koordinator.api.kinds import CRON_JOBS, JOBS
from koordinator.api.meta import ObjectReference, controller_of
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.cron_job.decision import Note, decide, new_job, with_active
from koordinator.cluster.controllers.ownership import CONTROLLER_INDEX, by_controller
from koordinator.cluster.controllers.pod_control import is_namespace_terminating
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.model.patch.difference import merge_difference

_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0
"""When an object is looked at again that has changed since the cache was read, if no event says so before."""


class CronJobController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "cronjob-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._cron_jobs = context.informers.informer(CRON_JOBS)
        self._jobs = context.informers.informer(JOBS, indexes={CONTROLLER_INDEX: by_controller})
        self._recorder = context.events.recorder(self.name)
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [each.metadata.key for each in self._cron_jobs.list()], workers=_WORKERS
        )
        add = self._reconciler.add
        self._cron_jobs.add_handlers(
            name=self.name,
            on_add=lambda cron_job, _: add(cron_job.metadata.key),
            on_update=lambda _, cron_job: add(cron_job.metadata.key),
        )
        self._jobs.add_handlers(
            name=self.name,
            on_add=lambda job, _: self._seen(job),
            on_update=lambda _, job: self._seen(job),
            on_delete=self._seen,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _seen(self, job: Job) -> None:
        owner = controller_of(job.metadata)
        if owner is not None and owner.kind == CRON_JOBS.name:
            self._reconciler.add(f"{job.metadata.namespace}/{owner.name}")

    async def _reconcile(self, key: str) -> float | None:
        cron_job = self._cron_jobs.get(key)
        if cron_job is None:
            return None
        try:
            return await self._sync(cron_job)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            # The CronJob has changed or is gone: its event is on the way.
            return _RECHECK_SECONDS

    async def _sync(self, cron_job: CronJob) -> float | None:
        jobs = self._jobs.by_index(CONTROLLER_INDEX, cron_job.metadata.uid)
        decision = decide(cron_job, jobs, self._clock.now())
        for note in decision.notes:
            self._record(cron_job, note)
        for job in decision.delete:
            await self._delete(cron_job, job)
        status = decision.status
        if decision.create is not None:
            job_reference = await self._create(cron_job, new_job(cron_job, decision.create))
            if job_reference is not None:
                status = with_active(status, job_reference, decision.create)
        await self._write_status(cron_job, status)
        return decision.look_again

    async def _create(self, cron_job: CronJob, body: dict[str, object]) -> ObjectReference | None:
        """The Job that is there then; None if it belongs to somebody else, or the namespace is being deleted."""
        try:
            job = await self._client.create(JOBS, body, cron_job.metadata.namespace)
        except ApiStatusError as error:
            if is_namespace_terminating(error):
                return None
            if not error.is_already_exists:
                self._record(cron_job, Note("FailedCreate", f"Error creating job: {error.message}", is_warning=True))
                raise
            return await self._existing(cron_job, body)
        self._record(cron_job, Note("SuccessfulCreate", f"Created job {job.metadata.name}"))
        return reference_to(JOBS, job)

    async def _existing(self, cron_job: CronJob, body: dict[str, object]) -> ObjectReference | None:
        """The Job of this time, which was created before its CronJob's status could say so."""
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        job = await self._client.get(JOBS, metadata["name"], cron_job.metadata.namespace)
        owner = controller_of(job.metadata)
        return reference_to(JOBS, job) if owner is not None and owner.uid == cron_job.metadata.uid else None

    async def _delete(self, cron_job: CronJob, job: Job) -> None:
        metadata = job.metadata
        try:
            await self._client.delete(
                JOBS, metadata.name, metadata.namespace, uid=metadata.uid, propagation_policy="Background"
            )
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict):
                self._record(cron_job, Note("FailedDelete", f"Deleted job: {error.message}", is_warning=True))
                raise
        self._record(cron_job, Note("SuccessfulDelete", f"Deleted job {metadata.name}"))

    async def _write_status(self, cron_job: CronJob, status: CronJobStatus) -> None:
        patch = merge_difference(to_document(cron_job.status), to_document(status))
        if not patch:
            return
        metadata = cron_job.metadata
        body = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": patch}
        name, namespace = metadata.name, metadata.namespace
        await self._client.patch(CRON_JOBS, name, body, PatchType.MERGE, namespace, subresource="status")

    def _record(self, cron_job: CronJob, note: Note) -> None:
        regarding = reference_to(CRON_JOBS, cron_job)
        self._recorder.event(regarding, "Warning" if note.is_warning else "Normal", note.reason, note.reason, note.text)
