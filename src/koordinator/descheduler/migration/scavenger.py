"""Deletes jobs that are over, and those that nobody brought to an end, with the Reservations made for them."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.clock import Clock
from koordinator.descheduler.migration.job_facts import is_of_drain_node, is_own_reservation
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client

logger = logging.getLogger(__name__)

_PERIOD: Final = 60.0
KEPT: Final = timedelta(minutes=5)
"""So long a job stays after its end, for people to look at."""
_WITHOUT_TTL: Final = timedelta(minutes=25)


def is_over(job: PodMigrationJob, now: datetime) -> bool:
    """Whether the job is to be deleted: five minutes after it ended, but not before its time to live is over.

    One that has no time to live has 25 minutes, unless it belongs to a DrainNode, which sees to it."""
    created = job.metadata.creation_timestamp
    if created is None or (is_of_drain_node(job) and not is_terminal(job)):
        return False
    end = created + (job.spec.ttl or _WITHOUT_TTL)
    if is_terminal(job):
        changes = (condition.last_transition_time for condition in job.status.conditions)
        end = max([end, *(moment for moment in changes if moment is not None)])
    return now >= end + KEPT


class Scavenger:
    """Goes over all jobs every minute."""

    def __init__(self, client: Client, cluster: MigrationLister, clock: Clock) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock

    async def run(self) -> None:
        """Scavenge until cancelled."""
        while True:
            await self.scavenge()
            await self._clock.sleep(_PERIOD)

    async def scavenge(self) -> None:
        """One pass; what fails is tried again in the next."""
        now = self._clock.now()
        for job in self._cluster.jobs():
            try:
                if is_over(job, now):
                    await self._remove(job)
            except KubeError as error:
                logger.warning("migration job %s could not be scavenged: %s", job.metadata.name, error)
            except Exception:
                logger.exception("migration job %s could not be scavenged", job.metadata.name)

    async def _remove(self, job: PodMigrationJob) -> None:
        options = job.spec.reservation_options
        reference = options.reservation_ref if options is not None else None
        found = self._cluster.reservations.get(reference.name if reference is not None else job.metadata.uid)
        if found is not None and is_own_reservation(found):
            await self._delete(RESERVATIONS, found)
        await self._delete(POD_MIGRATION_JOBS, job)
        logger.info("migration job %s, %s, was scavenged", job.metadata.name, job.status.phase or "Pending")

    async def _delete(self, kind: Kind[Any], obj: Object) -> None:
        """Delete this very object; that it is gone, or another one by now, is as good."""
        try:
            await self._client.delete(kind, obj.metadata.name, uid=obj.metadata.uid)
        except ApiStatusError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
