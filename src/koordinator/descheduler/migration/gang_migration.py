"""What is to be done about a job whose pod moves with its gang: a pure function, as for a job of its own.

Each job of a gang comes as far as its eviction by itself. None evicts before all can, and until then they all fail with
the first that does: the gang stays where it is. The first job that notes down that it evicts its pod is the point of
no return, which the API server keeps: from there on no time-out and no lost Reservation keeps a member behind, since a
gang that is left in part is worse than one that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from koordinator.api import pod_migration_job as jobs
from koordinator.api.pod_migration_job import EVICT_DIRECTLY, PodMigrationJob
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.job_facts import EVICTED_POD, eviction_policy, has_passed_arbitration
from koordinator.descheduler.migration.job_status import FALSE, TRUE, condition_of, is_terminal, is_true
from koordinator.descheduler.migration.plan import (
    EvictPod,
    GangFacts,
    JobFacts,
    JobPlan,
    Migration,
    PatchJob,
    WriteStatus,
    failed,
    new_condition,
    pod_key,
)
from koordinator.descheduler.migration.state_machine import REQUEUE, decide, notes_of
from koordinator.descheduler.plan_controller import PlannedEvent

_NOT_WHOLE: Final = "Abort job because its gang cannot move whole"


def decide_in_gang(job: PodMigrationJob, facts: JobFacts, args: MigrationControllerArgs, now: datetime) -> JobPlan:
    """The next plan for ``job``, as ``decide``; of a job that moves no gang it is the same."""
    if facts.gang is None or is_terminal(job) or job.spec.paused:
        return decide(job, facts, args, now)
    if any(EVICTED_POD in each.metadata.annotations for each in (job, *facts.gang.siblings)):
        return _go(Migration(job, facts, args, now))
    problem = _broken(job, facts.gang)
    if problem:
        return failed(job, jobs.GANG_NOT_MOVED, problem)
    plan = decide(job, facts, args, now)
    return _together(Migration(job, facts, args, now), plan) if _begins_eviction(plan) else plan


def can_all_leave(found: Iterable[PodMigrationJob], args: MigrationControllerArgs) -> bool:
    """Whether each job has only the eviction of its pod before it."""
    return all(_can_leave(job, args) for job in found)


def _can_leave(job: PodMigrationJob, args: MigrationControllerArgs) -> bool:
    reference, is_direct = job.spec.pod_ref, (job.spec.mode or args.default_job_mode) == EVICT_DIRECTLY
    has_begun = reference is not None and bool(reference.uid) and job.status.phase == jobs.RUNNING
    has_place = is_direct or is_true(job.status, jobs.RESERVATION_SCHEDULED)
    return has_begun and has_place and has_passed_arbitration(job) and not job.spec.paused


def _broken(job: PodMigrationJob, gang: GangFacts) -> str:
    """Why not all members can move any more; empty while they can."""
    ended = [each for each in gang.siblings if is_terminal(each)]
    first = next((each for each in ended if each.status.reason != jobs.GANG_NOT_MOVED), None)
    if first is not None:
        end = first.status.message or first.status.reason or first.status.phase
        return f"{_NOT_WHOLE}: PodMigrationJob {first.metadata.name} of {pod_key(first)} has ended: {end}"
    if ended:
        return ended[0].status.message
    there = len(gang.siblings) + 1
    # Before they are let through, jobs are still being made.
    if has_passed_arbitration(job) and there < gang.size:
        return f"{_NOT_WHOLE}: {there} of its {gang.size} PodMigrationJobs are left"
    return f"{_NOT_WHOLE}: {gang.newcomer} has joined it" if gang.newcomer else ""


def _begins_eviction(plan: JobPlan) -> bool:
    """Whether this is the plan that notes down which pod will be evicted, which is always one of its own."""
    return any(isinstance(step, PatchJob) and EVICTED_POD in _annotations(step) for step in plan.steps)


def _annotations(step: PatchJob) -> dict[str, str]:
    metadata = step.patch.get("metadata") or {}
    found: dict[str, str] = metadata.get("annotations") or {}
    return found


def _together(migration: Migration, plan: JobPlan) -> JobPlan:
    """``plan`` if all members can leave now; else the job says what it waits for."""
    gang = migration.facts.gang
    assert gang is not None
    if not can_all_leave(gang.siblings, migration.args):
        waits = "waits until all members of its gang can leave"
    elif gang.budget_problem:
        waits = gang.budget_problem
    else:
        return plan
    event = PlannedEvent("Normal", jobs.WAIT_FOR_GANG, f"{pod_key(migration.job)}: {waits}")
    condition = new_condition(jobs.GANG_READY, FALSE, jobs.WAIT_FOR_GANG, waits)
    return migration.to(condition, event) or JobPlan(after=REQUEUE)


def _go(migration: Migration) -> JobPlan:
    """The gang is leaving, so that the pod of this job does, too."""
    job, pod = migration.job, migration.pod
    if condition_of(job.status, jobs.EVICTION) is not None or pod is None or pod.metadata.deletion_timestamp:
        return decide(job, migration.facts, migration.args, migration.now)
    said = condition_of(job.status, jobs.GANG_READY)
    if said is not None and said.status == FALSE:
        plan = migration.to(new_condition(jobs.GANG_READY, TRUE))
        assert plan is not None
        return plan
    if EVICTED_POD not in job.metadata.annotations:
        return JobPlan((PatchJob({"metadata": {"annotations": notes_of(pod)}}),))
    timeless = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, ttl=None))
    plan = decide(timeless, replace(migration.facts, limited=False), migration.args, migration.now)
    if any(isinstance(step, WriteStatus) and step.status.phase == jobs.FAILED for step in plan.steps):
        return JobPlan((EvictPod(pod, eviction_policy(job, pod, migration.args)), *plan.steps), plan.events)
    return plan
