"""Which pods MigrationController lets be evicted: its policies, and how many pods may be on the move at once."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from koordinator.api import pod_migration_job as jobs
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import RESERVATION_FIRST
from koordinator.descheduler.eviction_pipeline import EvictionPipeline
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration import arguments as gates
from koordinator.descheduler.migration.arguments import MigrationControllerArgs, workload_limit
from koordinator.descheduler.migration.eviction_rules import EvictionRules
from koordinator.descheduler.migration.ledger import CLUSTER, Counting, Scope, of_namespace, of_node, of_owner
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.workloads import Workloads, WorkloadUnknownError
from koordinator.descheduler.pod_predicates import is_evictable_by_annotation

_JOBS: Final = attrgetter("jobs")
_PODS: Final = attrgetter("pods")


def _cluster(pod: Pod) -> Scope:
    return CLUSTER


class MigrationPolicies:
    """Reads the current state of ``cluster`` and ``counting``; changes nothing.

    ``for_good`` says why a pod must not be moved, however long one waits; ``for_new_job`` why no job may be made for it
    now."""

    def __init__(
        self,
        args: MigrationControllerArgs,
        rules: EvictionRules,
        cluster: MigrationLister,
        counting: Counting,
        workloads: Workloads,
    ) -> None:
        self._args = args
        self._cluster = cluster
        self._counting = counting
        self._workloads = workloads
        self._of_places = [
            (name, most, scope_of, counted)
            for name, gate, most, scope_of, counted in (
                ("maxMigratingGlobally", gates.MAX_MIGRATING_GLOBALLY, args.max_migrating_globally, _cluster, _JOBS),
                ("maxMigratingPerNode", gates.MAX_MIGRATING_PER_NODE, args.max_migrating_per_node, of_node, _PODS),
                (
                    "maxMigratingPerNamespace",
                    gates.MAX_MIGRATING_PER_NAMESPACE,
                    args.max_migrating_per_namespace,
                    of_namespace,
                    _JOBS,
                ),
            )
            if most and not args.skips(gate)
        ]
        self.for_good = EvictionPipeline(rules.refusals, self._expected_replicas)
        self.for_new_job = EvictionPipeline(self._without_job, self.for_good.evaluate, self.limits)

    def limits(self, pod: Pod, *, arbitrating: bool = False) -> Refusals:
        """Which limits are reached. ``arbitrating``: for an existing job, of the others only those count that have been
        let through; without it all others count."""
        if is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        return [*self._by_place(pod, arbitrating), *self._of_workload(pod, arbitrating)]

    def _without_job(self, pod: Pod) -> Refusals:
        refused = [
            f"filterExistingPodMigrationJob: {job.metadata.name} is for this pod"
            for job in self._cluster.jobs_of(pod)
            if job.status.phase in ("", jobs.PENDING, jobs.RUNNING)
        ]
        scheduler = pod.spec.scheduler_name
        if self._args.default_job_mode == RESERVATION_FIRST and scheduler not in self._args.scheduler_names:
            refused.append(f"reservationFilter: the scheduler {scheduler} is not one of schedulerNames")
        return refused

    def _expected_replicas(self, pod: Pod) -> Refusals:
        args = self._args
        if args.skips(gates.EXPECTED_REPLICAS) or is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        try:
            workload = self._workloads.of(pod)
        except WorkloadUnknownError as error:
            return [f"expectedReplicas: {error}"]
        if workload is None or args.skip_check_expected_replicas:
            return NOTHING_REFUSED
        replicas = workload.replicas
        migrating = workload_limit(replicas, args.max_migrating_per_workload)
        unavailable = workload_limit(replicas, args.max_unavailable_per_workload)
        if replicas not in (1, migrating, unavailable):
            return NOTHING_REFUSED
        what = f"{migrating} may migrate and {unavailable} be unavailable"
        return [f"expectedReplicas: the workload is to have {replicas} replicas, of which {what}"]

    def _by_place(self, pod: Pod, arbitrating: bool) -> Iterator[str]:
        for name, most, scope_of, counted in self._of_places:
            scope = scope_of(pod)
            count = counted(self._counting.counts(scope, pod, arbitrating=arbitrating))
            if count >= most and (scope[1] or scope == CLUSTER):
                yield f"{name}: {count} pods{f' of {scope[1]}' if scope[1] else ''} migrate, {most} may"

    def _of_workload(self, pod: Pod, arbitrating: bool) -> Iterator[str]:
        args, controller = self._args, controller_of(pod.metadata)
        check_migrating = not args.skips(gates.MAX_MIGRATING_PER_WORKLOAD)
        check_unavailable = not args.skips(gates.MAX_UNAVAILABLE_PER_WORKLOAD)
        if controller is None or not (check_migrating or check_unavailable):
            return
        try:
            workload = self._workloads.of(pod)
        except WorkloadUnknownError as error:
            yield f"maxMigratingPerWorkload: {error}"
            return
        if workload is None:
            return
        migrating = self._counting.counts(of_owner(controller.uid), pod, arbitrating=arbitrating).pods
        most = workload_limit(workload.replicas, args.max_migrating_per_workload)
        if check_migrating and migrating and migrating >= most:
            yield f"maxMigratingPerWorkload: {migrating} pods of the workload migrate, {most} may"
        most = workload_limit(workload.replicas, args.max_unavailable_per_workload)
        away = 0 if controller.uid in workload.uids else migrating
        away += sum(self._counting.counts(of_owner(uid), pod, arbitrating=arbitrating).away for uid in workload.uids)
        if check_unavailable and away >= most:
            yield f"maxUnavailablePerWorkload: {away} pods of the workload are unavailable or migrate, {most} may"
