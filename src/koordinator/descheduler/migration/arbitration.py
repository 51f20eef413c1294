"""In which order jobs that wait are let through, and which of them may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from koordinator.api import annotations as annotation_keys
from koordinator.api import pod_migration_job as jobs
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration.job_facts import has_passed_arbitration, is_of_drain_node
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.limits import MigrationPolicies
from koordinator.descheduler.pod_order import eviction_order

Rank = tuple[Any, ...]


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


def waits(job: PodMigrationJob) -> bool:
    """Whether the job is one for the next round: not let through, not ended, neither held back nor being deleted."""
    held = job.spec.paused or job.metadata.deletion_timestamp is not None
    return not (held or is_terminal(job) or has_passed_arbitration(job))


def filter_job(job: PodMigrationJob, pod: Pod | None, policies: MigrationPolicies) -> ArbitrationResult:
    """Whether the job of ``pod`` may go on now. One without a pod may: it will say that there is none."""
    if pod is None:
        return ArbitrationResult(ArbitrationStatus.PASSED)
    reasons = NOTHING_REFUSED if is_of_drain_node(job) else policies.for_good.evaluate(pod)
    if reasons:
        return ArbitrationResult(ArbitrationStatus.FORBIDDEN, reasons)
    reasons = policies.limits(pod, arbitrating=True)
    return ArbitrationResult(ArbitrationStatus.WAITING if reasons else ArbitrationStatus.PASSED, reasons)


def in_order(
    waiting: Sequence[PodMigrationJob],
    pods: Mapping[str, Pod],
    ranks: Mapping[str, Rank],
    migrating_with: Callable[[str], int],
) -> list[PodMigrationJob]:
    """The jobs, first come first.

    ``pods`` and their ``ranks`` are those of the jobs, by the jobs' names. ``migrating_with`` returns how many jobs for
    pods of an owner, by its uid, are under way. Each sort is stable over the one before it; the last one counts most:

    1. newer jobs before older ones (by seconds),
    2. jobs without a pod, then by the order in which pods are evicted,
    3. jobs for pods of one batch Job next to the first of them,
    4. jobs for pods of the batch Job of which most are under way already.
    """
    ordered = sorted(waiting, key=lambda job: -_created(job))
    ordered.sort(key=lambda job: ranks[job.metadata.name])
    first: dict[str, int] = {}
    places = {}
    for place, job in enumerate(ordered):
        owner = batch_owner(pods.get(job.metadata.name))
        places[job.metadata.name] = first.setdefault(owner, place) if owner else place
    ordered.sort(key=lambda job: places[job.metadata.name])
    counts = {owner: migrating_with(owner) for owner in first}
    return sorted(ordered, key=lambda job: -counts.get(batch_owner(pods.get(job.metadata.name)), 0))


def is_under_way(job: PodMigrationJob) -> bool:
    """Whether the job counts among those of its owner, in the fourth sort."""
    return (
        job.metadata.annotations.get(annotation_keys.PASSED_ARBITRATION) == "true" or job.status.phase == jobs.RUNNING
    )


def batch_owner(pod: Pod | None) -> str:
    """The uid of the Job that controls the pod; empty for any other pod."""
    controller = controller_of(pod.metadata) if pod is not None else None
    return controller.uid if controller is not None and controller.kind == "Job" else ""


def _created(job: PodMigrationJob) -> int:
    created = job.metadata.creation_timestamp
    return int(created.timestamp()) if created is not None else 0


def rank_of(pod: Pod | None) -> Rank:
    """Where a job stands by its pod: those without one first."""
    return (False,) if pod is None else (True, *eviction_order(pod))
