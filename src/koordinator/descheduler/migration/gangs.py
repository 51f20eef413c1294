"""Gangs that move, and the PodMigrationJobs of their members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from koordinator.api.annotations import GANG_SIZE
from koordinator.api.labels import GANG_MIGRATION
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.gangs import Gangs
from koordinator.descheduler.migration.arguments import EVICTION, MigrationControllerArgs
from koordinator.descheduler.migration.job_facts import eviction_policy, has_passed_arbitration, refers_to
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.ledger import is_available
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.pod_facts import is_terminating
from koordinator.model.gang_declaration import GENERIC_WORKLOAD
from koordinator.model.pod_disruption import is_unprotected

_NAME: Final = attrgetter("metadata.name")


class MovingGangs(Gangs):
    """A member whose job has been let through does not stay."""

    def __init__(self, cluster: MigrationLister, handle: Handle, args: MigrationControllerArgs) -> None:
        self._cluster, self._args = cluster, args
        reads_workloads = GENERIC_WORKLOAD in handle.gates
        super().__init__(
            cluster.pods, handle.informers, args.gang_policy, reads_workloads=reads_workloads, stays=self._is_kept
        )
        if self.is_whole:
            cluster.job_informer.add_handlers(
                name="gangs",
                on_add=lambda *_: self.forget(),
                on_update=lambda *_: self.forget(),
                on_delete=lambda *_: self.forget(),
            )

    def problem_of_jobs(self, jobs: Iterable[PodMigrationJob]) -> str:
        """Why PodDisruptionBudgets do not let all pods of the jobs leave now; empty if they do."""
        if not self.is_whole:
            return ""
        pods = [(job, self._pod_of(job)) for job in jobs]
        return self.budget_problem([pod for job, pod in pods if pod is not None and self._asks_budgets(job, pod)])

    def newcomer(self, job: PodMigrationJob, jobs: Iterable[PodMigrationJob]) -> str:
        """The key of a member of the gang of the job's pod that none of the jobs is for; empty if there is none."""
        pod = self._pod_of(job)
        gang = self.of(pod) if pod is not None and refers_to(job, pod) else None
        if gang is None:
            return ""
        moved = {each.spec.pod_ref.uid for each in jobs if each.spec.pod_ref is not None}
        return next((each.metadata.key for each in gang.members if each.metadata.uid not in moved), "")

    def _is_kept(self, pod: Pod) -> bool:
        moving = (has_passed_arbitration(job) and not is_terminal(job) for job in self._cluster.own_jobs_of(pod))
        return is_available(pod) and not any(moving)

    def _pod_of(self, job: PodMigrationJob) -> Pod | None:
        reference = job.spec.pod_ref
        return self._cluster.pod(reference.namespace, reference.name) if reference is not None else None

    def _asks_budgets(self, job: PodMigrationJob, pod: Pod) -> bool:
        unprotected = is_unprotected(pod.status.phase, is_terminating=is_terminating(pod))
        return not unprotected and eviction_policy(job, pod, self._args) == EVICTION


def siblings_of(job: PodMigrationJob, cluster: MigrationLister) -> Sequence[PodMigrationJob]:
    """The other jobs that move the gang of the job's pod, by their names."""
    found = cluster.jobs_of_gang(job.metadata.labels.get(GANG_MIGRATION, ""))
    return sorted((each for each in found if each.metadata.name != job.metadata.name), key=_NAME)


def size_of(job: PodMigrationJob) -> int:
    """How many jobs move the gang of the job's pod, as the job says; 0 if it says nothing that can be read."""
    text = job.metadata.annotations.get(GANG_SIZE, "")
    return int(text) if text.isdecimal() else 0
