"""The pods, jobs, Reservations and workloads that migration decides on: from informers, and from its own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
_OPEN: Final = "migration jobs that have not ended"
_BY_BOUND_POD: Final = "migration bound pod"
_BY_RESERVATION: Final = "migration reservation"
_BY_CONTROLLER: Final = "migration controller uid"

_LONGEST_LAG: Final = 60.0
"""Seconds after which a job that the informer has not seen is taken to be gone again."""


class MigrationLister:
    """Creates its informers in ``__init__``, before they run.

    Jobs are as this program has written them last, where informers have not seen that yet: what has been let through or
    created a moment ago counts towards every limit."""

    def __init__(self, informers: InformerSet, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[str, PodMigrationJob] = {}
        """As the API server returned them, while informers are behind."""
        self._unseen: dict[str, float] = {}
        """Those of them that informers have not seen at all -> when they were written, in this order."""
        self._unseen_of: dict[str, dict[str, None]] = {}
        """Their names by the pod that they are for."""
        self._handlers: list[Callable[[PodMigrationJob], None]] = []
        self.pods = informers.informer(PODS, indexes={_BY_NODE: _node, _BY_OWNER: _owners})
        self.job_informer = informers.informer(
            POD_MIGRATION_JOBS,
            indexes={
                _BY_POD: _pod_key,
                _BY_POD_UID: _pod_uid,
                _OPEN: _is_open,
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
            on_update=self._update,
            on_add=lambda job, _: self._catch_up(job),
            on_delete=self._drop,
        )

    def on_job_change(self, handler: Callable[[PodMigrationJob], None]) -> None:
        """``handler`` is called with each job that is new, changed or gone, by informers or by our own writes."""
        self._handlers.append(handler)

    def assume(self, job: PodMigrationJob) -> None:
        """The job as the API server returned it for a write."""
        self.expire()
        name, cached = job.metadata.name, self.job_informer.get(job.metadata.name)
        if cached is not None and not is_older(cached.metadata.resource_version, job.metadata.resource_version):
            return
        self._written[name] = job
        if cached is None:
            self._unseen.pop(name, None)
            self._unseen[name] = self._clock.monotonic()
            for key in _pod_key(job):
                self._unseen_of.setdefault(key, {})[name] = None
        self._notify(job)

    def forget(self, name: str) -> None:
        """The job is gone, or informers have caught up with it."""
        self._see(name)
        job = self._written.pop(name, None)
        if job is not None:
            self._notify(job)

    def expire(self) -> None:
        """Drop jobs that were created long ago and that no informer has seen."""
        oldest = self._clock.monotonic() - _LONGEST_LAG
        while self._unseen:
            name, at = next(iter(self._unseen.items()))
            if at > oldest:
                return
            self.forget(name)

    def job(self, name: str) -> PodMigrationJob | None:
        self.expire()
        cached = self.job_informer.get(name)
        return self._newest(cached) if cached is not None else self._written.get(name)

    def jobs(self) -> Sequence[PodMigrationJob]:
        return [*map(self._newest, self.job_informer.list()), *self._unseen_jobs()]

    def jobs_of(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """The jobs that refer to the pod by its uid or by its namespace and name."""
        by_uid = self.job_informer.by_index(_BY_POD_UID, pod.metadata.uid)
        found = {job.metadata.name: job for job in map(self._newest, by_uid)}
        return [*(found | {job.metadata.name: job for job in self.jobs_for(pod.metadata.key)}).values()]

    def jobs_for(self, key: str) -> Iterator[PodMigrationJob]:
        """The jobs that refer to a pod by its namespace and name."""
        yield from map(self._newest, self.job_informer.by_index(_BY_POD, key))
        self.expire()
        yield from [self._written[name] for name in self._unseen_of.get(key, ())]

    def open_jobs(self) -> Sequence[PodMigrationJob]:
        """The jobs that have not ended, as far as informers have seen: with a cool-down, there are many more others."""
        return [*map(self._newest, self.job_informer.by_index(_OPEN, _OPEN)), *self._unseen_jobs()]

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
        written = self._written.get(cached.metadata.name)
        if written is None or not is_older(cached.metadata.resource_version, written.metadata.resource_version):
            return cached
        return written

    def _unseen_jobs(self) -> list[PodMigrationJob]:
        self.expire()
        return [self._written[name] for name in self._unseen]

    def _catch_up(self, seen: PodMigrationJob) -> None:
        name = seen.metadata.name
        self._see(name)
        if (written := self._written.get(name)) is not None and self._newest(seen) is seen:
            del self._written[name]
            self._notify(written)
        self._notify(seen)

    def _update(self, before: PodMigrationJob, job: PodMigrationJob) -> None:
        self._catch_up(job)
        if before.spec.pod_ref != job.spec.pod_ref:
            self._notify(before)

    def _see(self, name: str) -> None:
        """The job is not one that only our own writes know of."""
        if self._unseen.pop(name, None) is not None:
            for key in _pod_key(self._written[name]):
                names = self._unseen_of[key]
                del names[name]
                if not names:
                    del self._unseen_of[key]

    def _drop(self, job: PodMigrationJob) -> None:
        self.forget(job.metadata.name)
        self._notify(job)

    def _notify(self, job: PodMigrationJob) -> None:
        for handler in self._handlers:
            handler(job)


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


def _is_open(job: PodMigrationJob) -> Iterable[str]:
    return () if is_terminal(job) else (_OPEN,)


def _reservation(job: PodMigrationJob) -> Iterable[str]:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return (reference.name if reference is not None else job.metadata.uid,)
