"""The pods, jobs, Reservations and workloads that migration decides on."""

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
from koordinator.api.labels import GANG_MIGRATION
from koordinator.api.meta import Object, controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.migration.job_facts import refers_to, waits
from koordinator.kube.informer_set import InformerSet

_BY_NODE: Final = "migration node"
_BY_OWNER: Final = "migration owner uid"
_BY_POD: Final = "migration pod"
_BY_POD_UID: Final = "migration pod uid"
_WAITING: Final = "migration jobs that wait for arbitration"
_BY_BOUND_POD: Final = "migration bound pod"
_BY_RESERVATION: Final = "migration reservation"
_BY_GANG_MIGRATION: Final = "migration jobs of a gang"
_BY_CONTROLLER: Final = "migration controller uid"


class MigrationLister:
    """Creates its informers in ``__init__``, before they run. They know at once what this program has written: what has
    been let through or created a moment ago counts towards every limit."""

    def __init__(self, informers: InformerSet) -> None:
        self.pods = informers.informer(PODS, indexes={_BY_NODE: _node, _BY_OWNER: _owners})
        self.job_informer = informers.informer(
            POD_MIGRATION_JOBS,
            indexes={
                _BY_POD: _pod_key,
                _BY_POD_UID: _pod_uid,
                _WAITING: _is_waiting,
                _BY_BOUND_POD: _bound_pod,
                _BY_RESERVATION: _reservation,
                _BY_GANG_MIGRATION: _gang_migration,
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

    def job(self, name: str) -> PodMigrationJob | None:
        return self.job_informer.get(name)

    def jobs(self) -> Sequence[PodMigrationJob]:
        return list(self.job_informer.list())

    def jobs_of(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """The jobs that refer to the pod by its uid or by its namespace and name."""
        found = [*self.job_informer.by_index(_BY_POD_UID, pod.metadata.uid), *self.jobs_for(pod.metadata.key)]
        return list({job.metadata.name: job for job in found}.values())

    def own_jobs_of(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """Without those of a predecessor, which had the same name."""
        return [job for job in self.jobs_of(pod) if refers_to(job, pod)]

    def jobs_for(self, key: str) -> Sequence[PodMigrationJob]:
        """The jobs that refer to a pod by its namespace and name."""
        return self.job_informer.by_index(_BY_POD, key)

    def waiting_jobs(self) -> Sequence[PodMigrationJob]:
        """The jobs that wait for arbitration: with a cool-down, there are many more others."""
        return self.job_informer.by_index(_WAITING, _WAITING)

    def jobs_bound_to(self, pod: Pod) -> Sequence[PodMigrationJob]:
        """The jobs whose Reservation the pod uses."""
        return self.job_informer.by_index(_BY_BOUND_POD, pod.metadata.key)

    def jobs_with_reservation(self, name: str) -> Sequence[PodMigrationJob]:
        """The jobs that refer to a Reservation, or whose own it is by its name."""
        return self.job_informer.by_index(_BY_RESERVATION, name)

    def jobs_of_gang(self, migration: str) -> Sequence[PodMigrationJob]:
        """The jobs that move one gang, by the value of their label."""
        return self.job_informer.by_index(_BY_GANG_MIGRATION, migration)

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


def _is_waiting(job: PodMigrationJob) -> Iterable[str]:
    return (_WAITING,) if waits(job) else ()


def _gang_migration(job: PodMigrationJob) -> Iterable[str]:
    migration = job.metadata.labels.get(GANG_MIGRATION)
    return (migration,) if migration else ()


def _reservation(job: PodMigrationJob) -> Iterable[str]:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return (reference.name if reference is not None else job.metadata.uid,)
