"""The work queue: one worker per item at a time, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.kube.requeue_delays import BucketLimiter, ExponentialFailureLimiter
from koordinator.kube.workqueue import QueueShutDown, WorkQueue, run_workers
from tests.examples import examples


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_item_added_twice_is_worked_on_once() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        queue.add("a")
        queue.add("a")
        assert await queue.get() == "a"
        assert len(queue) == 0

    run(scenario())


def test_item_added_while_worked_on_waits_until_done() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        queue.add("a")
        item = await queue.get()
        queue.add("a")
        assert len(queue) == 0
        queue.done(item)
        assert await queue.get() == "a"

    run(scenario())


def test_items_come_in_order() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        for item in "bca":
            queue.add(item)
        assert [await queue.get() for _ in range(3)] == ["b", "c", "a"]

    run(scenario())


def test_earlier_of_two_pauses_counts() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        async with asyncio.TaskGroup() as tasks:
            timers = tasks.create_task(queue.run_timers())
            queue.add_after("a", 10)
            await clock.advance(1)
            queue.add_after("a", 2)
            queue.add_after("a", 20)
            await clock.advance(1.9)
            assert len(queue) == 0
            await clock.advance(0.2)
            assert len(queue) == 1
            await queue.get()
            queue.done("a")
            await clock.advance(30)
            assert (len(queue), queue.waiting) == (0, 0)
            timers.cancel()

    run(scenario())


def test_failures_double_the_pause_up_to_a_thousand_seconds() -> None:
    limiter: ExponentialFailureLimiter[str] = ExponentialFailureLimiter()
    pauses = [limiter.when("a") for _ in range(2000)]
    assert pauses[:4] == [0.005, 0.01, 0.02, 0.04]
    assert pauses[-1] == 1000


def test_forgotten_item_starts_anew() -> None:
    limiter: ExponentialFailureLimiter[str] = ExponentialFailureLimiter()
    limiter.when("a")
    limiter.forget("a")
    assert (limiter.when("a"), limiter.retries("a")) == (0.005, 1)


def test_bucket_allows_its_burst_then_its_rate() -> None:
    limiter: BucketLimiter[str] = BucketLimiter(ManualClock(), qps=10, burst=2)
    assert [limiter.when("a") for _ in range(4)] == [0, 0, pytest.approx(0.1), pytest.approx(0.2)]


def test_get_after_shut_down_hands_out_the_rest_then_raises() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        queue.add("a")
        queue.shut_down()
        queue.add("b")
        assert await queue.get() == "a"
        with pytest.raises(QueueShutDown):
            await queue.get()

    run(scenario())


def test_shut_down_wakes_those_that_wait() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        getting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.shut_down()
        with pytest.raises(QueueShutDown):
            await getting

    run(scenario())


def test_cancelled_getter_passes_its_wake_up_on() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(ManualClock())
        first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await asyncio.wait_for(second, 5) == "a"

    run(scenario())


def test_it_is_idle_when_nothing_is_ready_worked_on_or_delayed() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        await queue.idle()
        queue.add("a")
        idle = asyncio.create_task(queue.idle())
        assert queue.unfinished == 1
        item = await queue.get()
        queue.add_after(item, 5)
        queue.done(item)
        await asyncio.sleep(0)
        assert (idle.done(), queue.unfinished) == (False, 0)
        timers = asyncio.create_task(queue.run_timers())
        await clock.advance(5)
        queue.done(await queue.get())
        await idle
        queue.add_after("b", 5)
        idle = asyncio.create_task(queue.idle())
        await asyncio.sleep(0)
        assert not idle.done()
        queue.shut_down()
        await idle
        timers.cancel()

    run(scenario())


def test_failing_work_comes_again() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        attempts: list[str] = []
        errors: list[str] = []

        async def work(item: str) -> None:
            attempts.append(item)
            if len(attempts) < 3:
                raise RuntimeError(item)
            queue.shut_down()

        queue.add("a")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_workers(queue, work, workers=2, on_error=lambda item, _: errors.append(item)))
            await clock.advance(1)
        assert (attempts, errors) == (["a"] * 3, ["a"] * 2)

    run(scenario())


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 4))
def test_no_item_is_worked_on_twice_at_once_and_none_is_lost(seed: int, workers: int) -> None:
    async def scenario() -> None:
        random, clock = Random(seed), ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        wanted = dict.fromkeys("abcd", 0)
        seen = dict.fromkeys("abcd", 0)
        busy: set[str] = set()

        async def work(item: str) -> None:
            assert item not in busy
            busy.add(item)
            target = wanted[item]
            try:
                await clock.sleep(random.random())
                if random.random() < 0.3:
                    raise RuntimeError("try again")
                seen[item] = target
            finally:
                busy.remove(item)

        async def produce() -> None:
            for _ in range(30):
                item = random.choice("abcd")
                wanted[item] += 1
                match random.randrange(3):
                    case 0:
                        queue.add(item)
                    case 1:
                        queue.add_rate_limited(item)
                    case _:
                        queue.add_after(item, random.random())
                await clock.sleep(random.random() / 2)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            tasks.create_task(run_workers(queue, work, workers=workers, on_error=lambda *_: None))
            await clock.advance(120)
            queue.shut_down()
            await clock.advance(5)
        assert seen == wanted

    run(scenario())
