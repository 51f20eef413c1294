"""Deletes jobs that are over, and those that were never finished, with the Reservations made for them.

A Reservation goes with its job by an owner reference, too; but that takes a garbage collector, which a cluster may
lack. So those are looked for whose job was deleted while no descheduler led.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api import pod_migration_job as jobs
from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS, Kind
from koordinator.api.meta import Object, OwnerReference
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.base.clock import Clock
from koordinator.base.loops import Loop
from koordinator.descheduler.migration.job_facts import EVICTED_POD_CONTROLLER, is_of_drain_node, is_own_reservation
from koordinator.descheduler.migration.job_status import condition_of, is_terminal
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client

logger = logging.getLogger(__name__)

_PERIOD: Final = 60.0
_DEADLINE: Final = 600.0
KEPT: Final = timedelta(minutes=5)
"""So long a job stays after its end, for people to look at."""
_WITHOUT_TTL: Final = timedelta(minutes=25)


def is_over(job: PodMigrationJob, now: datetime, cool_down: timedelta = timedelta()) -> bool:
    """Whether the job is to be deleted: five minutes after it ended, but not before its time to live is over.

    One that has no time to live has 25 minutes, unless it belongs to a DrainNode, which sees to it. One that has
    evicted a pod stays for ``cool_down`` from its creation: by it alone a successor of this program knows of that."""
    created = job.metadata.creation_timestamp
    if created is None or (is_of_drain_node(job) and not is_terminal(job)):
        return False
    if now - created < cool_down and has_evicted(job):
        return False
    end = created + (job.spec.ttl or _WITHOUT_TTL)
    if is_terminal(job):
        changes = (condition.last_transition_time for condition in job.status.conditions)
        end = max([end, *(moment for moment in changes if moment is not None)])
    return now >= end + KEPT


def has_evicted(job: PodMigrationJob) -> bool:
    """Whether the job records an eviction of a pod that has a controller."""
    evicted = condition_of(job.status, jobs.EVICTION) is not None
    return evicted and bool(job.metadata.annotations.get(EVICTED_POD_CONTROLLER))


def _job_of(found: Reservation) -> OwnerReference | None:
    """The job that a Reservation was made for, if it says so."""
    owners = found.metadata.owner_references if is_own_reservation(found) else ()
    return next((owner for owner in owners if owner.kind == POD_MIGRATION_JOBS.name), None)


class Scavenger:
    """Goes over all jobs every minute."""

    def __init__(self, client: Client, cluster: MigrationLister, clock: Clock, cool_down: timedelta) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._cool_down = cool_down

    @property
    def loop(self) -> Loop:
        return Loop("migration scavenger", self.scavenge, _PERIOD, _DEADLINE)

    async def scavenge(self) -> None:
        """One pass; what fails is tried again in the next."""
        now = self._clock.now()
        await self._remove_left_over()
        for job in self._cluster.jobs():
            try:
                if is_over(job, now, self._cool_down):
                    await self._remove(job)
            except KubeError as error:
                logger.warning("migration job %s could not be scavenged: %s", job.metadata.name, error)
            except Exception:
                logger.exception("migration job %s could not be scavenged", job.metadata.name)

    async def intentions(self) -> list[str]:
        """What a pass would delete, as sentences."""
        now = self._clock.now()
        over = [job for job in self._cluster.jobs() if is_over(job, now, self._cool_down)]
        return [
            *(f"Reservation {found.metadata.name}: delete it, its job is gone" for found in await self._left_over()),
            *(f"PodMigrationJob {job.metadata.name}: delete it with its Reservation, it is over" for job in over),
        ]

    async def _remove(self, job: PodMigrationJob) -> None:
        options = job.spec.reservation_options
        reference = options.reservation_ref if options is not None else None
        found = self._cluster.reservations.get(reference.name if reference is not None else job.metadata.uid)
        if found is not None and is_own_reservation(found):
            await self._delete(RESERVATIONS, found)
        await self._delete(POD_MIGRATION_JOBS, job)
        logger.info("migration job %s, %s, was scavenged", job.metadata.name, job.status.phase or "Pending")

    async def _remove_left_over(self) -> None:
        for found in await self._left_over():
            try:
                await self._delete(RESERVATIONS, found)
                logger.info("Reservation %s was scavenged: its job is gone", found.metadata.name)
            except KubeError as error:
                logger.warning("Reservation %s could not be scavenged: %s", found.metadata.name, error)
            except Exception:
                logger.exception("Reservation %s could not be scavenged", found.metadata.name)

    async def _left_over(self) -> list[Reservation]:
        """The Reservations whose job is gone."""
        uids, left_over = {job.metadata.uid for job in self._cluster.jobs()}, []
        for found in self._cluster.reservations.list():
            owner = _job_of(found)
            if owner is None or owner.uid in uids:
                continue
            try:
                if await self._is_gone(owner):
                    left_over.append(found)
            except KubeError as error:
                logger.warning("the job of Reservation %s cannot be read: %s", found.metadata.name, error)
        return left_over

    async def _is_gone(self, owner: OwnerReference) -> bool:
        """By the API server, which knows of jobs that no informer has seen yet."""
        try:
            job = await self._client.get(POD_MIGRATION_JOBS, owner.name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return True
        return job.metadata.uid != owner.uid

    async def _delete(self, kind: Kind[Any], obj: Object) -> None:
        """Delete this very object; that it is gone, or another one by now, is as good."""
        try:
            await self._client.delete(kind, obj.metadata.name, uid=obj.metadata.uid)
        except ApiStatusError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
