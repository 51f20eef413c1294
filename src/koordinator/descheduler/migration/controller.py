"""The controller of PodMigrationJobs: carries out what the state machine decides, one job at a time in each worker.

It keeps nothing that the API server does not have: jobs of a predecessor are taken over where it left them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from koordinator.api import labels
from koordinator.api import pod_migration_job as jobs
from koordinator.api.codec import convert, decode_any
from koordinator.api.document import Document
from koordinator.api.kinds import PODS, RESERVATIONS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import EVICT_DIRECTLY, PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.base.durations import has_passed
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.features import DISABLE_PVC_RESERVATION
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.evictors import EvictionRefusedError, PodEvictor
from koordinator.descheduler.migration.gang_migration import can_all_leave, decide_in_gang
from koordinator.descheduler.migration.gangs import MovingGangs, siblings_of, size_of
from koordinator.descheduler.migration.job_facts import (
    EVICTED_POD_CONTROLLER,
    delete_options,
    is_own_reservation,
    trigger_and_reason,
)
from koordinator.descheduler.migration.job_status import condition_of, is_terminal
from koordinator.descheduler.migration.job_writer import JobWriter, actor_of
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.plan import (
    CreateReservation,
    DeleteReservation,
    EvictPod,
    GangFacts,
    JobFacts,
    JobPlan,
    OrderReservation,
    PatchJob,
    Step,
    WriteStatus,
)
from koordinator.descheduler.migration.recent_evictions import CoolDown, EvictedPod, ObjectLimiter, under_way_since
from koordinator.descheduler.migration.reservation_template import reservation_for, reservation_name
from koordinator.descheduler.migration.state_machine import after_failed_creation, failed_eviction
from koordinator.descheduler.migration.workloads import Workloads, WorkloadUnknownError
from koordinator.descheduler.plan_controller import delete_if_there, if_there, intentions_for, merged
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.kube.reconciler import Reconcilers

logger = logging.getLogger(__name__)

_DEADLINE: Final = 120.0
"""Seconds for one look at a job."""
_PAUSES: Final = (0.05, 15.0)
"""The shortest and the longest pause between two tries, such as evictions that a budget does not allow; in seconds."""
_NO_NAMES: Final = frozenset(("", ".", ".."))
"""No object has such a name, and no server can be queried for it; jobs may refer to it all the same."""
_STEPS: Final = 32
"""More plans than this in a row do not come out of one change of the cluster."""


class MigrationError(KoordinatorError):
    """A job that does not come to rest."""


class JobController:
    """Works while ``run`` runs; what has changed before is looked at then."""

    def __init__(
        self,
        handle: Handle,
        reconcilers: Reconcilers,
        cluster: MigrationLister,
        writer: JobWriter,
        evictor: PodEvictor,
        workloads: Workloads,
        gangs: MovingGangs,
        limiter: ObjectLimiter,
        cool_down: CoolDown,
        args: MigrationControllerArgs,
    ) -> None:
        self._client, self._clock = handle.client, handle.clock
        self._cluster = cluster
        self._writer = writer
        self._evictor = evictor
        self._workloads = workloads
        self._gangs = gangs
        self._in_gang = asyncio.Lock()
        """Held from the decision about a member to its effect: no other member decides on what is old meanwhile."""
        self._limiter = limiter
        self._cool_down = cool_down
        self._args = args
        self._without_claims = DISABLE_PVC_RESERVATION in handle.gates
        self._orphaned: dict[str, PodMigrationJob] = {}
        self._reconciler = reconcilers.make(
            "migration jobs",
            self.reconcile,
            self._names,
            workers=args.max_concurrent_reconciles,
            deadline=_DEADLINE,
            pauses=_PAUSES,
        )
        self._add_handlers()

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards."""
        self._count_recent_evictions()
        await self._reconciler.run()

    def add(self, name: str) -> None:
        """Look at a job soon."""
        self._reconciler.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Bring a job as far as it goes now. Returns after how many seconds it has to be looked at again."""
        job = self._cluster.job(name)
        if job is None:
            await self._clean_up_after(name)
            return None
        if job.metadata.deletion_timestamp is not None:
            return None
        if labels.GANG_MIGRATION not in job.metadata.labels:
            return await self._bring_on(name, job)
        async with self._in_gang:
            return await self._bring_on(name, self._cluster.job(name) or job)

    async def _bring_on(self, name: str, job: PodMigrationJob) -> float | None:
        for _ in range(_STEPS):
            plan = await self._decide(job)
            if not plan.steps:
                return plan.after
            try:
                job = await self._carry_out(plan, job)
            except ApiStatusError as error:
                # Another client may have written the job, or deleted it.
                found = await if_there(self._writer.read(name))
                if found is None:
                    return None
                if not error.is_conflict:
                    raise
                job = found
            else:
                if plan.final:
                    return None
        raise MigrationError(f"{name} did not come to rest after {_STEPS} plans")

    async def intentions(self, job: PodMigrationJob) -> list[str]:
        """What would be done about a job that arbitration lets through, with nothing done about it."""

        async def next_plan(job: PodMigrationJob) -> tuple[PodMigrationJob, list[str]]:
            plan, actions = await self._decide(job), []
            for step in plan.steps:
                match step:
                    case WriteStatus(status):
                        job = replace(job, status=status)
                        if is_terminal(job):
                            actions.append(f"end as {status.phase}: {status.message}")
                    case PatchJob(patch):
                        job = merged(job, patch)
                    case _:
                        actions.append(str(step))
            return job, actions

        return await intentions_for(job, next_plan)

    async def _decide(self, job: PodMigrationJob) -> JobPlan:
        return decide_in_gang(job, await self._facts(job), self._args, self._clock.now())

    def _names(self) -> Iterable[str]:
        return [job.metadata.name for job in self._cluster.jobs()]

    def _add_handlers(self) -> None:
        """Look at a job when it changes, and when a pod or Reservation of it does."""
        self._cluster.job_informer.add_handlers(
            name="migration",
            on_add=lambda job, _: self.add(job.metadata.name),
            on_update=lambda _, job: self._add_with_gang(job),
            on_delete=self._orphan,
        )
        self._cluster.pods.add_handlers(
            name="migration",
            on_add=lambda pod, initial: None if initial else self._add_jobs_of(pod),
            on_update=lambda _, pod: self._add_jobs_of(pod),
            on_delete=self._add_jobs_of,
        )
        self._cluster.reservations.add_handlers(
            name="migration",
            on_add=lambda found, initial: None if initial else self._add_jobs_with(found),
            on_update=lambda _, found: self._add_jobs_with(found),
            on_delete=self._add_jobs_with,
        )

    def _add_with_gang(self, job: PodMigrationJob) -> None:
        for each in (job, *siblings_of(job, self._cluster)):
            self.add(each.metadata.name)

    def _add_jobs_of(self, pod: Pod) -> None:
        for job in (*self._cluster.jobs_of(pod), *self._cluster.jobs_bound_to(pod)):
            self.add(job.metadata.name)

    def _add_jobs_with(self, found: Reservation) -> None:
        for job in self._cluster.jobs_with_reservation(found.metadata.name):
            self.add(job.metadata.name)

    def _orphan(self, job: PodMigrationJob) -> None:
        for each in siblings_of(job, self._cluster):
            self.add(each.metadata.name)
        if self._reconciler.is_running:
            self._orphaned[job.metadata.name] = job
            self.add(job.metadata.name)

    async def _clean_up_after(self, name: str) -> None:
        """A job that was deleted takes the Reservation that was made for it along."""
        job = self._orphaned.get(name)
        if job is not None:
            found = await self._reservation(_referred(job) or job.metadata.uid)
            if found is not None and is_own_reservation(found):
                await delete_if_there(self._client, RESERVATIONS, found.metadata.name, found.metadata.uid)
            del self._orphaned[name]

    async def _facts(self, job: PodMigrationJob) -> JobFacts:
        reference = job.spec.pod_ref
        pod = await self._pod(reference.namespace, reference.name) if reference is not None else None
        found = await self._reservation(self._reservation_of(job))
        owners = found.status.current_owners if found is not None else ()
        bound = await self._pod(owners[0].namespace, owners[0].name) if owners else None
        limited = pod is not None and bool(self._limiter.refusals(pod, self._clock.monotonic()))
        return JobFacts(pod, found, bound, limited, self._gang_of(job))

    def _gang_of(self, job: PodMigrationJob) -> GangFacts | None:
        if labels.GANG_MIGRATION not in job.metadata.labels:
            return None
        siblings = tuple(siblings_of(job, self._cluster))
        size = max(map(size_of, (job, *siblings)))
        every = (job, *siblings)
        if not can_all_leave(every, self._args):
            return GangFacts(siblings, size)
        return GangFacts(siblings, size, self._gangs.problem_of_jobs(every), self._gangs.newcomer(job, every))

    async def _pod(self, namespace: str, name: str) -> Pod | None:
        """From the cache; a pod that it does not have is read from the API, so that none counts as gone too early."""
        if namespace in _NO_NAMES or name in _NO_NAMES:
            return None
        cached = self._cluster.pod(namespace, name)
        return cached if cached is not None else await if_there(self._client.get(PODS, name, namespace))

    def _reservation_of(self, job: PodMigrationJob) -> str:
        """The name of the Reservation that the job refers to; else of that which is created for it."""
        name = _referred(job)
        if name or (job.spec.mode or self._args.default_job_mode) == EVICT_DIRECTLY:
            return name
        # A job that has ended may only delete what certainly belongs to it.
        return job.metadata.uid if is_terminal(job) else reservation_name(job)

    async def _reservation(self, name: str) -> Reservation | None:
        """From the cache; from the API if it has none, or not yet as this program has changed it."""
        cached = self._cluster.reservations.get(name)
        if name in _NO_NAMES or (cached is not None and labels.RESERVATION_ORDER in cached.metadata.labels):
            return cached
        return await if_there(self._client.get(RESERVATIONS, name))

    async def _carry_out(self, plan: JobPlan, job: PodMigrationJob) -> PodMigrationJob:
        for step in plan.steps:
            job = await self._take(step, job)
        for event in plan.events:
            self._writer.record_event(job, event)
        return job

    async def _take(self, step: Step, job: PodMigrationJob) -> PodMigrationJob:
        match step:
            case WriteStatus(status):
                return await self._writer.write_status(job, status)
            case PatchJob(patch):
                return await self._writer.patch(job, patch)
            case CreateReservation():
                return await self._create_reservation(job)
            case OrderReservation(name, order):
                await self._order(name, order)
            case DeleteReservation(name, uid):
                await delete_if_there(self._client, RESERVATIONS, name, uid)
            case EvictPod(pod, policy):
                await self._evict(job, pod, policy)
        return job

    async def _create_reservation(self, job: PodMigrationJob) -> PodMigrationJob:
        reference = job.spec.pod_ref
        assert reference is not None
        document = await self._pod_document(reference.namespace, reference.name)
        pod = convert(document, Pod) if document is not None else None
        if document is None or pod is None or pod.metadata.uid != reference.uid:
            # The next look at the job finds that out too.
            return job
        now = self._clock.now()
        body = reservation_for(job, pod, document, now, without_claims=self._without_claims)
        try:
            await self._client.create(RESERVATIONS, body)
        except ApiStatusError as error:
            if error.is_already_exists:
                return job
            await self._carry_out(after_failed_creation(job, error.message or str(error), now), job)
            raise
        return job

    async def _pod_document(self, namespace: str, name: str) -> Document | None:
        found = await if_there(self._client.raw("GET", PODS.path(namespace, name)))
        return decode_any(found) if found is not None else None

    async def _order(self, name: str, order: str) -> None:
        patch = {"metadata": {"labels": {labels.RESERVATION_ORDER: order}}}
        await if_there(self._client.patch(RESERVATIONS, name, patch, PatchType.MERGE))

    async def _evict(self, job: PodMigrationJob, pod: Pod, policy: str) -> None:
        trigger, reason = trigger_and_reason(job)
        before = self._clock.now()
        try:
            options, actor = delete_options(job, self._args), actor_of(job)
            sent = await self._evictor.evict(pod, policy, options, trigger, reason, actor=actor)
        except EvictionRefusedError as error:
            self._writer.record_event(job, failed_eviction(job, str(error)))
            raise
        if sent:
            await self._count(pod, before)
        else:
            # Another client was faster, or a predecessor ended before it wrote so: the replacement may be there.
            controller = controller_of(pod.metadata)
            since = under_way_since(pod, job.metadata.creation_timestamp or before)
            self._cool_down.track(controller.uid if controller is not None else "", since)

    async def _count(self, pod: Pod, before: datetime) -> None:
        """The eviction makes further ones of the same workload and namespace wait, and that of its replacement.

        The replacement is created after ``before``, perhaps before the response of the request."""
        controller = controller_of(pod.metadata)
        self._cool_down.track(controller.uid if controller is not None else "", before)
        await self._workloads.refresh([pod])
        self._limiter.track(EvictedPod.of(pod, self._replicas(pod)), self._clock.monotonic())

    def _replicas(self, pod: Pod) -> int | None:
        try:
            workload = self._workloads.of(pod)
        except WorkloadUnknownError as error:
            logger.warning("%s: its eviction counts towards no limit of its workload: %s", pod.metadata.key, error)
            return None
        return workload.replicas if workload is not None and not workload.is_leaving else None

    def _count_recent_evictions(self) -> None:
        """What a predecessor has evicted counts too, as far as its jobs still show it."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        memory = self._limiter.longest_memory
        evictions = []
        for job in self._cluster.jobs():
            condition, reference = condition_of(job.status, jobs.EVICTION), job.spec.pod_ref
            if condition is not None and condition.last_transition_time is not None and reference is not None:
                evictions.append((condition.last_transition_time, job.metadata.name, reference.namespace, job))
        for at, _, namespace, job in sorted(evictions, key=lambda each: each[:2]):
            controller = job.metadata.annotations.get(EVICTED_POD_CONTROLLER, "")
            # The condition has the time when the pod was gone, which is after its replacement was created.
            self._cool_down.track(controller, job.metadata.creation_timestamp or at)
            if not has_passed(memory, at, now):
                others = self._cluster.pods_owned_by(controller)
                evicted = EvictedPod(namespace, controller, self._replicas(others[0]) if others else None)
                self._limiter.track(evicted, monotonic - max((now - at).total_seconds(), 0.0))


def _referred(job: PodMigrationJob) -> str:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return reference.name if reference is not None else ""
