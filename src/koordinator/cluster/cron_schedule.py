"""The schedules of CronJobs: the standard syntax of robfig/cron, which kube-controller-manager uses.

Five fields (minute, hour, day of the month, month, day of the week), or ``@hourly``, ``@daily``, ``@weekly``,
``@monthly``, ``@yearly`` and ``@every DURATION``. Where both days are restricted, one of them has to match. A local
time that the change to daylight saving leaves out is left out; one that occurs twice is met twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from koordinator.base.durations import DurationError, parse_duration
from koordinator.base.errors import KoordinatorError


class ScheduleError(KoordinatorError, ValueError):
    """A schedule or a time zone that does not exist; the text says what is wrong with it."""


class Schedule(Protocol):
    """When something is due."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after ``moment``; None if there is none within five years."""
        ...

    def last_until(self, moment: datetime, first: datetime) -> datetime:
        """The last time that is not after ``moment``, where ``first``, no later, is one of the times."""
        ...


_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_WEEKDAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_YEARS: Final = 5


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)


_FIELDS: Final = (_Bounds(0, 59), _Bounds(0, 23), _Bounds(1, 31), _Bounds(1, 12, _MONTHS), _Bounds(0, 6, _WEEKDAYS))


@dataclass(frozen=True, slots=True)
class _Field:
    values: frozenset[int]
    is_any: bool
    """Whether it was written as ``*``, so that the other day decides alone."""


@dataclass(frozen=True, slots=True)
class CalendarSchedule:
    """Times whose fields, in a time zone, are among those given."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: _Field
    months: frozenset[int]
    weekdays: _Field
    zone: tzinfo = UTC

    def next_after(self, moment: datetime) -> datetime | None:
        """The first full minute after ``moment`` that matches, in UTC; None if there is none within five years."""
        found = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last_year = found.astimezone(self.zone).year + _YEARS
        while True:
            local = found.astimezone(self.zone)
            if local.year > last_year:
                return None
            following = self._following(local, found)
            if following is None:
                return found
            found = following

    def last_until(self, moment: datetime, first: datetime) -> datetime:
        """The last time that is not after ``moment``, where ``first``, no later, is one of the times."""
        # Bisected: after months, the times of a schedule for each minute would be hundreds of thousands.
        start, end = 0, int((moment - first).total_seconds()) // 60 + 1
        last = first
        while end - start > 1:
            middle = (start + end) // 2
            found = self.next_after(first + timedelta(minutes=middle))
            if found is not None and found <= moment:
                start, last = middle, found
            else:
                end = middle
        found = self.next_after(first) if last == first else None
        return found if found is not None and found <= moment else last

    def _following(self, local: datetime, moment: datetime) -> datetime | None:
        """The next time that might match; None if ``moment``, which is ``local`` in the time zone, matches."""
        if local.month not in self.months:
            first = local.replace(day=1) + timedelta(days=31)
            return self._midnight(first.replace(day=1))
        if not self._is_day(local):
            return self._midnight(local + timedelta(days=1))
        if local.hour not in self.hours:
            return moment + timedelta(minutes=60 - local.minute)
        if local.minute not in self.minutes:
            return moment + timedelta(minutes=1)
        return None

    def _midnight(self, local: datetime) -> datetime:
        return local.replace(hour=0, minute=0, fold=0).astimezone(UTC)

    def _is_day(self, local: datetime) -> bool:
        in_month = local.day in self.days.values
        in_week = local.isoweekday() % 7 in self.weekdays.values
        if self.days.is_any or self.weekdays.is_any:
            return in_month and in_week
        return in_month or in_week


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """Again and again after an interval, which begins at the last time."""

    interval: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return moment.replace(microsecond=0) + self.interval

    def last_until(self, moment: datetime, first: datetime) -> datetime:
        return first + (moment - first) // self.interval * self.interval


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """Read a schedule of a CronJob, whose fields are in ``zone``. Raises ScheduleError."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        name, _, text = text.partition(" ")
        zone, text = time_zone(name.partition("=")[2]), text.strip()
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(_EVERY):
        return _interval(text)
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    minutes, hours, days, months, weekdays = map(_field, parts, _FIELDS)
    return CalendarSchedule(minutes.values, hours.values, days, months.values, weekdays, zone)


def time_zone(name: str) -> tzinfo:
    """The time zone of this name in the database of the machine; UTC for an empty one. Raises ScheduleError."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"unknown time zone {name}") from error


def _interval(text: str) -> IntervalSchedule:
    try:
        interval = parse_duration(text.removeprefix(_EVERY))
    except DurationError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from error
    return IntervalSchedule(timedelta(seconds=max(1, int(interval.total_seconds()))))


def _field(text: str, bounds: _Bounds) -> _Field:
    ranges = [_range(part, bounds) for part in text.split(",") if part]
    values = frozenset(value for each, _ in ranges for value in each)
    return _Field(values, any(is_any for _, is_any in ranges))


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """``*``, ``2``, ``2-5``, each with ``/STEP`` behind it; whether it is ``*`` with every value."""
    span, *steps = text.split("/")
    low, *highs = span.split("-")
    if len(highs) > 1:
        raise ScheduleError(f"too many hyphens: {text}")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    is_any = low in ("*", "?")
    if is_any:
        start, end = bounds.low, bounds.high
    else:
        start = _value(low, bounds)
        end = _value(highs[0], bounds) if highs else bounds.high if steps else start
    _check(text, start, end, step, bounds)
    return range(start, end + 1, step), is_any and step == 1


def _check(text: str, start: int, end: int, step: int, bounds: _Bounds) -> None:
    if start < bounds.low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.low}): {text}")
    if end > bounds.high:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _value(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ScheduleError(f"failed to parse int from {text}")
    return int(text)
