"""The client's own limit: bursts, rates, order, and none at all."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.kube.sender import RateLimiter
from tests.kube.clients import run


def test_a_burst_is_free_and_the_rest_come_at_the_rate() -> None:
    limiter = RateLimiter(ManualClock(), qps=10, burst=3)
    assert [limiter.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


@pytest.mark.parametrize("qps", [0, -1])
def test_no_rate_means_no_limit(qps: float) -> None:
    limiter = RateLimiter(ManualClock(), qps=qps, burst=1)
    assert {limiter.reserve() for _ in range(1000)} == {0.0}


def test_tokens_come_back_with_time() -> None:
    async def work() -> list[float]:
        clock = ManualClock()
        limiter = RateLimiter(clock, qps=10, burst=2)
        for _ in range(2):
            limiter.reserve()
        await clock.advance(0.15)
        return [limiter.reserve(), limiter.reserve()]

    assert run(work()) == pytest.approx([0, 0.05])


def test_waiters_go_in_the_order_they_came() -> None:
    async def work() -> list[int]:
        clock, served = ManualClock(), []
        limiter = RateLimiter(clock, qps=1, burst=1)

        async def request(number: int) -> None:
            await limiter.acquire()
            served.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(request(number))
            await clock.advance(4)
        return served

    assert run(work()) == [0, 1, 2, 3, 4]


@given(st.floats(0.5, 200), st.integers(1, 50), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 30)), max_size=20))
def test_never_more_than_the_burst_and_the_rate(qps: float, burst: int, arrivals: list[tuple[float, int]]) -> None:
    async def work() -> list[float]:
        clock, used = ManualClock(), []
        limiter = RateLimiter(clock, qps, burst)
        for pause, requests in arrivals:
            await clock.advance(pause)
            used += [clock.monotonic() + limiter.reserve() for _ in range(requests)]
        return used

    used = run(work())
    for first in range(len(used)):
        for last in range(first, len(used)):
            assert last - first + 1 <= burst + qps * (used[last] - used[first]) + 1e-6
