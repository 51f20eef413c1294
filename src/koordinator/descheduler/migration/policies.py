"""Which pods MigrationController lets be evicted: which at all, whatever else is going on, and how many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import pod_migration_job as jobs
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import RESERVATION_FIRST
from koordinator.descheduler.eviction_pipeline import EvictionPipeline
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration import arguments as gates
from koordinator.descheduler.migration.arguments import MigrationControllerArgs, workload_limit
from koordinator.descheduler.migration.ledger import CLUSTER, Counting, Scope, of_namespace, of_node, of_owner
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.workloads import Workloads, WorkloadUnknownError
from koordinator.descheduler.pod_facts import (
    cost,
    has_claim,
    has_local_storage,
    is_evictable_by_annotation,
    is_system_critical,
    never_evicted,
)
from koordinator.model.label_selector import compile_selector

_NEVER: Final = 2**31 - 1
"""The eviction cost of a pod that must not be evicted."""


class EvictionRules:
    """The rules that no waiting changes; those that are named in ``skipEvictionGates`` do not apply."""

    def __init__(self, args: MigrationControllerArgs, priority_of_class: Callable[[str], int | None]) -> None:
        """``priority_of_class`` is the value of a PriorityClass, None if there is none of that name."""
        self._args = args
        self._priority_of_class = priority_of_class
        self._local_storage = args.evict_local_storage_pods or args.skips(gates.LOCAL_STORAGE)
        self._system_critical = args.evict_system_critical_pods or args.skips(gates.SYSTEM_CRITICAL)
        self._ignores_claims = args.ignore_pvc_pods and not args.skips(gates.PVC)
        self._failed_bare_pods = args.evict_failed_bare_pods or args.skips(gates.BARE_PODS)
        self._all_bare_pods = args.evict_all_bare_pods or args.skips(gates.BARE_PODS)
        self._threshold = None if args.skips(gates.PRIORITY_THRESHOLD) else args.priority_threshold
        self._namespaces = None if args.skips(gates.NAMESPACES) else args.namespaces
        chosen = None if args.skips(gates.LABEL_SELECTOR) else args.label_selector
        self._selector = compile_selector(chosen) if chosen is not None else None

    def refusals(self, pod: Pod) -> Refusals:
        """Why the pod must not be evicted; nothing keeps one that is forced."""
        if is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        return [
            *self._outside(pod),
            *never_evicted(pod, daemon_sets=True),
            *self._protected(pod),
            *self._of_nobody(pod),
        ]

    def _outside(self, pod: Pod) -> Iterator[str]:
        namespaces, namespace = self._namespaces, pod.metadata.namespace
        if namespaces is not None and namespaces.include and namespace not in namespaces.include:
            yield f"includedNamespaces: {namespace} is not one of them"
        if namespaces is not None and namespace in namespaces.exclude:
            yield f"excludedNamespaces: {namespace} is one of them"
        if cost(pod, annotation_keys.EVICTION_COST) == _NEVER:
            yield f"podWithMaxEvictionCost: its annotation {annotation_keys.EVICTION_COST} is {_NEVER}"

    def _of_nobody(self, pod: Pod) -> Iterator[str]:
        if self._all_bare_pods or pod.metadata.owner_references:
            return
        if not self._failed_bare_pods:
            yield "pod does not have any ownerRefs"
        elif pod.status.phase != "Failed":
            yield "pod does not have any ownerRefs and is not in failed phase"

    def _protected(self, pod: Pod) -> Iterator[str]:
        priority = pod.spec.priority
        if not self._system_critical and priority is not None:
            threshold = self._priority_threshold()
            if is_system_critical(pod):
                yield "pod has system critical priority"
            if threshold is not None and priority >= threshold:
                yield "pod has higher priority than specified priority class threshold"
        if not self._local_storage and has_local_storage(pod):
            yield "pod has local storage and descheduler is not configured with evictLocalStoragePods"
        if self._ignores_claims and has_claim(pod):
            yield "pod has a PVC and descheduler is configured to ignore PVC pods"
        if self._selector is not None and not self._selector.matches(pod.metadata.labels):
            yield "pod labels do not match the labelSelector filter in the policy parameter"

    def _priority_threshold(self) -> int | None:
        threshold = self._threshold
        if threshold is None:
            return None
        return self._priority_of_class(threshold.name) if threshold.name else threshold.value


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
