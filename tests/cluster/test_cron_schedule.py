"""Schedules of CronJobs, beside what robfig/cron makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.cron_schedule import CalendarSchedule, ScheduleError, parse_schedule, time_zone


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "after", "found"),
    [
        ("*/15 * * * *", "2012-07-09T14:45:00", "2012-07-09T15:00:00"),
        ("*/15 * * * *", "2012-07-09T14:59:59", "2012-07-09T15:00:00"),
        ("20-35/15 * * * *", "2012-07-09T14:45:00", "2012-07-09T15:20:00"),
        ("0 0 * * *", "2012-12-31T23:59:45", "2013-01-01T00:00:00"),
        ("0 0 9 apr-oct ?", "2012-07-09T23:35:00", "2012-08-09T00:00:00"),
        ("0 0 29 Feb ?", "2012-07-09T23:35:00", "2016-02-29T00:00:00"),
        ("0 0 * Feb Mon", "2012-07-09T23:35:00", "2013-02-04T00:00:00"),
        ("0 0 1,15 * Sun", "2012-07-09T00:00:00", "2012-07-15T00:00:00"),
        ("0 0 1,15 * sun", "2012-07-15T00:00:00", "2012-07-22T00:00:00"),
        ("0 0 */10 * sun", "2012-07-09T00:00:00", "2012-07-11T00:00:00"),
        ("5/20 * * * *", "2012-07-09T14:26:00", "2012-07-09T14:45:00"),
        ("@hourly", "2012-07-09T14:45:00", "2012-07-09T15:00:00"),
        ("@daily", "2012-07-09T14:45:00", "2012-07-10T00:00:00"),
        ("@weekly", "2012-07-09T14:45:00", "2012-07-15T00:00:00"),
        ("@monthly", "2012-07-09T14:45:00", "2012-08-01T00:00:00"),
        ("@yearly", "2012-07-09T14:45:00", "2013-01-01T00:00:00"),
        ("@every 1h30m", "2012-07-09T14:45:00", "2012-07-09T16:15:00"),
        ("TZ=Asia/Tokyo 30 14 * * *", "2012-07-09T03:35:00", "2012-07-09T05:30:00"),
    ],
)
def test_the_next_time(text: str, after: str, found: str) -> None:
    assert parse_schedule(text).next_after(moment(after)) == moment(found)


@pytest.mark.parametrize(
    ("text", "after", "found"),
    [
        # 02:30 does not exist on 11 March 2012.
        ("30 2 * * *", "2012-03-11T05:00:00", "2012-03-12T06:30:00"),
        # 01:30 comes twice on 4 November 2012.
        ("30 1 * * *", "2012-11-04T05:00:00", "2012-11-04T05:30:00"),
        ("30 1 * * *", "2012-11-04T05:30:00", "2012-11-04T06:30:00"),
        ("0 0 * * *", "2012-11-04T05:00:00", "2012-11-05T05:00:00"),
    ],
)
def test_daylight_saving(text: str, after: str, found: str) -> None:
    assert parse_schedule(text, time_zone("America/New_York")).next_after(moment(after)) == moment(found)


def test_a_day_that_never_comes() -> None:
    assert parse_schedule("0 0 30 Feb *").next_after(moment("2012-07-09T00:00:00")) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("xyz * * * *", "failed to parse int from xyz"),
        ("-1 * * * *", "failed to parse int from "),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("TZ=Mars/Olympus * * * * *", "unknown time zone Mars/Olympus"),
    ],
)
def test_what_is_wrong_with_a_schedule(text: str, error: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        parse_schedule(text)
    assert str(raised.value) == error


@given(
    st.sampled_from(["*/7 * * * *", "3 */5 * * *", "0 4 8-14 * 2", "15 10 * 3,9 *", "59 23 31 * *"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_the_next_time_matches_and_none_before_it_does(text: str, after: datetime, zone: str) -> None:
    schedule = parse_schedule(text, time_zone(zone))
    assert isinstance(schedule, CalendarSchedule)
    start = after.replace(tzinfo=UTC)
    found = schedule.next_after(start)
    assert found is not None
    assert schedule.next_after(found - timedelta(seconds=1)) == found
    assert schedule.next_after(start + (found - start) / 2) == found
