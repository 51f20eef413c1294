"""What is cleaned up after Jobs: those that ended long enough ago, and finalizers on pods that no Job will count."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from koordinator.api.batch import Job, finished_condition
from koordinator.api.kinds import JOBS, PODS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.job.new_pod import finalizer_removal
from koordinator.cluster.controllers.job.pods import has_finalizer
from koordinator.cluster.controllers.ownership import CONTROLLER_INDEX, by_controller
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType


def seconds_to_expiry(job: Job, now: datetime) -> float | None:
    """Seconds until ``ttlSecondsAfterFinished`` is over, 0 or less if it is; None for a Job that stays."""
    ttl, ended = job.spec.ttl_seconds_after_finished, finished_condition(job)
    if ttl is None or ended is None or ended.last_transition_time is None:
        return None
    if job.metadata.deletion_timestamp is not None:
        return None
    return ended.last_transition_time.timestamp() + ttl - now.timestamp()


class FinishedJobController:
    """Deletes Jobs with ``ttlSecondsAfterFinished``; its keys are ``namespace/name``."""

    name: Final = "ttl-after-finished-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._jobs = context.informers.informer(JOBS)
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [job.metadata.key for job in self._jobs.list()]
        )
        add = self._reconciler.add
        self._jobs.add_handlers(
            name=self.name,
            on_add=lambda job, _: add(job.metadata.key),
            on_update=lambda _, job: add(job.metadata.key),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        left = seconds_to_expiry(job, self._clock.now()) if job is not None else None
        if job is None or left is None or left > 0:
            return left
        metadata = job.metadata
        try:
            await self._client.delete(
                JOBS,
                metadata.name,
                metadata.namespace,
                uid=metadata.uid,
                # The TTL may just have been prolonged.
                resource_version=metadata.resource_version,
                propagation_policy="Foreground",
            )
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        return None


class OrphanedPodController:
    """Removes the tracking finalizer of pods that belong to no Job any more, which would else stay for ever; its keys
    are those of the pods. Part of the Job controller in kube-controller-manager."""

    name: Final = "job-orphaned-pod-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._jobs = context.informers.informer(JOBS)
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [pod.metadata.key for pod in self._pods.list() if has_finalizer(pod)]
        )
        self._jobs.add_handlers(name=self.name, on_delete=self._job_deleted)
        self._pods.add_handlers(
            name=self.name,
            on_add=lambda pod, _: self._seen(pod),
            on_update=lambda _, pod: self._seen(pod),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _job_deleted(self, job: Job) -> None:
        for pod in self._pods.by_index(CONTROLLER_INDEX, job.metadata.uid):
            self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        if has_finalizer(pod) and self._known_job(pod) is None:
            self._reconciler.add(pod.metadata.key)

    def _known_job(self, pod: Pod) -> Job | None:
        owner = controller_of(pod.metadata)
        job = self._jobs.get(f"{pod.metadata.namespace}/{owner.name}") if owner is not None else None
        return job if job is not None and owner is not None and job.metadata.uid == owner.uid else None

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not has_finalizer(pod) or self._known_job(pod) is not None or await self._has_job(pod):
            return None
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.patch(PODS, name, finalizer_removal(pod), PatchType.STRATEGIC, namespace)
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        return None

    async def _has_job(self, pod: Pod) -> bool:
        """Whether the server has the Job, as the cache may not know of it yet."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != JOBS.name:
            return False
        try:
            job = await self._client.get(JOBS, owner.name, pod.metadata.namespace)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return False
        return job.metadata.uid == owner.uid
