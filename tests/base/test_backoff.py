"""Growing pauses."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import ManualClock

PLAIN = BackoffPolicy(initial=1, maximum=5, jitter=0)


def test_pauses_grow_to_the_maximum() -> None:
    backoff = Backoff(PLAIN, ManualClock(), Random(1))
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_reset_starts_anew() -> None:
    backoff = Backoff(PLAIN, ManualClock(), Random(1))
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1


def test_long_time_without_failure_starts_anew() -> None:
    clock = ManualClock()
    backoff = Backoff(PLAIN, clock, Random(1))
    backoff.next()
    backoff.next()
    asyncio.run(clock.advance(200))
    assert backoff.next() == 1


def test_jitter_only_lengthens() -> None:
    backoff = Backoff(BackoffPolicy(initial=1, maximum=1, jitter=1), ManualClock(), Random(1))
    assert all(1 <= backoff.next() < 2 for _ in range(100))
