"""The jobs that move a gang: one for each member. They share a label before any of them is let through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import to_document
from koordinator.api.kinds import POD_MIGRATION_JOBS
from koordinator.api.labels import EVICT_POLICY, GANG_MIGRATION
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.durations import format_duration
from koordinator.descheduler.gangs import Gang
from koordinator.descheduler.migration.job_facts import waits
from koordinator.descheduler.migration.job_writer import JobWriter
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.kube.errors import ApiStatusError

_COPIED: Final = (annotation_keys.EVICT_REASON, annotation_keys.EVICT_TRIGGER, annotation_keys.JOB_CREATED_BY)


class GangJobs:
    """Makes a job for each member of a gang that has none, whoever asked for the move of the first."""

    def __init__(self, cluster: MigrationLister, writer: JobWriter) -> None:
        self._cluster, self._writer = cluster, writer

    async def of(self, job: PodMigrationJob, gang: Gang) -> Sequence[PodMigrationJob]:
        """The jobs that are to be let through so that the gang moves, ``job`` among them. After an interruption the
        next call goes on where this one ended."""
        waiting = {member.metadata.uid: self._waiting_job(member) for member in gang.members}
        labelled = (each.metadata.labels.get(GANG_MIGRATION) for each in (job, *waiting.values()) if each is not None)
        migration = next(filter(None, labelled), job.metadata.uid)
        marks = {
            "labels": {GANG_MIGRATION: migration},
            "annotations": {annotation_keys.GANG_SIZE: str(len(gang.members))},
        }
        found = []
        for member in gang.members:
            known = waiting[member.metadata.uid]
            if known is not None:
                found.append(await self._marked(known, marks))
            elif not self._has_job(member, migration):
                found.append(await self._create(job, member, marks))
        return found

    def _waiting_job(self, member: Pod) -> PodMigrationJob | None:
        found = (each for each in self._cluster.own_jobs_of(member) if waits(each))
        return min(found, key=lambda each: each.metadata.name, default=None)

    def _has_job(self, member: Pod, migration: str) -> bool:
        """One that is through, or held."""
        jobs = self._cluster.own_jobs_of(member)
        return any(each.metadata.labels.get(GANG_MIGRATION) == migration for each in jobs)

    async def _marked(self, job: PodMigrationJob, marks: dict[str, dict[str, str]]) -> PodMigrationJob:
        metadata = job.metadata
        known = {"labels": metadata.labels, "annotations": metadata.annotations}
        if all(known[field].items() >= values.items() for field, values in marks.items()):
            return job
        try:
            return await self._writer.patch(job, {"metadata": marks})
        except ApiStatusError as error:
            if error.is_conflict:
                # What we know of it is old; the next round sees what it is now.
                await self._writer.read(metadata.name)
            raise

    async def _create(self, job: PodMigrationJob, member: Pod, marks: dict[str, dict[str, str]]) -> PodMigrationJob:
        document = _job_for(job, member, marks)
        try:
            return await self._writer.create(document)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
            return await self._writer.read(document["metadata"]["name"])


def _job_for(job: PodMigrationJob, member: Pod, marks: dict[str, dict[str, str]]) -> dict[str, Any]:
    """A job that moves the member as ``job`` moves its own pod; its name is the same each time."""
    metadata, options = member.metadata, job.spec.delete_options
    copied = {key: job.metadata.annotations[key] for key in _COPIED if key in job.metadata.annotations}
    policy = {EVICT_POLICY: job.metadata.labels[EVICT_POLICY]} if EVICT_POLICY in job.metadata.labels else {}
    spec: dict[str, Any] = {
        "podRef": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
        "mode": job.spec.mode,
    }
    if job.spec.ttl is not None:
        spec["ttl"] = format_duration(job.spec.ttl)
    if options is not None:
        # What must hold of the first pod, such as its resourceVersion, holds of no other.
        spec["deleteOptions"] = to_document(msgspec.structs.replace(options, preconditions=None))
    return {
        "apiVersion": POD_MIGRATION_JOBS.api_version,
        "kind": POD_MIGRATION_JOBS.name,
        "metadata": {
            "name": str(uuid5(NAMESPACE_OID, f"{marks['labels'][GANG_MIGRATION]}/{metadata.uid}")),
            "labels": {**policy, **marks["labels"]},
            "annotations": {**copied, **marks["annotations"]},
        },
        "spec": spec,
    }
