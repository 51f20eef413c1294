"""How many pods are on the move, or away: in the cluster, on a node, in a namespace, of a workload.

Events of jobs and of pods keep the counts current, so that a decision about one pod costs the same however many others
migrate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from koordinator.api import pod_migration_job as jobs
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, is_finished
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration.job_facts import has_passed_arbitration
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.pod_facts import is_ready

Scope = tuple[str, str]
"""What is counted together: a kind, and a name of that kind."""
CLUSTER: Final[Scope] = ("cluster", "")


class Counts(NamedTuple):
    """Without the pod that is asked about and its own jobs."""

    jobs: int
    pods: int
    """Pods with jobs."""
    away: int
    """Pods with jobs, and pods that are unavailable."""


class Counting(Protocol):
    def counts(self, scope: Scope, pod: Pod, *, arbitrating: bool) -> Counts:
        """What counts in a scope beside the pod. ``arbitrating``: only jobs that have been let through."""
        ...


def of_namespace(pod: Pod) -> Scope:
    return ("namespace", pod.metadata.namespace)


def of_node(pod: Pod) -> Scope:
    return ("node", pod.spec.node_name)


def of_owner(uid: str) -> Scope:
    return ("owner", uid)


Places = Mapping[str, tuple[str, bool]]
"""Jobs by name: the uid of the pod that the job is for, "" if it says none; whether it has been let through."""


class _Entry:
    """One pod, by its namespace and name, in one scope; ``sums`` are of all its jobs, and of those let through."""

    __slots__ = ("_jobs", "_unavailable", "sums")

    def __init__(self, jobs: Places, unavailable: bool = False) -> None:
        self._jobs = jobs
        self._unavailable = unavailable
        self.sums = (self._counts(len(jobs)), self._counts(sum(passed for _, passed in jobs.values())))

    def beside(self, uid: str, *, arbitrating: bool) -> Counts:
        """Without the jobs for the pod with this uid."""
        others = (passed for own, passed in self._jobs.values() if own not in ("", uid))
        return self._counts(sum(passed or not arbitrating for passed in others))

    def _counts(self, jobs: int) -> Counts:
        return Counts(jobs, int(jobs > 0), int(jobs > 0 or self._unavailable))


class _Group:
    """The entries of one scope, and their sums."""

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self._sums = [Counts(0, 0, 0), Counts(0, 0, 0)]

    def put(self, key: str, entry: _Entry | None) -> None:
        before = self.entries.pop(key, None)
        for arbitrating, total in enumerate(self._sums):
            if before is not None:
                total = _minus(total, before.sums[arbitrating])
            if entry is not None:
                total = _plus(total, entry.sums[arbitrating])
            self._sums[arbitrating] = total
        if entry is not None:
            self.entries[key] = entry

    def counts(self, pod: Pod, *, arbitrating: bool) -> Counts:
        total, own = self._sums[arbitrating], self.entries.get(pod.metadata.key)
        if own is None or not own.sums[arbitrating].jobs:
            return total
        return _plus(_minus(total, own.sums[arbitrating]), own.beside(pod.metadata.uid, arbitrating=arbitrating))


def _plus(one: Counts, other: Counts) -> Counts:
    return Counts(one.jobs + other.jobs, one.pods + other.pods, one.away + other.away)


def _minus(one: Counts, other: Counts) -> Counts:
    return Counts(one.jobs - other.jobs, one.pods - other.pods, one.away - other.away)


class MigrationLedger:
    """What jobs and pods there are, as ``cluster`` has them."""

    def __init__(self, cluster: MigrationLister) -> None:
        self._cluster = cluster
        self._groups: dict[Scope, _Group] = {}
        self._scopes: dict[str, tuple[Scope, ...]] = {}
        """By the key of a pod: where it is counted."""
        cluster.job_informer.add_handlers(
            name="migration, counts",
            on_add=lambda job, _: self._count_pod_of(job),
            on_update=self._count_pods_of,
            on_delete=self._count_pod_of,
        )
        cluster.pods.add_handlers(
            name="migration, counts",
            on_add=lambda pod, _: self._count(pod.metadata.key),
            on_update=self._count_changed,
            on_delete=lambda pod: self._count(pod.metadata.key),
        )

    def counts(self, scope: Scope, pod: Pod, *, arbitrating: bool) -> Counts:
        group = self._groups.get(scope)
        return group.counts(pod, arbitrating=arbitrating) if group is not None else Counts(0, 0, 0)

    def is_away(self, scope: Scope, key: str) -> bool:
        """Whether a pod counts as away there already."""
        group = self._groups.get(scope)
        entry = group.entries.get(key) if group is not None else None
        return entry is not None and bool(entry.sums[False].away)

    def _count_pod_of(self, job: PodMigrationJob) -> None:
        reference = job.spec.pod_ref
        if reference is not None:
            self._count(f"{reference.namespace}/{reference.name}")

    def _count_pods_of(self, before: PodMigrationJob, job: PodMigrationJob) -> None:
        if before.spec.pod_ref != job.spec.pod_ref:
            self._count_pod_of(before)
        self._count_pod_of(job)

    def _count_changed(self, before: Pod, pod: Pod) -> None:
        if _shape(before) != _shape(pod):
            self._count(pod.metadata.key)

    def _count(self, key: str) -> None:
        """Put the pod where it belongs now, and nowhere else."""
        entries = dict(self._entries(key))
        for scope in self._scopes.pop(key, ()):
            if scope not in entries:
                self._groups[scope].put(key, None)
                if not self._groups[scope].entries:
                    del self._groups[scope]
        for scope, entry in entries.items():
            self._groups.setdefault(scope, _Group()).put(key, entry)
        if entries:
            self._scopes[key] = tuple(entries)

    def _entries(self, key: str) -> Iterator[tuple[Scope, _Entry]]:
        namespace, _, name = key.partition("/")
        pod = self._cluster.pod(namespace, name)
        migrating = dict(_places(self._cluster.jobs_for(key)))
        if migrating:
            entry = _Entry(migrating)
            yield CLUSTER, entry
            yield ("namespace", namespace), entry
            if pod is not None and pod.spec.node_name:
                yield of_node(pod), entry
        if pod is None:
            return
        controller, unavailable = controller_of(pod.metadata), not is_available(pod)
        for owner in pod.metadata.owner_references:
            own = migrating if controller is not None and owner.uid == controller.uid else {}
            if own or unavailable:
                yield of_owner(owner.uid), _Entry(own, unavailable)


class PlannedMigrations:
    """A ledger in which pods migrate, too, that were only planned to: for cycles that carry nothing out."""

    def __init__(self, ledger: MigrationLedger) -> None:
        self._ledger = ledger
        self._planned: dict[Scope, Counts] = {}
        self._uids: set[str] = set()

    def refusals(self, pod: Pod) -> Refusals:
        """A pod that is planned to migrate is not planned once more."""
        is_planned = pod.metadata.uid in self._uids
        return ["filterExistingPodMigrationJob: one is planned for this pod"] if is_planned else NOTHING_REFUSED

    def add(self, pod: Pod) -> None:
        """Count the pod as if a job had been made for it."""
        self._uids.add(pod.metadata.uid)
        controller = controller_of(pod.metadata)
        scopes = [CLUSTER, of_namespace(pod), of_node(pod)]
        scopes += [of_owner(controller.uid)] if controller is not None else []
        for scope in scopes:
            away = not self._ledger.is_away(scope, pod.metadata.key)
            self._planned[scope] = _plus(self._planned.get(scope, Counts(0, 0, 0)), Counts(1, 1, int(away)))

    def counts(self, scope: Scope, pod: Pod, *, arbitrating: bool) -> Counts:
        known = self._ledger.counts(scope, pod, arbitrating=arbitrating)
        planned = self._planned.get(scope)
        return known if planned is None else _plus(known, planned)


def is_available(pod: Pod) -> bool:
    return not is_finished(pod) and pod.metadata.deletion_timestamp is None and is_ready(pod)


def _shape(pod: Pod) -> tuple[object, ...]:
    """All of a pod that decides where it is counted."""
    return pod.metadata.uid, pod.spec.node_name, pod.metadata.owner_references, is_available(pod)


def _places(found: Iterable[PodMigrationJob]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The jobs that take one of the places that there are."""
    for job in found:
        reference, phase = job.spec.pod_ref, job.status.phase
        if reference is not None and phase in ("", jobs.PENDING, jobs.RUNNING):
            yield job.metadata.name, (reference.uid, has_passed_arbitration(job))
