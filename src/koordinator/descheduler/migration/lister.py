"""The pods, jobs, Reservations and workloads that migration decides on: from informers, and from its own writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from koordinator.api.kinds import (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    DEPLOYMENTS,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    STATEFUL_SETS,
)
from koordinator.api.meta import Object, controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.base.clock import Clock
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.object_cache import is_older

_BY_NODE: Final = "migration node"
_BY_OWNER: Final = "migration owner uid"
_BY_POD: Final = "migration pod"
_BY_POD_UID: Final = "migration pod uid"
_OPEN_BY_POD_NAMESPACE: Final = "migration pod namespace, of jobs that have not ended"
_BY_BOUND_POD: Final = "migration bound pod"
_BY_RESERVATION: Final = "migration reservation"
_BY_CONTROLLER: Final = "migration controller uid"

_EVERYWHERE: Final = "*"
"""Beside the namespaces, which have other names."""
_LONGEST_LAG: Final = 60.0
"""Seconds after which a job that the informer has not seen is taken to be gone again."""


class MigrationLister:
    """Creates its informers in ``__init__``, before they run.

    Jobs are as this program has written them last, where informers have not seen that yet: what has been let through or
    created a moment ago counts towards every limit."""

    def __init__(self, informers: InformerSet, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[str, tuple[PodMigrationJob, float]] = {}
        self.pods = informers.informer(PODS, indexes={_BY_NODE: _node, _BY_OWNER: _owners})
        self.job_informer = informers.informer(
            POD_MIGRATION_JOBS,
            indexes={
                _BY_POD: _pod_key,
                _BY_POD_UID: _pod_uid,
                _OPEN_BY_POD_NAMESPACE: _open_namespaces,
                _BY_BOUND_POD: _bound_pod,
                _BY_RESERVATION: _reservation,
            },
            absent_is_empty=True,
        )
        self.reservations = informers.informer(RESERVATIONS, absent_is_empty=True)
        self.replication_controllers = informers.informer(REPLICATION_CONTROLLERS)
        self.deployments = informers.informer(DEPLOYMENTS)
        self.replica_sets = informers.informer(REPLICA_SETS, indexes={_BY_CONTROLLER: _controller})
        self.stateful_sets = informers.informer(STATEFUL_SETS)
        self.clone_sets = informers.informer(CLONE_SETS, absent_is_empty=True)
        self.advanced_stateful_sets = informers.informer(ADVANCED_STATEFUL_SETS, absent_is_empty=True)
        self.job_informer.add_handlers(
            name="migration, jobs that it has written",
            on_update=lambda _, job: self._catch_up(job),
            on_add=lambda job, _: self._catch_up(job),
            on_delete=lambda job: self.forget(job.metadata.name),
        )

    def assume(self, job: PodMigrationJob) -> None:
        """The job as the API server returned it for a write."""
        oldest = self._clock.monotonic() - _LONGEST_LAG
        gone = [name for name, (_, at) in self._written.items() if at <= oldest and self.job_informer.get(name) is None]
        for name in gone:
            self.forget(name)
        cached = self.job_informer.get(job.metadata.name)
        if cached is None or is_older(cached.metadata.resource_version, job.metadata.resource_version):
            self._written[job.metadata.name] = job, self._clock.monotonic()

    def forget(self, name: str) -> None:
        """The job is gone, or informers have caught up with it."""
        self._written.pop(name, None)

    def job(self, name: str) -> PodMigrationJob | None:
        cached = self.job_informer.get(name)
        return self._newest(cached) if cached is not None else self._unseen().get(name)

    def jobs(self) -> Sequence[PodMigrationJob]:
        return [*map(self._newest, self.job_informer.list()), *self._unseen().values()]

    def jobs_of(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """The jobs that refer to the pod by its uid or by its namespace and name."""
        metadata = pod.metadata
        found = {job.metadata.name: job for job in self.job_informer.by_index(_BY_POD_UID, metadata.uid)}
        found |= {job.metadata.name: job for job in self.job_informer.by_index(_BY_POD, metadata.key)}
        unseen = (job for job in self._unseen().values() if metadata.key in _pod_key(job))
        return [*map(self._newest, found.values()), *unseen]

    def open_jobs(self) -> Sequence[PodMigrationJob]:
        """The jobs that have not ended, as far as informers have seen: with a cool-down, there are many more others."""
        return self._open_jobs(_EVERYWHERE)

    def open_jobs_in(self, namespace: str) -> Sequence[PodMigrationJob]:
        """Those of pods of a namespace."""
        return self._open_jobs(namespace)

    def _open_jobs(self, key: str) -> Sequence[PodMigrationJob]:
        unseen = (job for job in self._unseen().values() if key in _open_namespaces(job))
        return [*map(self._newest, self.job_informer.by_index(_OPEN_BY_POD_NAMESPACE, key)), *unseen]

    def jobs_bound_to(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """The jobs whose Reservation the pod uses."""
        return self.job_informer.by_index(_BY_BOUND_POD, pod.metadata.key)

    def jobs_with_reservation(self, name: str) -> Sequence[PodMigrationJob]:
        """The jobs that refer to a Reservation, or whose own it is by its name."""
        return self.job_informer.by_index(_BY_RESERVATION, name)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self.pods.get(f"{namespace}/{name}")

    def pods_on(self, node: str) -> Sequence[Pod]:
        return self.pods.by_index(_BY_NODE, node)

    def pods_owned_by(self, uid: str) -> Sequence[Pod]:
        """The pods that have an owner with this uid."""
        return self.pods.by_index(_BY_OWNER, uid)

    def replica_sets_of(self, uid: str) -> Sequence[Object]:
        """The ReplicaSets that an object with this uid controls."""
        return self.replica_sets.by_index(_BY_CONTROLLER, uid)

    def _newest(self, cached: PodMigrationJob) -> PodMigrationJob:
        written, _ = self._written.get(cached.metadata.name, (None, 0.0))
        if written is None or not is_older(cached.metadata.resource_version, written.metadata.resource_version):
            return cached
        return written

    def _unseen(self) -> dict[str, PodMigrationJob]:
        """Jobs that the informer has not seen at all yet."""
        oldest = self._clock.monotonic() - _LONGEST_LAG
        return {
            name: job
            for name, (job, at) in self._written.items()
            if at > oldest and self.job_informer.get(name) is None
        }

    def _catch_up(self, seen: PodMigrationJob) -> None:
        written, _ = self._written.get(seen.metadata.name, (None, 0.0))
        if written is not None and not is_older(seen.metadata.resource_version, written.metadata.resource_version):
            self.forget(seen.metadata.name)


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _owners(pod: Pod) -> Iterable[str]:
    return {owner.uid for owner in pod.metadata.owner_references}


def _controller(obj: Object) -> Iterable[str]:
    controller = controller_of(obj.metadata)
    return (controller.uid,) if controller is not None else ()


def _pod_key(job: PodMigrationJob) -> Iterable[str]:
    reference = job.spec.pod_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _bound_pod(job: PodMigrationJob) -> Iterable[str]:
    reference = job.status.pod_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _pod_uid(job: PodMigrationJob) -> Iterable[str]:
    reference = job.spec.pod_ref
    return (reference.uid,) if reference is not None and reference.uid else ()


def _open_namespaces(job: PodMigrationJob) -> Iterable[str]:
    if is_terminal(job):
        return ()
    reference = job.spec.pod_ref
    return (_EVERYWHERE,) if reference is None else (reference.namespace, _EVERYWHERE)


def _reservation(job: PodMigrationJob) -> Iterable[str]:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return (reference.name if reference is not None else job.metadata.uid,)
