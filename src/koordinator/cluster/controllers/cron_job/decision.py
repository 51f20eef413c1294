"""What a CronJob does now: which Job it creates, which it deletes, what its status says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from msgspec.structs import replace

from koordinator.api.batch import CronJob, CronJobStatus, Job, finished_condition
from koordinator.api.document import Document, copied
from koordinator.api.kinds import CRON_JOBS
from koordinator.api.meta import ObjectReference
from koordinator.cluster.controllers.cron_job.missed_times import IntervalError, missed_times, seconds_to_next
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.cluster.cron_schedule import Schedule, ScheduleError, parse_schedule, time_zone

SCHEDULED_TIME: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""An annotation of each Job: the time that it was created for."""
_DOCUMENTATION: Final = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"


@dataclass(frozen=True, slots=True)
class Note:
    """An event of the CronJob."""

    reason: str
    text: str
    is_warning: bool = False


@dataclass(slots=True)
class Decision:
    """``delete`` comes first, then ``create``, then ``status`` with what was created."""

    status: CronJobStatus
    notes: list[Note] = field(default_factory=list)
    delete: list[Job] = field(default_factory=list)
    create: datetime | None = None
    """The scheduled time of the Job to create."""
    look_again: float | None = None
    """Seconds until the next time of the schedule."""

    def warn(self, reason: str, text: str) -> None:
        self.notes.append(Note(reason, text, is_warning=True))


def decide(cron_job: CronJob, jobs: Sequence[Job], now: datetime) -> Decision:
    """``jobs`` are all that the CronJob controls, no older than what the CronJob says of them."""
    decision = Decision(cron_job.status)
    decision.delete = _beyond_history(cron_job, jobs)
    _see_to_active(decision, jobs)
    if cron_job.metadata.deletion_timestamp is None:
        schedule = _schedule(cron_job, decision)
        if schedule is not None and not cron_job.spec.suspend:
            _see_to_schedule(cron_job, jobs, schedule, decision, now)
    gone = {job.metadata.uid for job in decision.delete}
    _keep_active(decision, [each for each in decision.status.active if each.uid not in gone])
    return decision


def job_name(cron_job: CronJob, scheduled: datetime) -> str:
    """That of the one Job for this time: the number at the end counts minutes since 1970."""
    return f"{cron_job.metadata.name}-{int(scheduled.timestamp()) // 60}"


def new_job(cron_job: CronJob, scheduled: datetime) -> Document:
    """The Job of a CronJob for a scheduled time."""
    template = cron_job.spec.job_template
    try:
        zone = time_zone(cron_job.spec.time_zone or "")
    except ScheduleError:
        zone = UTC
    written = scheduled.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "metadata": {
            "name": job_name(cron_job, scheduled),
            "labels": copied(template.metadata.get("labels") or {}),
            "annotations": copied(template.metadata.get("annotations") or {}) | {SCHEDULED_TIME: written},
            "ownerReferences": [controller_reference(CRON_JOBS, cron_job)],
        },
        "spec": copied(template.spec),
    }


def with_active(status: CronJobStatus, job: ObjectReference, scheduled: datetime) -> CronJobStatus:
    """The status once a Job was created for a scheduled time."""
    return replace(status, active=(*status.active, job), last_schedule_time=scheduled)


# Jobs that there are.


def _beyond_history(cron_job: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """The oldest of the Jobs that have succeeded and of those that have failed, beyond what is to be kept."""
    spec = cron_job.spec
    limits = {"Complete": spec.successful_jobs_history_limit, "Failed": spec.failed_jobs_history_limit}
    surplus: list[Job] = []
    for type_, limit in limits.items():
        ended = [job for job in jobs if (found := finished_condition(job)) is not None and found.type == type_]
        ended = sorted((job for job in ended if job.metadata.deletion_timestamp is None), key=_start)
        if limit is not None:
            surplus += ended[: max(0, len(ended) - limit)]
    return surplus


def _start(job: Job) -> tuple[bool, float, str]:
    start = job.status.start_time
    return start is None, start.timestamp() if start is not None else 0.0, job.metadata.name


def _see_to_active(decision: Decision, jobs: Sequence[Job]) -> None:
    """Take note of Jobs that have ended or are gone."""
    by_uid = {job.metadata.uid: job for job in jobs}
    listed = {each.uid for each in decision.status.active}
    for job in jobs:
        ended = finished_condition(job)
        name = job.metadata.name
        if ended is None and job.metadata.uid not in listed:
            decision.warn("UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}")
        elif ended is not None and job.metadata.uid in listed:
            decision.notes.append(Note("SawCompletedJob", f"Saw completed job: {name}, status: {ended.type}"))
    for each in decision.status.active:
        if each.uid not in by_uid:
            decision.notes.append(Note("MissingJob", f"Active job went missing: {each.name}"))
    active = [e for e in decision.status.active if e.uid in by_uid and finished_condition(by_uid[e.uid]) is None]
    _keep_active(decision, active)
    times = [job.status.completion_time for job in jobs if job.status.completion_time is not None]
    latest = max((time for time in (*times, decision.status.last_successful_time) if time is not None), default=None)
    if latest != decision.status.last_successful_time:
        decision.status = replace(decision.status, last_successful_time=latest)


def _keep_active(decision: Decision, active: Sequence[ObjectReference]) -> None:
    if len(active) != len(decision.status.active):
        decision.status = replace(decision.status, active=tuple(active))


# The schedule.


def _schedule(cron_job: CronJob, decision: Decision) -> Schedule | None:
    spec = cron_job.spec
    try:
        zone = time_zone(spec.time_zone or "")
    except ScheduleError as error:
        decision.warn("UnknownTimeZone", f'invalid timeZone: "{spec.time_zone}": {error}')
        return None
    if "TZ" in spec.schedule:
        text = f'CRON_TZ or TZ used in schedule "{spec.schedule}" is not officially supported, see'
        decision.warn("UnsupportedSchedule", f"{text} {_DOCUMENTATION} for more details")
    try:
        return parse_schedule(spec.schedule, zone)
    except ScheduleError as error:
        decision.warn("UnparseableSchedule", f'unparseable schedule: "{spec.schedule}" : {error}')
        return None


def _see_to_schedule(
    cron_job: CronJob, jobs: Sequence[Job], schedule: Schedule, decision: Decision, now: datetime
) -> None:
    try:
        missed = missed_times(cron_job, schedule, now)
    except IntervalError as error:
        decision.warn("InvalidSchedule", f"invalid schedule: {cron_job.spec.schedule} : {error}")
        return
    decision.look_again = seconds_to_next(cron_job, schedule, now)
    scheduled = missed.latest
    if missed.are_many:
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        decision.warn("TooManyMissedTimes", text)
    if scheduled is None:
        return
    deadline = cron_job.spec.starting_deadline_seconds
    if deadline is not None and scheduled.timestamp() + deadline < now.timestamp():
        text = format_datetime(scheduled.astimezone(UTC))
        decision.warn("MissSchedule", f"Missed scheduled time to start a job: {text}")
        return
    name = job_name(cron_job, scheduled)
    if scheduled == cron_job.status.last_schedule_time or any(each.name == name for each in decision.status.active):
        return
    _start_job(cron_job, jobs, scheduled, decision)


def _start_job(cron_job: CronJob, jobs: Sequence[Job], scheduled: datetime, decision: Decision) -> None:
    active = {each.uid for each in decision.status.active}
    if active and cron_job.spec.concurrency_policy == "Forbid":
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        decision.notes.append(Note("JobAlreadyActive", text))
        return
    if cron_job.spec.concurrency_policy == "Replace":
        decision.delete += [job for job in jobs if job.metadata.uid in active]
    decision.create = scheduled
