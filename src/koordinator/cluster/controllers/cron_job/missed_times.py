"""Which of the times of a CronJob's schedule is to be met now, and when the next one is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.batch import CronJob
from koordinator.cluster.cron_schedule import Schedule

_MANY: Final = 100
_LATER: Final = 0.1
"""Seconds by which the controller looks again after a time, so that it is never a moment too early."""


class IntervalError(Exception):
    """The times of the schedule lie too close together."""


@dataclass(frozen=True, slots=True)
class MissedTimes:
    """The times between the last one that was met and now."""

    since: datetime
    """Times after this are due: that of the last Job, or of the creation of the CronJob."""
    latest: datetime | None
    """The most recent time that was not met yet."""
    count: int = 0
    """How many times were missed; estimated where the intervals differ."""

    @property
    def are_many(self) -> bool:
        """Whether somebody should look at the clocks or at ``startingDeadlineSeconds``."""
        return self.count > _MANY


def missed_times(cron_job: CronJob, schedule: Schedule, now: datetime, *, with_deadline: bool = True) -> MissedTimes:
    """Raises IntervalError. ``with_deadline``: times that are older than ``startingDeadlineSeconds`` do not count."""
    since = _earliest(cron_job, now, with_deadline=with_deadline)
    first = schedule.next_after(since)
    if first is None or now < first:
        return MissedTimes(since, None)
    second = schedule.next_after(first)
    if second is None or now < second:
        return MissedTimes(since, first)
    interval = round((second - first).total_seconds())
    if interval < 1:
        raise IntervalError("time difference between two schedules is less than 1 second")
    count = int((now - first).total_seconds()) // interval + 1
    return MissedTimes(since, schedule.last_until(now, first), count)


def _earliest(cron_job: CronJob, now: datetime, *, with_deadline: bool) -> datetime:
    since = cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp or now
    seconds = cron_job.spec.starting_deadline_seconds
    if not with_deadline or seconds is None:
        return since
    return max(since, datetime.fromtimestamp(max(0.0, now.timestamp() - seconds), now.tzinfo))


def seconds_to_next(cron_job: CronJob, schedule: Schedule, now: datetime) -> float | None:
    """Seconds until the next time; None if there is none within five years."""
    try:
        missed = missed_times(cron_job, schedule, now, with_deadline=False)
    except IntervalError:
        missed = MissedTimes(now, now)
    following = schedule.next_after(missed.latest or missed.since)
    return None if following is None else max(0.0, (following - now).total_seconds()) + _LATER
