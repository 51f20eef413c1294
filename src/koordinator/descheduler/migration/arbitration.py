"""In which order jobs that wait are let through, and which of them may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api import pod_migration_job as jobs
from koordinator.api.labels import GANG_MIGRATION
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.gangs import Gang, Gangs
from koordinator.descheduler.migration.job_facts import has_passed_arbitration, is_of_drain_node, refers_to, waits
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.policies import MigrationPolicies
from koordinator.descheduler.pod_facts import eviction_order


class ArbitrationStatus(Enum):
    """What becomes of a job in one round; the value says so in words."""

    PASSED = "let it through"
    WAITING = "let it wait"
    FORBIDDEN = "fail it"
    """Its pod must not be moved; the job fails."""


@dataclass(frozen=True, slots=True)
class ArbitrationResult:
    status: ArbitrationStatus
    reasons: Refusals = ()
    gang: Gang | None = None
    """What moves together with the job's pod."""


Refused = dict[tuple[str, str], ArbitrationResult]
"""By the gang and what its jobs share: what keeps it where it is in this round."""


class WaitingJob(NamedTuple):
    """A job that waits, with what its place in a round depends on as long as neither it nor its pod changes."""

    job: PodMigrationJob
    pod: Pod | None
    rank: tuple[Any, ...]
    batch_owner: str

    @classmethod
    def of(cls, job: PodMigrationJob, pod: Pod | None) -> WaitingJob:
        return cls(job, pod, _rank_of(job, pod), _batch_owner(pod) if pod is not None else "")


_RANK: Final = attrgetter("rank")


def filter_job(
    waiting: WaitingJob, policies: MigrationPolicies, gangs: Gangs, cluster: MigrationLister, refused: Refused
) -> ArbitrationResult:
    """Whether the job may go on now. One without a pod may: it will say that there is none. The job of a gang's member
    may if each member may be moved now; of each limit a gang needs one place, however many members it has.

    ``refused`` has the gangs that this round has looked at already."""
    job, pod = waiting.job, waiting.pod
    if pod is None:
        return ArbitrationResult(ArbitrationStatus.PASSED)
    gang = gangs.of(pod)
    if gang is None:
        return _filter_pod(pod, policies, drains=is_of_drain_node(job))
    if not refers_to(job, pod):
        # Its pod is gone, which it will say; no gang moves because of the pod that has the name now.
        return ArbitrationResult(ArbitrationStatus.PASSED)
    key = gang_key(job, gang)
    known = refused.get(key)
    if known is not None:
        return known
    result = _filter_gang(job, gang, policies, cluster)
    if result.status is not ArbitrationStatus.PASSED:
        refused[key] = result
    return result


def gang_key(job: PodMigrationJob, gang: Gang) -> tuple[str, str]:
    """Equal for jobs that move the gang together."""
    return gang.id, job.metadata.labels.get(GANG_MIGRATION, "")


def _filter_gang(
    job: PodMigrationJob, gang: Gang, policies: MigrationPolicies, cluster: MigrationLister
) -> ArbitrationResult:
    begun = cluster.jobs_of_gang(job.metadata.labels.get(GANG_MIGRATION, ""))
    if any(has_passed_arbitration(each) and not is_terminal(each) for each in begun):
        # A round that was interrupted has decided about those for which it made jobs, and these take the places of the
        # limits already. Who has joined since is moved by none of them, which the first that could leave finds out.
        names = {each.metadata.name for each in begun}
        decided = [
            member
            for member in gang.members
            if any(each.metadata.name in names for each in cluster.own_jobs_of(member))
        ]
        return ArbitrationResult(ArbitrationStatus.PASSED, gang=Gang(gang.id, tuple(decided)))
    results = [_filter_member(member, policies, cluster) for member in gang.members]
    for status in (ArbitrationStatus.FORBIDDEN, ArbitrationStatus.WAITING):
        for member, result in zip(gang.members, results, strict=True):
            if result.status is status:
                about = f"gang {gang.id}: {member.metadata.key}: "
                return ArbitrationResult(status, [about + reason for reason in result.reasons], gang)
    return ArbitrationResult(ArbitrationStatus.PASSED, gang=gang)


def _filter_member(member: Pod, policies: MigrationPolicies, cluster: MigrationLister) -> ArbitrationResult:
    """Whether a member of a gang may be moved now."""
    live = [each for each in cluster.own_jobs_of(member) if not is_terminal(each)]
    others = [each.metadata.name for each in live if not waits(each)]
    if others:
        return ArbitrationResult(ArbitrationStatus.WAITING, [f"PodMigrationJob {others[0]} moves it, or is held"])
    return _filter_pod(member, policies, drains=any(map(is_of_drain_node, live)))


def _filter_pod(pod: Pod, policies: MigrationPolicies, *, drains: bool) -> ArbitrationResult:
    """``drains``: a DrainNode has decided that the pod may be moved."""
    forbidden = NOTHING_REFUSED if drains else policies.for_good.evaluate(pod)
    if forbidden:
        return ArbitrationResult(ArbitrationStatus.FORBIDDEN, forbidden)
    reasons = policies.limits(pod, arbitrating=True)
    return ArbitrationResult(ArbitrationStatus.WAITING if reasons else ArbitrationStatus.PASSED, reasons)


def in_order(waiting: Iterable[WaitingJob], migrating_with: Callable[[str], int]) -> list[WaitingJob]:
    """The jobs, first come first. ``migrating_with`` returns how many jobs for pods of an owner, by its uid, are under
    way. By these, the first counting most:

    1. jobs for pods of the batch Job of which most are under way already,
    2. jobs for pods of one batch Job next to the first of them,
    3. jobs without a pod, then the order in which pods are evicted,
    4. newer jobs before older ones (by seconds).
    """
    ordered = sorted(waiting, key=_RANK)
    first: dict[str, int] = {}
    for place, each in enumerate(ordered):
        if each.batch_owner:
            first.setdefault(each.batch_owner, place)
    if not first:
        return ordered
    counts = {owner: migrating_with(owner) for owner in first}

    def key(placed: tuple[int, WaitingJob]) -> tuple[int, int]:
        place, owner = placed[0], placed[1].batch_owner
        return -counts.get(owner, 0), first.get(owner, place)

    return [each for _, each in sorted(enumerate(ordered), key=key)]


def is_under_way(job: PodMigrationJob) -> bool:
    """Whether the job counts among those of its owner, in ``in_order``."""
    return (
        job.metadata.annotations.get(annotation_keys.PASSED_ARBITRATION) == "true" or job.status.phase == jobs.RUNNING
    )


def _batch_owner(pod: Pod) -> str:
    """The uid of the Job that controls the pod; empty for any other pod."""
    controller = controller_of(pod.metadata)
    return controller.uid if controller is not None and controller.kind == "Job" else ""


def _rank_of(job: PodMigrationJob, pod: Pod | None) -> tuple[Any, ...]:
    created = job.metadata.creation_timestamp
    age = -int(created.timestamp()) if created is not None else 0
    return (False, age) if pod is None else (True, *eviction_order(pod), age)
