"""Limits that one sweeper watches over."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.base.clock import ManualClock
from koordinator.base.time_limits import Limit, TimeLimits
from tests.kube.clients import run


def expiries(change: Callable[[TimeLimits, Limit], None]) -> int:
    """How often a limit of 10 seconds expires within a minute when ``change`` is made after 8 seconds."""

    async def work() -> int:
        clock, expired = ManualClock(), []
        limits = TimeLimits(clock)
        limit = Limit(lambda: expired.append(clock.monotonic()))
        limits.add(limit)
        limits.extend(limit, 10)
        await clock.advance(8)
        change(limits, limit)
        await clock.advance(52)
        await limits.close()
        assert limit.expired is bool(expired)
        return len(expired)

    return run(work())


def test_a_limit_that_passes_expires_once() -> None:
    assert expiries(lambda limits, limit: None) == 1


def test_a_limit_that_is_extended_in_time_does_not_expire() -> None:
    assert expiries(lambda limits, limit: limits.extend(limit, 60)) == 0


def test_a_limit_that_was_removed_does_not_expire() -> None:
    assert expiries(lambda limits, limit: limits.remove(limit)) == 0


def test_removing_a_limit_twice_does_no_harm() -> None:
    def twice(limits: TimeLimits, limit: Limit) -> None:
        limits.remove(limit)
        limits.remove(limit)

    assert expiries(twice) == 0


def test_a_limit_that_nobody_set_never_expires() -> None:
    async def work() -> bool:
        clock = ManualClock()
        limits, limit = TimeLimits(clock), Limit(lambda: None)
        limits.add(limit)
        await clock.advance(600)
        await limits.close()
        return limit.expired

    assert not run(work())
