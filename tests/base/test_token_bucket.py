"""A burst at once, and then so many a second."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.token_bucket import TokenBucket


def pass_time(clock: ManualClock, seconds: float) -> None:
    asyncio.run(clock.advance(seconds))


def taken(bucket: TokenBucket, wanted: int) -> int:
    return sum(bucket.take() for _ in range(wanted))


def test_a_burst_and_then_so_many_a_second() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, 10, 5)
    assert taken(bucket, 9) == 5
    pass_time(clock, 0.3)
    assert taken(bucket, 9) == 3


def test_what_is_not_taken_is_not_saved_beyond_the_burst() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, 10, 5)
    pass_time(clock, 3600)
    assert taken(bucket, 9) == 5


@pytest.mark.parametrize(("per_second", "burst", "expected"), [(0, 0, 0), (0, 3, 3), (-1, 2, 2), (10, 0, 0)])
def test_nothing_a_second(per_second: float, burst: int, expected: int) -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, per_second, burst)
    assert taken(bucket, 9) == expected
    pass_time(clock, 60)
    assert not bucket.take() or per_second > 0 < burst
