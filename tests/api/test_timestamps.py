"""Moments as texts, at the ends of the calendar too: reports may bear any time at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from koordinator.api.timestamps import format_micro_time, format_time

EAST = timezone(timedelta(hours=14))
WEST = timezone(timedelta(hours=-12))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=EAST), "2026-01-01T13:04:05Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(1, 1, 1, tzinfo=EAST), "0001-01-01T00:00:00Z"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST), "9999-12-31T23:59:59Z"),
    ],
)
def test_whole_seconds_in_utc(moment: datetime, text: str) -> None:
    assert format_time(moment) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=EAST), "2026-01-01T13:04:05.000006Z"),
        (datetime(1, 1, 1, tzinfo=EAST), "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_always_six_digits_in_utc(moment: datetime, text: str) -> None:
    assert format_micro_time(moment) == text
