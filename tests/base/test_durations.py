"""Durations as Go writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.durations import DurationError, format_duration, has_passed, parse_duration

_LONGEST = timedelta(microseconds=(2**63 - 1) // 1000)


@given(st.timedeltas(-_LONGEST, _LONGEST))
def test_what_is_written_is_read_to_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_longest_is_written_so_that_go_can_read_it(sign: str) -> None:
    assert format_duration(parse_duration(f"{sign}2562047h47m16.854775807s")) == f"{sign}2562047h47m16.854775s"


def test_a_longer_one_is_refused() -> None:
    with pytest.raises(DurationError, match="292 years"):
        parse_duration("2562047h47m16.854775808s")


@pytest.mark.parametrize(("ahead", "passed"), [(0, False), (59, False), (60, True), (-59, False), (-60, True)])
def test_a_duration_has_passed_where_the_clock_was_set_back_by_more(ahead: int, passed: bool) -> None:
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert has_passed(timedelta(minutes=1), since, since + timedelta(seconds=ahead)) is passed
