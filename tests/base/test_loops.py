"""Supervised loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Loop, LoopSupervisor
from koordinator.base.metrics import Metrics


class Bench:
    """One loop on a manual clock; ``times`` says when its iterations began."""

    def __init__(self, body: Callable[[Bench], Awaitable[None]], *, jitter: float = 0.0) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.supervisor = LoopSupervisor(clock=self.clock, random=Random(1), metrics=self.metrics)
        self.times: list[float] = []

        async def iterate() -> None:
            self.times.append(self.clock.monotonic())
            await body(self)

        self.supervisor.add(Loop("sync", iterate, interval=10, deadline=5, jitter=jitter))

    def play(self, seconds: float) -> Bench:
        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self.supervisor.run())
                await self.clock.advance(seconds)
                running.cancel()

        asyncio.run(run())
        return self

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"loop": "sync"}) or 0.0


async def succeed(bench: Bench) -> None:
    return


async def fail(bench: Bench) -> None:
    raise KoordinatorError("no")


async def hang(bench: Bench) -> None:
    await asyncio.Event().wait()


def test_iterations_follow_at_the_interval() -> None:
    assert Bench(succeed).play(35).times == [0, 10, 20, 30]


def test_jitter_spreads_them() -> None:
    times = Bench(succeed, jitter=0.2).play(100).times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(8 <= gap <= 12 for gap in gaps)
    assert len(set(gaps)) > 1


def test_heartbeat_is_the_time_of_the_last_success() -> None:
    bench = Bench(succeed).play(35)
    assert bench.sample("loop_last_success_timestamp_seconds") == bench.clock.now().timestamp() - 5


def test_failures_are_counted_and_slow_the_loop() -> None:
    bench = Bench(fail).play(300)
    assert bench.sample("loop_errors_total") == len(bench.times)
    assert bench.times[3] - bench.times[2] > bench.times[1] - bench.times[0] >= 10


def test_iteration_is_cancelled_at_its_deadline() -> None:
    bench = Bench(hang).play(6)
    assert bench.sample("loop_errors_total") == 1


def test_unexpected_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def break_(bench: Bench) -> None:
        raise ZeroDivisionError

    Bench(break_).play(1)
    assert "loop sync failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_check_names_a_loop_that_no_longer_succeeds() -> None:
    assert "sync has not succeeded for 100s" in Bench(hang).play(100).supervisor.check()


def test_check_is_empty_while_all_is_well() -> None:
    assert Bench(succeed).play(100).supervisor.check() == ""


def test_name_of_a_loop_is_taken_once() -> None:
    supervisor = LoopSupervisor(clock=ManualClock(), random=Random(1))
    loop = Loop("sync", lambda: asyncio.sleep(0), interval=1, deadline=1)
    supervisor.add(loop)
    with pytest.raises(ValueError, match="sync"):
        supervisor.add(loop)
