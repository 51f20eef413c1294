"""The Job controller: it keeps the pods of each Job running, and counts them in its status, until the Job has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from koordinator.api.batch import Job, JobCondition, JobStatus, finished_condition
from koordinator.api.codec import to_document
from koordinator.api.kinds import JOBS, PODS
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.job.assessment import Assessment, assess, seconds_to_deadline
from koordinator.cluster.controllers.job.backoff import Backoff
from koordinator.cluster.controllers.job.new_pod import finalizer_removal, new_pod
from koordinator.cluster.controllers.job.pod_plan import PodPlan, plan_pods
from koordinator.cluster.controllers.job.pods import TRACKING_FINALIZER
from koordinator.cluster.controllers.job.tracking import PodWrites, Tracking, conclude, track
from koordinator.cluster.controllers.ownership import (
    CONTROLLER_INDEX,
    OwnerEvents,
    by_controller,
    candidates,
    claim,
    usable_selector,
)
from koordinator.cluster.controllers.pod_control import PodControl, first_failure, is_namespace_terminating, slow_start
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.model.label_selector import CompiledSelector
from koordinator.model.patch.difference import merge_difference

logger = logging.getLogger(__name__)

MANAGED_BY: Final = "kubernetes.io/job-controller"
_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0
"""When an object is looked at again that has changed since the cache was read, if no event says so before."""


def is_ours(job: Job) -> bool:
    """Whether the Job is not left to another controller by ``spec.managedBy``."""
    return job.spec.managed_by in (None, MANAGED_BY)


def selector_of(job: Job) -> CompiledSelector:
    return usable_selector(job.spec.selector)


class JobController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "job-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._jobs = context.informers.informer(JOBS)
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._recorder = context.events.recorder(self.name)
        self._pod_control = PodControl(context.client, JOBS, self._recorder, finalizers=(TRACKING_FINALIZER,))
        self._backoffs: dict[str, Backoff] = {}
        """By the UID of the Job."""
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [job.metadata.key for job in self._jobs.list()], workers=_WORKERS
        )
        of_pods: OwnerEvents[Pod, Job] = OwnerEvents(JOBS, self._jobs, selector_of, self._reconciler.add)
        of_pods.follow(self._pods, self.name, self._forget)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _forget(self, job: Job) -> None:
        self._backoffs.pop(job.metadata.uid, None)

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or not is_ours(job):
            return None
        if finished_condition(job) is not None:
            self._forget(job)
            return None
        try:
            return await self._sync(job)
        except ApiStatusError as error:
            if not (error.is_conflict or error.is_not_found):
                raise
            # The Job has changed or is gone: its event is on the way.
            logger.debug("job %s: %s", key, error)
            return _RECHECK_SECONDS

    async def _sync(self, job: Job) -> float | None:
        uid = job.metadata.uid
        claims = claim(job, candidates(self._pods, job), selector_of(job))
        pods = await self._pod_control.claim(job, claims)
        now = self._clock.now()
        assessment = assess(job, pods, now)
        before = self._backoffs.get(uid, Backoff())
        backoff = before.after(assessment.newly_succeeded, assessment.newly_failed, now)
        plan = plan_pods(assessment, backoff, now)
        writes, failure = await self._write_pods(assessment, plan)
        tracking = track(assessment, writes, now)
        job = await self._write_status(job, tracking.status)
        self._backoffs[uid] = backoff
        self._record_suspension(job, tracking)
        released, unreleased = await self._release(job, tracking.release)
        status, has_ended = conclude(tracking, released)
        job = await self._write_status(job, status)
        if has_ended and tracking.final is not None:
            self._record_end(job, tracking.final)
        failure = failure or unreleased
        if failure is not None:
            raise failure
        due = [each for each in (plan.retry_after, seconds_to_deadline(job, now)) if each is not None and each > 0]
        return None if has_ended else min(due, default=None)

    async def _write_pods(self, assessment: Assessment, plan: PodPlan) -> tuple[PodWrites, Exception | None]:
        """Delete or create what is planned. Returns what became of it, and the first failure."""
        job = assessment.job
        if plan.delete:
            deletions = [self._delete(job, pod, counts=plan.counts) for pod in plan.delete]
            results = await asyncio.gather(*deletions, return_exceptions=True)
            deleted = {pod.metadata.uid for pod, result in zip(plan.delete, results, strict=True) if result is None}
            return PodWrites(deleted=deleted, is_complete=len(deleted) == len(plan.delete)), first_failure(results)

        async def create(position: int) -> None:
            index = plan.create[position]
            predecessor = assessment.replaced_later.get(index) if index is not None else None
            await self._pod_control.create(job, new_pod(job, index, predecessor))

        created, failure = await slow_start(len(plan.create), create)
        # Nothing more can be created there, and soon this Job is deleted, too.
        return PodWrites(created), None if failure is not None and is_namespace_terminating(failure) else failure

    async def _delete(self, job: Job, pod: Pod, *, counts: bool) -> None:
        if not counts:
            await self._remove_finalizer(pod)
        await self._pod_control.delete(job, pod)

    async def _release(self, job: Job, pods: Sequence[Pod]) -> tuple[set[str], Exception | None]:
        """Remove the finalizers of pods that the status has. Returns the UIDs of those that have none now, and the
        first failure."""
        results = await asyncio.gather(*(self._remove_finalizer(pod) for pod in pods), return_exceptions=True)
        released = {pod.metadata.uid for pod, result in zip(pods, results, strict=True) if result is None}
        return released, first_failure(results)

    async def _remove_finalizer(self, pod: Pod) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.patch(PODS, name, finalizer_removal(pod), PatchType.STRATEGIC, namespace)
        except ApiStatusError as error:
            # A conflict is about the UID: there is another pod of that name.
            if not (error.is_not_found or error.is_conflict):
                raise

    async def _write_status(self, job: Job, status: JobStatus) -> Job:
        """Write what differs, unless the Job has changed since it was read. Returns the Job as it is now."""
        patch = merge_difference(to_document(job.status), to_document(status))
        if not patch:
            return job
        metadata = job.metadata
        body = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": patch}
        name, namespace = metadata.name, metadata.namespace
        return await self._client.patch(JOBS, name, body, PatchType.MERGE, namespace, subresource="status")

    def _record_suspension(self, job: Job, tracking: Tracking) -> None:
        changed = tracking.suspension
        if changed is not None:
            reason = "Suspended" if changed.status == "True" else "Resumed"
            self._recorder.event(reference_to(JOBS, job), "Normal", reason, reason, changed.message)

    def _record_end(self, job: Job, final: JobCondition) -> None:
        regarding, completions = reference_to(JOBS, job), job.spec.completions
        if final.type != "Complete":
            self._recorder.event(regarding, "Warning", final.reason, final.reason, final.message)
            return
        if completions is not None and job.status.succeeded > completions:
            text = "Too many succeeded pods running after completion count reached"
            self._recorder.event(regarding, "Warning", "TooManySucceededPods", "TooManySucceededPods", text)
        self._recorder.event(regarding, "Normal", "Completed", "Completed", "Job completed")
