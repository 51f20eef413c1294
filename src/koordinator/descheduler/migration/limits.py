"""How many pods may be on the move at once: in the cluster, on a node, in a namespace, of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from koordinator.api import pod_migration_job as jobs
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, is_finished
from koordinator.api.pod_migration_job import RESERVATION_FIRST, PodMigrationJob
from koordinator.descheduler.framework import Refusals
from koordinator.descheduler.migration import arguments as gates
from koordinator.descheduler.migration.arguments import MigrationControllerArgs, workload_limit
from koordinator.descheduler.migration.eviction_rules import EvictionRules
from koordinator.descheduler.migration.job_facts import has_passed_arbitration, is_ready
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.workloads import Workloads, WorkloadUnknownError
from koordinator.descheduler.pod_predicates import is_evictable_by_annotation


@dataclass(frozen=True, slots=True)
class MigrationFilters:
    """Reads the current state of ``cluster``; changes nothing."""

    args: MigrationControllerArgs
    rules: EvictionRules
    cluster: MigrationLister
    workloads: Workloads

    def refusals(self, pod: Pod) -> Refusals:
        """Why no job may be made for the pod now; the first kind of reasons only."""
        return (
            [*self._existing(pod), *self._without_reservation(pod)]
            or self.for_good(pod)
            or self.for_now(pod, arbitrating=False)
        )

    def for_good(self, pod: Pod) -> Refusals:
        """Why the pod must not be moved, however long one waits."""
        refused = self.rules.refusals(pod)
        return refused or ([] if is_evictable_by_annotation(pod) else list(self._expected_replicas(pod)))

    def for_now(self, pod: Pod, *, arbitrating: bool) -> Refusals:
        """Which limits are reached. ``arbitrating``: for an existing job, of the others only those count that have been
        let through; without it all others count."""
        if is_evictable_by_annotation(pod):
            return []
        counting = _Counting(arbitrating)
        return [
            *self._globally(pod, counting),
            *self._on_node(pod, counting),
            *self._in_namespace(pod, counting),
            *self._of_workload(pod, counting),
        ]

    def _existing(self, pod: Pod) -> Iterator[str]:
        for job in self.cluster.jobs_of(pod):
            if job.status.phase in ("", jobs.PENDING, jobs.RUNNING):
                yield f"filterExistingPodMigrationJob: {job.metadata.name} is for this pod"

    def _without_reservation(self, pod: Pod) -> Iterator[str]:
        scheduler = pod.spec.scheduler_name
        if self.args.default_job_mode == RESERVATION_FIRST and scheduler not in self.args.scheduler_names:
            yield f"reservationFilter: the scheduler {scheduler} is not one of schedulerNames"

    def _expected_replicas(self, pod: Pod) -> Iterator[str]:
        if self.args.skips(gates.EXPECTED_REPLICAS):
            return
        try:
            workload = self.workloads.of(pod)
        except WorkloadUnknownError as error:
            yield f"expectedReplicas: {error}"
            return
        if workload is None or self.args.skip_check_expected_replicas:
            return
        replicas = workload.replicas
        migrating = workload_limit(replicas, self.args.max_migrating_per_workload)
        unavailable = workload_limit(replicas, self.args.max_unavailable_per_workload)
        if replicas in (1, migrating, unavailable):
            yield (
                f"expectedReplicas: the workload is to have {replicas} replicas, of which {migrating} may migrate and"
                f" {unavailable} be unavailable"
            )

    def _globally(self, pod: Pod, counting: _Counting) -> Iterator[str]:
        most = self.args.max_migrating_globally
        if not most or self.args.skips(gates.MAX_MIGRATING_GLOBALLY):
            return
        count = sum(1 for job in self.cluster.open_jobs() if counting.counts(job, pod))
        if count >= most:
            yield f"maxMigratingGlobally: {count} pods migrate, {most} may"

    def _in_namespace(self, pod: Pod, counting: _Counting) -> Iterator[str]:
        most, namespace = self.args.max_migrating_per_namespace, pod.metadata.namespace
        if not most or self.args.skips(gates.MAX_MIGRATING_PER_NAMESPACE):
            return
        count = sum(1 for job in self.cluster.open_jobs_in(namespace) if counting.counts(job, pod))
        if count >= most:
            yield f"maxMigratingPerNamespace: {count} pods of {namespace} migrate, {most} may"

    def _on_node(self, pod: Pod, counting: _Counting) -> Iterator[str]:
        most, node = self.args.max_migrating_per_node, pod.spec.node_name
        if not most or not node or self.args.skips(gates.MAX_MIGRATING_PER_NODE):
            return
        others = (other for other in self.cluster.pods_on(node) if other.metadata.uid != pod.metadata.uid)
        count = sum(1 for other in others if self._is_migrating(other, pod, counting))
        if count >= most:
            yield f"maxMigratingPerNode: {count} pods of {node} migrate, {most} may"

    def _is_migrating(self, other: Pod, pod: Pod, counting: _Counting) -> bool:
        return any(counting.counts(job, pod) for job in self.cluster.jobs_of(other))

    def _of_workload(self, pod: Pod, counting: _Counting) -> Iterator[str]:
        check_migrating = not self.args.skips(gates.MAX_MIGRATING_PER_WORKLOAD)
        check_unavailable = not self.args.skips(gates.MAX_UNAVAILABLE_PER_WORKLOAD)
        if not check_migrating and not check_unavailable:
            return
        try:
            workload = self.workloads.of(pod)
        except WorkloadUnknownError as error:
            yield f"maxMigratingPerWorkload: {error}"
            return
        if workload is None:
            return
        migrating = self._migrating_with(pod, counting)
        most = workload_limit(workload.replicas, self.args.max_migrating_per_workload)
        if check_migrating and migrating and len(migrating) >= most:
            yield f"maxMigratingPerWorkload: {len(migrating)} pods of the workload migrate, {most} may"
        if check_unavailable:
            away = {each.metadata.key for each in self.workloads.pods_of(workload) if not _is_available(each)}
            most = workload_limit(workload.replicas, self.args.max_unavailable_per_workload)
            if len(away | migrating) >= most:
                count = len(away | migrating)
                yield f"maxUnavailablePerWorkload: {count} pods of the workload are unavailable or migrate, {most} may"

    def _migrating_with(self, pod: Pod, counting: _Counting) -> set[str]:
        """The keys of other pods with jobs that have the same controller as the pod."""
        controller, migrating = controller_of(pod.metadata), set()
        for job in self.cluster.open_jobs_in(pod.metadata.namespace):
            reference = job.spec.pod_ref
            if reference is None or not counting.counts(job, pod):
                continue
            other = self.cluster.pod(reference.namespace, reference.name)
            owner = controller_of(other.metadata) if other is not None else None
            if owner is not None and controller is not None and owner.uid == controller.uid:
                migrating.add(f"{reference.namespace}/{reference.name}")
        return migrating


@dataclass(frozen=True, slots=True)
class _Counting:
    arbitrating: bool

    def counts(self, job: PodMigrationJob, pod: Pod) -> bool:
        """Whether another pod's job takes one of the places that there are."""
        reference, phase = job.spec.pod_ref, job.status.phase
        if reference is None or reference.uid == pod.metadata.uid:
            return False
        if not reference.uid and (reference.namespace, reference.name) == (pod.metadata.namespace, pod.metadata.name):
            return False
        if phase == jobs.RUNNING:
            return True
        return phase in ("", jobs.PENDING) and (not self.arbitrating or has_passed_arbitration(job))


def _is_available(pod: Pod) -> bool:
    return not is_finished(pod) and pod.metadata.deletion_timestamp is None and is_ready(pod)
