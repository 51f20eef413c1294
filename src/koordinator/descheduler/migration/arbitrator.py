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
from koordinator.descheduler.gangs import Gangs
from koordinator.descheduler.migration.arbitration import (
    ArbitrationResult,
    ArbitrationStatus,
    Refused,
    WaitingJob,
    filter_job,
    in_order,
    is_under_way,
)
from koordinator.descheduler.migration.arguments import ArbitrationArgs
from koordinator.descheduler.migration.gang_jobs import GangJobs
from koordinator.descheduler.migration.job_facts import waits
from koordinator.descheduler.migration.job_writer import JobWriter
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.policies import MigrationPolicies
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
        gangs: Gangs,
        args: ArbitrationArgs,
        clock: Clock,
        yielding: CooperativeYielding,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._policies = policies
        self._workloads = workloads
        self._gangs = gangs
        self._gang_jobs = GangJobs(cluster, writer)
        self._args = args
        self._clock = clock
        self._yielding = yielding
        self._waiting: dict[str, WaitingJob] = {}
        """By name, as of the last round."""
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
        refused: Refused = {}
        for waiting in await self._in_order():
            await self._yielding.checkpoint()
            try:
                await self._arbitrate_job(waiting, refused)
            except KubeError as error:
                logger.warning("migration job %s waits on: %s", waiting.job.metadata.name, error)
            except Exception:
                # One job with an unforeseen error must not keep all others from proceeding.
                logger.exception("migration job %s waits on", waiting.job.metadata.name)

    async def results(self) -> list[tuple[PodMigrationJob, ArbitrationResult]]:
        """What a round would come to for each job that waits, with nothing written."""
        refused: Refused = {}
        return [(each.job, self._filter(each, refused)) for each in await self._in_order()]

    async def _in_order(self) -> list[WaitingJob]:
        """The jobs that wait, in the order of a round."""
        found: dict[str, WaitingJob] = {}
        for job in self._cluster.waiting_jobs():
            name, pod = job.metadata.name, self._pod(job)
            known = self._waiting.get(name)
            if known is None or known.job is not job or known.pod is not pod:
                await self._yielding.checkpoint()
                known = WaitingJob.of(job, pod)
            found[name] = known
        self._waiting = found
        await self._workloads.refresh([each.pod for each in found.values() if each.pod is not None], older_than=_FRESH)
        return in_order(found.values(), self._under_way)

    async def _arbitrate_arrivals(self) -> None:
        """One round, when there is a new job, or when those that were not let through are due again."""
        await unless(self._arrived, self._clock.sleep(self._args.interval.total_seconds()))
        if self._arrived.is_set():
            await self._clock.sleep(_AT_ONCE)
        self._arrived.clear()
        await self.arbitrate()

    async def _arbitrate_job(self, waiting: WaitingJob, refused: Refused) -> None:
        # The job of another member may have let the gang of this one through, in this round.
        job = self._cluster.job(waiting.job.metadata.name)
        if job is None or not waits(job):
            return
        result = self._filter(waiting._replace(job=job), refused)
        if result.status is ArbitrationStatus.PASSED and result.gang is not None:
            for each in await self._gang_jobs.of(job, result.gang):
                await self._let_through(each)
        elif result.status is ArbitrationStatus.PASSED:
            await self._let_through(job)
        elif result.status is ArbitrationStatus.FORBIDDEN:
            logger.info("migration job %s is forbidden: %s", job.metadata.name, "; ".join(result.reasons))
            await self._forbid(job, result)
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

    def _filter(self, waiting: WaitingJob, refused: Refused) -> ArbitrationResult:
        return filter_job(waiting, self._policies, self._gangs, self._cluster, refused)

    async def _forbid(self, job: PodMigrationJob, result: ArbitrationResult) -> None:
        reference = job.spec.pod_ref
        key = f"{reference.namespace}/{reference.name}" if reference is not None else ""
        message = f'Pod "{key}" is forbidden to migrate because it does not meet the requirements'
        if result.gang is not None:
            message += f": {'; '.join(result.reasons)}"
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
