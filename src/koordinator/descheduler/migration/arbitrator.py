"""Lets waiting jobs through in rounds: in order, within the limits, each by an annotation that outlives the program."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import pod_migration_job as jobs
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.clock import Clock
from koordinator.base.deadline import unless
from koordinator.base.loops import Loop
from koordinator.base.yielding import CooperativeYielding
from koordinator.descheduler.migration.arbitration import (
    ArbitrationResult,
    ArbitrationStatus,
    filter_job,
    in_order,
    is_under_way,
    rank_of,
    waits,
)
from koordinator.descheduler.migration.arguments import ArbitrationArgs
from koordinator.descheduler.migration.job_writer import JobWriter
from koordinator.descheduler.migration.limits import MigrationPolicies
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.workloads import Workloads
from koordinator.descheduler.plan_controller import PlannedEvent
from koordinator.kube.errors import ApiStatusError, KubeError

logger = logging.getLogger(__name__)

_NAME: Final = "migration arbitration"
_DEADLINE: Final = 600.0
"""Seconds for one round; thousands of jobs take minutes at the rate of the client."""
_FRESH: Final = 5.0
"""Seconds for which the scale of a workload of another kind is good enough for the next rounds."""
_AT_ONCE: Final = 0.01
"""Seconds that a job waits for others that arrive with it, where arbitration is not enabled."""


class Arbitrator:
    """Finds what waits in the jobs themselves, so that nothing is lost with the program."""

    def __init__(
        self,
        cluster: MigrationLister,
        writer: JobWriter,
        policies: MigrationPolicies,
        workloads: Workloads,
        args: ArbitrationArgs,
        clock: Clock,
        yielding: CooperativeYielding,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._policies = policies
        self._workloads = workloads
        self._args = args
        self._clock = clock
        self._yielding = yielding
        self._arrived = asyncio.Event()
        cluster.job_informer.add_handlers(name="migration, jobs that wait", on_add=lambda job, _: self._arrive(job))

    @property
    def loop(self) -> Loop:
        """A round every interval; one as soon as a job arrives where arbitration is not enabled."""
        if self._args.enabled:
            return Loop(_NAME, self.arbitrate, self._args.interval.total_seconds(), _DEADLINE)
        return Loop(_NAME, self._arbitrate_arrivals, 0.0, _DEADLINE)

    async def arbitrate(self) -> None:
        """One round over all jobs that wait."""
        for job, pod in await self._in_order():
            await self._yielding.checkpoint()
            try:
                await self._arbitrate_job(job, pod)
            except KubeError as error:
                logger.warning("migration job %s waits on: %s", job.metadata.name, error)
            except Exception:
                # One job with an unforeseen error must not keep all others from proceeding.
                logger.exception("migration job %s waits on", job.metadata.name)

    async def results(self) -> list[tuple[PodMigrationJob, ArbitrationResult]]:
        """What a round would come to for each job that waits, with nothing written."""
        return [(job, filter_job(job, pod, self._policies)) for job, pod in await self._in_order()]

    async def _in_order(self) -> list[tuple[PodMigrationJob, Pod | None]]:
        """The jobs that wait with their pods, in the order of a round."""
        waiting = [job for job in self._cluster.open_jobs() if waits(job)]
        if not waiting:
            return []
        pods = {job.metadata.name: pod for job in waiting if (pod := self._pod(job)) is not None}
        await self._workloads.refresh(pods.values(), older_than=_FRESH)
        ranks = {}
        for job in waiting:
            await self._yielding.checkpoint()
            ranks[job.metadata.name] = rank_of(pods.get(job.metadata.name))
        return [(job, pods.get(job.metadata.name)) for job in in_order(waiting, pods, ranks, self._under_way)]

    async def _arbitrate_arrivals(self) -> None:
        """One round, when there is a new job, or when those that were not let through are due again."""
        await unless(self._arrived, self._clock.sleep(self._args.interval.total_seconds()))
        if self._arrived.is_set():
            await self._clock.sleep(_AT_ONCE)
        self._arrived.clear()
        await self.arbitrate()

    async def _arbitrate_job(self, job: PodMigrationJob, pod: Pod | None) -> None:
        result = filter_job(job, pod, self._policies)
        if result.status is ArbitrationStatus.PASSED:
            await self._let_through(job)
        elif result.status is ArbitrationStatus.FORBIDDEN:
            logger.info("migration job %s is forbidden: %s", job.metadata.name, "; ".join(result.reasons))
            await self._forbid(job)
        else:
            logger.debug("migration job %s waits: %s", job.metadata.name, "; ".join(result.reasons))

    async def _let_through(self, job: PodMigrationJob) -> None:
        patch = {"metadata": {"annotations": {annotation_keys.PASSED_ARBITRATION: "true"}}}
        try:
            await self._writer.patch(job, patch)
        except ApiStatusError as error:
            if not error.is_conflict:
                raise
            # What we know of it is old; the next round sees what it is now.
            await self._writer.read(job.metadata.name)

    async def _forbid(self, job: PodMigrationJob) -> None:
        reference = job.spec.pod_ref
        key = f"{reference.namespace}/{reference.name}" if reference is not None else ""
        message = f'Pod "{key}" is forbidden to migrate because it does not meet the requirements'
        reason = jobs.FORBIDDEN_MIGRATE_POD
        status = msgspec.structs.replace(job.status, phase=jobs.FAILED, reason=reason, message=message)
        self._writer.record_event(
            await self._writer.write_status(job, status), PlannedEvent("Warning", reason, message)
        )

    def _pod(self, job: PodMigrationJob) -> Pod | None:
        reference = job.spec.pod_ref
        return self._cluster.pod(reference.namespace, reference.name) if reference is not None else None

    def _under_way(self, owner: str) -> int:
        pods = self._cluster.pods_owned_by(owner)
        return sum(is_under_way(job) for pod in pods for job in self._cluster.jobs_of(pod))

    def _arrive(self, job: PodMigrationJob) -> None:
        if waits(job):
            self._arrived.set()
