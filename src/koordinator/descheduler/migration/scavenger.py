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
from koordinator.descheduler.plan_controller import delete_if_there, if_there
from koordinator.kube.errors import KubeError
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
    try:
        end = created + (job.spec.ttl or _WITHOUT_TTL)
    except OverflowError:
        return False  # Its time is over after the end of all time.
    if is_terminal(job):
        changes = (condition.last_transition_time for condition in job.status.conditions)
        end = max([end, *(moment for moment in changes if moment is not None)])
    return now - KEPT >= end


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
        for found in await self._left_over():
            await self._attempt(f"Reservation {found.metadata.name}, whose job is gone,", (RESERVATIONS, found))
        for job in self._cluster.jobs():
            if is_over(job, now, self._cool_down):
                what = f"migration job {job.metadata.name}, {job.status.phase or 'Pending'},"
                reserved = self._cluster.reservations.get(_reservation_name(job))
                own = [(RESERVATIONS, reserved)] if reserved is not None and is_own_reservation(reserved) else []
                await self._attempt(what, *own, (POD_MIGRATION_JOBS, job))

    async def intentions(self) -> list[str]:
        """What a pass would delete, as sentences."""
        now = self._clock.now()
        over = [job for job in self._cluster.jobs() if is_over(job, now, self._cool_down)]
        return [
            *(f"Reservation {found.metadata.name}: delete it, its job is gone" for found in await self._left_over()),
            *(f"PodMigrationJob {job.metadata.name}: delete it with its Reservation, it is over" for job in over),
        ]

    async def _attempt(self, what: str, *objects: tuple[Kind[Any], Object]) -> None:
        """Delete them in this order. What cannot be deleted keeps nothing else from being scavenged."""
        try:
            for kind, obj in objects:
                await delete_if_there(self._client, kind, obj.metadata.name, obj.metadata.uid)
            logger.info("%s was scavenged", what)
        except KubeError as error:
            logger.warning("%s could not be scavenged: %s", what, error)
        except Exception:
            logger.exception("%s could not be scavenged", what)

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
        job = await if_there(self._client.get(POD_MIGRATION_JOBS, owner.name))
        return job is None or job.metadata.uid != owner.uid


def _reservation_name(job: PodMigrationJob) -> str:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return reference.name if reference is not None else job.metadata.uid
