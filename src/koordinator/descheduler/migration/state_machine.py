"""What is to be done about one PodMigrationJob: a pure function of the job, the cluster around it and the time.

Each plan holds the one write that brings the job forward, so that a program that ends anywhere in between resumes from
what the API server has. Before a pod is evicted for the first time, the job is annotated with its uid: with that
annotation and without such a pod, the job has done its work, and the pod's successor is not taken for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels, reservation
from koordinator.api import pod_migration_job as jobs
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    EVICT_DIRECTLY,
    PodMigrationJob,
    PodMigrationJobCondition,
)
from koordinator.api.reservation import Reservation, ReservationCondition
from koordinator.base.durations import has_passed
from koordinator.descheduler.migration.arguments import SOFT_EVICTION, MigrationControllerArgs
from koordinator.descheduler.migration.job_facts import (
    EVICTED_POD,
    EVICTED_POD_CONTROLLER,
    delete_options,
    eviction_policy,
    has_passed_arbitration,
    holds_nothing,
    is_own_reservation,
    is_unschedulable,
    trigger_and_reason,
)
from koordinator.descheduler.migration.job_status import (
    COMPLETE,
    FALSE,
    INVALID_POD_REF,
    TRUE,
    at_condition,
    condition_of,
    is_terminal,
    is_true,
    with_condition,
)
from koordinator.descheduler.migration.plan import (
    CreateReservation,
    DeleteReservation,
    EvictPod,
    JobFacts,
    JobPlan,
    Migration,
    OrderReservation,
    PatchJob,
    WriteStatus,
    completed,
    failed,
    missing_pod,
    moved,
    new_condition,
    pod_key,
)
from koordinator.descheduler.migration.reservation_template import template_problem
from koordinator.descheduler.plan_controller import PlannedEvent
from koordinator.descheduler.pod_facts import is_ready, pod_condition

REQUEUE: Final = 3.0
"""Seconds between two reconciliations of a job that waits for another program."""
_ENDED: Final = frozenset((reservation.FAILED, reservation.SUCCEEDED))
_DEFAULT_GRACE: Final = 30
_LONGEST_GRACE: Final = 100 * 365 * 86400
"""Seconds; the API server takes grace periods that no point in time is as far away as."""
_EVICTION_MARGIN: Final = timedelta(seconds=30)
"""So long after its grace period a pod that is still there, and not on its way out, is evicted again."""


def decide(job: PodMigrationJob, facts: JobFacts, args: MigrationControllerArgs, now: datetime) -> JobPlan:
    """The next plan for ``job``. ``now`` is the wall time."""
    if is_terminal(job):
        return _clean_up(job, facts)
    if job.spec.paused:
        return JobPlan()
    left = _time_left(job, now)
    if left is not None and left <= 0:
        return failed(job, jobs.TIMEOUT, "Abort job caused by timeout")
    if not has_passed_arbitration(job):
        return JobPlan(after=left)
    return _step(Migration(job, facts, args, now))


def after_failed_creation(job: PodMigrationJob, problem: str, now: datetime) -> JobPlan:
    """What the job says about a Reservation that could not be created."""
    message = f"Failed to create Reservation caused by {problem}"
    condition = new_condition(jobs.RESERVATION_CREATED, FALSE, jobs.FAILED_CREATE_RESERVATION, message)
    event = PlannedEvent("Warning", jobs.FAILED_CREATE_RESERVATION, message)
    status = at_condition(job.status, condition, now)
    # Refused once more for the same reason: the job says so already.
    return JobPlan(events=(event,)) if status is job.status else moved(job, status, event)


def failed_eviction(job: PodMigrationJob, problem: str) -> PlannedEvent:
    """The event about a pod that could not be evicted."""
    return PlannedEvent("Warning", jobs.EVICTING, f'Failed evict Pod "{pod_key(job)}" caused by {problem}')


def _step(migration: Migration) -> JobPlan:
    job, facts = migration.job, migration.facts
    begun = _begin(migration)
    if begun is not None:
        return begun
    if (
        facts.limited
        and annotation_keys.EVICTABLE not in job.metadata.annotations
        and EVICTED_POD not in job.metadata.annotations
    ):
        return JobPlan(after=REQUEUE)
    if (job.spec.mode or migration.args.default_job_mode) == EVICT_DIRECTLY:
        return _evict(migration) or _evicted_directly(job)
    return _reserve(migration) or _migrate(migration)


def _begin(migration: Migration) -> JobPlan | None:
    """Until the job runs and knows the uid of its pod."""
    job, reference = migration.job, migration.job.spec.pod_ref
    if reference is None or not reference.namespace or not reference.name:
        return failed(job, INVALID_POD_REF, "Abort job caused by invalid PodRef")
    if job.status.phase == jobs.RUNNING and reference.uid:
        return None
    pod = migration.pod
    if pod is None:
        return missing_pod(job)
    if not reference.uid:
        return JobPlan((PatchJob({"spec": {"podRef": {"uid": pod.metadata.uid}}}),))
    return JobPlan((WriteStatus(msgspec.structs.replace(job.status, phase=jobs.RUNNING)),))


def _reserve(migration: Migration) -> JobPlan | None:
    """Until there is a Reservation and the job says so."""
    job, found = migration.job, migration.facts.reservation
    if not _reservation_name(job):
        return _create_reservation(migration)
    if found is None:
        message = f'Abort job caused by missing Reservation "/{_reservation_name(job)}"'
        return failed(job, jobs.MISSING_RESERVATION, message)
    if labels.RESERVATION_ORDER not in found.metadata.labels:
        order = str(int(migration.now.timestamp() * 1000))
        return JobPlan((OrderReservation(found.metadata.name, order),))
    return migration.to(new_condition(jobs.RESERVATION_CREATED, TRUE))


def _create_reservation(migration: Migration) -> JobPlan:
    job, found, pod = migration.job, migration.facts.reservation, migration.pod
    if found is not None:
        metadata = found.metadata
        reference = {
            "kind": RESERVATIONS.name,
            "apiVersion": RESERVATIONS.version,
            "name": metadata.name,
            "uid": metadata.uid,
        }
        event = PlannedEvent("Normal", jobs.RESERVATION_CREATED, f'Successfully create Reservation "{metadata.name}"')
        return JobPlan((PatchJob({"spec": {"reservationOptions": {"reservationRef": reference}}}),), (event,))
    if pod is None:
        return missing_pod(job)
    problem = template_problem(job)
    if not problem and not _has_owners(job, pod):
        problem = "the Pod has no controller that capacity could be reserved for; use the mode EvictDirectly"
    if problem:
        return failed(job, jobs.FAILED_CREATE_RESERVATION, f"Failed to create Reservation caused by {problem}")
    return JobPlan((CreateReservation(),))


def _has_owners(job: PodMigrationJob, pod: Pod) -> bool:
    options = job.spec.reservation_options
    template = options.template if options is not None else None
    given = (template.get("spec") or {}).get("owners") if template else None
    return bool(given) or is_unschedulable(pod) or controller_of(pod.metadata) is not None


def _migrate(migration: Migration) -> JobPlan:
    """From a Reservation that is there to a pod that uses it."""
    found = migration.facts.reservation
    assert found is not None
    ended = _schedule(migration, found)
    if ended is not None:
        return ended
    if any(owner.object and not owner.controller and not owner.label_selector for owner in found.spec.owners):
        return _schedule_pending_pod(migration, found)
    return _evict(migration) or _unneeded(migration.job, found) or _bind(migration, found) or JobPlan(after=REQUEUE)


def _schedule(migration: Migration, found: Reservation) -> JobPlan | None:
    """Until the Reservation is on a node and the job says so."""
    job, status = migration.job, found.status
    unschedulable = _reservation_condition(found, reservation.SCHEDULED_CONDITION, reservation.REASON_UNSCHEDULABLE)
    if unschedulable is not None and not is_true(job.status, jobs.RESERVATION_SCHEDULED):
        event = PlannedEvent("Warning", jobs.UNSCHEDULABLE, unschedulable.message)
        condition = new_condition(jobs.RESERVATION_SCHEDULED, FALSE, jobs.UNSCHEDULABLE, unschedulable.message)
        plan = migration.to(condition, event)
        if plan is not None:
            return plan
    if status.phase in ("", reservation.PENDING):
        return JobPlan(after=REQUEUE)
    expired = _reservation_condition(found, reservation.READY_CONDITION, reservation.REASON_EXPIRED)
    if status.phase == reservation.FAILED and expired is not None:
        return failed(job, jobs.RESERVATION_EXPIRED, "Reservation expired")
    scheduled = _reservation_condition(found, reservation.SCHEDULED_CONDITION, reservation.REASON_SCHEDULED)
    if not status.node_name or scheduled is None or scheduled.status != TRUE:
        return failed(job, jobs.UNSCHEDULABLE, unschedulable.message if unschedulable is not None else "")
    if job.status.node_name or is_true(job.status, jobs.RESERVATION_SCHEDULED):
        return None
    return _scheduled(migration, found)


def _scheduled(migration: Migration, found: Reservation) -> JobPlan:
    job, name, node, pod = migration.job, found.metadata.name, found.status.node_name, migration.pod
    if pod is not None and pod.spec.node_name == node:
        message = f'Scheduler assignes the Reservation "{name}" on the same node as the Pod'
        return failed(job, jobs.FORBIDDEN_MIGRATE_POD, message)
    status = at_condition(job.status, new_condition(jobs.RESERVATION_SCHEDULED, TRUE), migration.now)
    event = PlannedEvent("Normal", jobs.RESERVATION_SCHEDULED, f'Assigned Reservation "{name}" to node "{node}"')
    return moved(job, msgspec.structs.replace(status, node_name=node), event)


def _evict(migration: Migration) -> JobPlan | None:
    """Until the pod is gone."""
    job, pod = migration.job, migration.pod
    if is_true(job.status, jobs.EVICTION):
        return None
    evicting = condition_of(job.status, jobs.EVICTION)
    if pod is None:
        if evicting is None and EVICTED_POD not in job.metadata.annotations:
            return missing_pod(job)
        event = PlannedEvent("Normal", jobs.EVICT_COMPLETE, f'Pod "{pod_key(job)}" has been evicted')
        return migration.to(new_condition(jobs.EVICTION, TRUE, jobs.EVICT_COMPLETE), event)
    policy = eviction_policy(job, pod, migration.args)
    if evicting is not None and not _must_evict_again(migration, pod, policy, evicting):
        return JobPlan(after=REQUEUE)
    is_leaving = EVICTED_POD in job.metadata.annotations and pod.metadata.deletion_timestamp is not None
    found = migration.facts.reservation
    if found is not None and found.status.phase == reservation.SUCCEEDED and not is_leaving:
        return failed(job, jobs.FORBIDDEN_MIGRATE_POD, "Reservation is already bound by another Pod")
    if EVICTED_POD not in job.metadata.annotations:
        return JobPlan((PatchJob({"metadata": {"annotations": notes_of(pod)}}),))
    return _evict_now(migration, pod, policy, again=evicting is not None)


def notes_of(pod: Pod) -> dict[str, str]:
    """What a job notes down before it evicts the pod."""
    controller = controller_of(pod.metadata)
    owned = {EVICTED_POD_CONTROLLER: controller.uid} if controller is not None else {}
    return {EVICTED_POD: pod.metadata.uid, **owned}


def _evict_now(migration: Migration, pod: Pod, policy: str, *, again: bool) -> JobPlan:
    job, now = migration.job, migration.now
    _, reason = trigger_and_reason(job)
    message = f'Pod "{pod_key(job)}" evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
    condition = new_condition(jobs.EVICTION, FALSE, jobs.EVICTING, message)
    if again:
        condition = msgspec.structs.replace(condition, last_probe_time=now.replace(microsecond=0))
    status = at_condition(job.status, condition, now)
    return JobPlan((EvictPod(pod, policy), WriteStatus(status)), (PlannedEvent("Normal", jobs.EVICTING, message),))


def _must_evict_again(migration: Migration, pod: Pod, policy: str, last: PodMigrationJobCondition) -> bool:
    """Whether an eviction was accepted and came to nothing."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if policy == SOFT_EVICTION:
        if annotation_keys.SOFT_EVICTION in pod.metadata.annotations:
            return False
        grace = 0
    else:
        grace = _grace_period(migration, pod)
    since = max((each for each in (last.last_probe_time, last.last_transition_time) if each), default=None)
    pause = timedelta(seconds=min(grace, _LONGEST_GRACE)) + _EVICTION_MARGIN
    return since is None or has_passed(pause, since, migration.now)


def _grace_period(migration: Migration, pod: Pod) -> int:
    """Seconds that the pod has for its end."""
    options = delete_options(migration.job, migration.args)
    if options is not None and options.grace_period_seconds is not None:
        return options.grace_period_seconds
    own = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE if own is None else own


def _evicted_directly(job: PodMigrationJob) -> JobPlan:
    status = completed(job.status, f'Pod "{pod_key(job)}" has been evicted')
    return moved(job, status)


def _unneeded(job: PodMigrationJob, found: Reservation) -> JobPlan | None:
    """The end of a job whose pod requests nothing: its replacement takes nothing of a Reservation, so that it would be
    waited for in vain."""
    if not holds_nothing(found):
        return None
    ended = _evicted_directly(job)
    if not is_own_reservation(found):
        return ended
    return JobPlan((*ended.steps, DeleteReservation(found.metadata.name, found.metadata.uid)), ended.events)


def _bind(migration: Migration, found: Reservation) -> JobPlan | None:
    """Until another pod uses the Reservation and is ready; None while none does and the job says so."""
    job = migration.job
    if not found.status.current_owners:
        waiting = PlannedEvent("Normal", jobs.WAIT_FOR_POD_BIND_RESERVATION, "Waiting for Pod bind Reservation")
        return migration.to(
            new_condition(jobs.POD_BOUND_RESERVATION, FALSE, jobs.WAIT_FOR_POD_BIND_RESERVATION), waiting
        )
    bound = found.status.current_owners[0]
    key = f"{bound.namespace}/{bound.name}"
    if not is_true(job.status, jobs.RESERVATION_BOUND):
        status = at_condition(job.status, new_condition(jobs.RESERVATION_BOUND, TRUE), migration.now)
        event = PlannedEvent("Normal", jobs.POD_BOUND_RESERVATION, f'Reservation bound by pod "{key}"')
        return moved(job, msgspec.structs.replace(status, pod_ref=bound), event)
    return _await_ready(migration, found, key)


def _await_ready(migration: Migration, found: Reservation, key: str) -> JobPlan | None:
    job, pod = migration.job, migration.facts.bound_pod
    if not is_true(job.status, jobs.BOUND_POD_READY):
        if pod is not None and not is_ready(pod):
            waiting = PlannedEvent("Normal", jobs.WAIT_FOR_BOUND_POD_READY, f"Waiting for Bound Pod {key} Ready")
            return migration.to(new_condition(jobs.BOUND_POD_READY, FALSE, jobs.WAIT_FOR_BOUND_POD_READY), waiting)
        ready = PlannedEvent("Normal", jobs.BOUND_POD_READY, f'Bind pod "{key}" is ready')
        return migration.to(new_condition(jobs.BOUND_POD_READY, TRUE), ready)
    message = f'Bind Pod "{key}" in Reservation "{found.metadata.name}"'
    condition = new_condition(jobs.POD_BOUND_RESERVATION, TRUE, message=message)
    status = completed(with_condition(job.status, condition, migration.now), message)
    return moved(job, status, PlannedEvent("Normal", COMPLETE, message))


def _schedule_pending_pod(migration: Migration, found: Reservation) -> JobPlan:
    """For a pod that has no node yet: it is not evicted, it is the one to use the Reservation."""
    job, pod = migration.job, migration.pod
    if pod is None:
        return missing_pod(job)
    scheduled = pod_condition(pod, "PodScheduled")
    if scheduled is None or scheduled.status == FALSE:
        owners = found.status.current_owners
        if found.status.phase == reservation.SUCCEEDED and not (owners and owners[0].uid == pod.metadata.uid):
            return failed(job, jobs.FORBIDDEN_MIGRATE_POD, "Reservation is already bound by another Pod")
        message = scheduled.message if scheduled is not None else ""
        condition = new_condition(jobs.POD_SCHEDULED, FALSE, jobs.UNSCHEDULABLE, message)
        return migration.to(condition) or JobPlan(after=REQUEUE)
    message = f'Assign Pod "{pod_key(job)}" to node "{pod.spec.node_name}"'
    status = with_condition(job.status, new_condition(jobs.POD_SCHEDULED, TRUE), migration.now)
    return moved(job, completed(status, message), PlannedEvent("Normal", COMPLETE, message))


def _clean_up(job: PodMigrationJob, facts: JobFacts) -> JobPlan:
    """A job that did not succeed reserves nothing on any node, unless its pod has left: then the replacement may come
    as long as the Reservation lives."""
    found = facts.reservation
    if job.status.phase == jobs.SUCCEEDED or found is None or not is_own_reservation(found):
        return JobPlan()
    if found.status.phase not in _ENDED and _has_been_evicted(job, facts.pod):
        return JobPlan()
    return JobPlan((DeleteReservation(found.metadata.name, found.metadata.uid),), final=True)


def _has_been_evicted(job: PodMigrationJob, pod: Pod | None) -> bool:
    """Whether the pod has been told to go, also where the program ended before the job said so."""
    if condition_of(job.status, jobs.EVICTION) is not None:
        return True
    begun = job.metadata.annotations.get(EVICTED_POD)
    return begun is not None and (
        pod is None or pod.metadata.uid != begun or pod.metadata.deletion_timestamp is not None
    )


def _time_left(job: PodMigrationJob, now: datetime) -> float | None:
    ttl, created = job.spec.ttl, job.metadata.creation_timestamp
    if not ttl or created is None:
        return None
    return (created + ttl - now).total_seconds()


def _reservation_name(job: PodMigrationJob) -> str:
    options = job.spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    return reference.name if reference is not None else ""


def _reservation_condition(found: Reservation, type_: str, reason: str) -> ReservationCondition | None:
    conditions = found.status.conditions
    return next((each for each in conditions if each.type == type_ and each.reason == reason), None)
