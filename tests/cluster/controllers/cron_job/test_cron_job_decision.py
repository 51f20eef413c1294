"""What a CronJob does at a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.batch import CronJob, CronJobSpec, CronJobStatus, Job, JobCondition, JobStatus, JobTemplate
from koordinator.api.meta import ObjectMeta, ObjectReference
from koordinator.cluster.controllers.cron_job.decision import SCHEDULED_TIME, Decision, decide, job_name, new_job
from koordinator.cluster.controllers.cron_job.missed_times import missed_times
from koordinator.cluster.cron_schedule import parse_schedule

CREATED = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
NOW = CREATED + timedelta(seconds=30)
"""The first time of a schedule with each minute."""


def cron_job_with(status: CronJobStatus | None = None, **spec: Any) -> CronJob:
    metadata = ObjectMeta(name="tick", namespace="default", uid="tick", creation_timestamp=CREATED)
    given: dict[str, Any] = {
        "schedule": "* * * * *",
        "successful_jobs_history_limit": 3,
        "failed_jobs_history_limit": 1,
    } | spec
    return CronJob(metadata=metadata, spec=CronJobSpec(**given), status=status or CronJobStatus())


def job(name: str, ended: str = "", *, at: datetime = NOW) -> Job:
    conditions = (JobCondition(type=ended, status="True"),) if ended else ()
    status = JobStatus(conditions=conditions, start_time=at, completion_time=at if ended == "Complete" else None)
    return Job(metadata=ObjectMeta(name=name, namespace="default", uid=name), status=status)


def active(*names: str) -> CronJobStatus:
    return CronJobStatus(active=tuple(ObjectReference(kind="Job", name=name, uid=name) for name in names))


def reasons(decision: Decision) -> list[str]:
    return [note.reason for note in decision.notes]


def test_a_time_that_has_come() -> None:
    decision = decide(cron_job_with(), [], NOW)
    assert decision.create == NOW


def test_before_the_first_time_nothing_is_created() -> None:
    decision = decide(cron_job_with(), [], CREATED + timedelta(seconds=10))
    assert (decision.create, decision.look_again) == (None, 20.1)


def test_a_time_that_was_met_is_not_met_again() -> None:
    decision = decide(cron_job_with(CronJobStatus(last_schedule_time=NOW)), [], NOW)
    assert decision.create is None


def test_of_missed_times_the_latest_counts() -> None:
    decision = decide(cron_job_with(), [], NOW + timedelta(minutes=5, seconds=20))
    assert decision.create == NOW + timedelta(minutes=5)


def test_many_missed_times_are_said() -> None:
    decision = decide(cron_job_with(), [], NOW + timedelta(hours=2))
    assert (decision.create, reasons(decision)) == (NOW + timedelta(hours=2), ["TooManyMissedTimes"])


def test_a_time_that_was_missed_by_more_than_the_deadline() -> None:
    cron_job = cron_job_with(starting_deadline_seconds=10, schedule="0 * * * *")
    decision = decide(cron_job, [], datetime(2026, 1, 1, 13, 0, 20, tzinfo=UTC))
    assert decision.create is None


def test_suspended() -> None:
    decision = decide(cron_job_with(suspend=True), [], NOW)
    assert (decision.create, decision.look_again) == (None, None)


def test_a_job_that_runs_forbids_another_one() -> None:
    decision = decide(cron_job_with(active("old"), concurrency_policy="Forbid"), [job("old")], NOW)
    assert (decision.create, reasons(decision)) == (None, ["JobAlreadyActive"])


def test_a_job_that_runs_is_replaced() -> None:
    decision = decide(cron_job_with(active("old"), concurrency_policy="Replace"), [job("old")], NOW)
    assert (decision.create, [each.metadata.name for each in decision.delete]) == (NOW, ["old"])
    assert decision.status.active == ()


def test_a_job_that_has_ended_is_no_longer_active() -> None:
    decision = decide(cron_job_with(active("old"), suspend=True), [job("old", "Complete")], NOW)
    assert decision.status == CronJobStatus(last_successful_time=NOW)
    assert decision.notes[0].text == "Saw completed job: old, status: Complete"


def test_a_job_that_is_gone_is_no_longer_active() -> None:
    decision = decide(cron_job_with(active("old"), suspend=True), [], NOW)
    assert (decision.status.active, reasons(decision)) == ((), ["MissingJob"])


def test_the_oldest_jobs_go() -> None:
    jobs = [job(f"good-{n}", "Complete", at=NOW - timedelta(hours=n)) for n in range(5)]
    jobs += [job(f"bad-{n}", "Failed", at=NOW - timedelta(hours=n)) for n in range(3)]
    decision = decide(cron_job_with(suspend=True), jobs, NOW)
    assert [each.metadata.name for each in decision.delete] == ["good-4", "good-3", "bad-2", "bad-1"]


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        ({"time_zone": "Mars"}, "UnknownTimeZone", 'invalid timeZone: "Mars": unknown time zone Mars'),
        (
            {"schedule": "x"},
            "UnparseableSchedule",
            'unparseable schedule: "x" : expected exactly 5 fields, found 1: [x]',
        ),
    ],
)
def test_what_cannot_be_read(spec: dict[str, Any], reason: str, text: str) -> None:
    (note,) = decide(cron_job_with(**spec), [], NOW).notes
    assert (note.reason, note.text, note.is_warning) == (reason, text, True)


def test_the_job() -> None:
    template = JobTemplate(metadata={"labels": {"app": "tick"}}, spec={"backoffLimit": 2})
    cron_job = cron_job_with(job_template=template, time_zone="Asia/Tokyo")
    document = new_job(cron_job, NOW)
    assert document["metadata"]["name"] == job_name(cron_job, NOW) == f"tick-{int(NOW.timestamp()) // 60}"
    assert document["metadata"]["labels"] == {"app": "tick"}
    assert document["metadata"]["annotations"] == {SCHEDULED_TIME: "2026-01-01T21:01:00+09:00"}
    assert document["spec"] == {"backoffLimit": 2}


@given(st.sampled_from(["* * * * *", "*/7 3 * * *", "0 0 1 * *", "@every 90s"]), st.integers(0, 40 * 24 * 3600))
def test_the_latest_missed_time_is_the_last_one_before_now(text: str, seconds: int) -> None:
    schedule, now = parse_schedule(text), CREATED + timedelta(seconds=seconds)
    found = missed_times(cron_job_with(schedule=text), schedule, now).latest
    following = schedule.next_after(found or CREATED)
    assert found is None or CREATED < found <= now
    assert following is not None
    assert following > now
