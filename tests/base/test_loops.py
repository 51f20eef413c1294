"""Supervised loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Heartbeat, Loop, LoopMetrics, LoopSupervisor
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


class WatchedBench:
    """A heartbeat on a manual clock."""

    def __init__(self, deadline: float = 5.0) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.heartbeat: Heartbeat = LoopMetrics(self.clock, self.metrics).loop("worker", deadline)

    def sample(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"loop": "worker"})

    def keep_everything_waiting(self, seconds: float) -> None:
        self.clock._move_to(self.clock.monotonic() + seconds)


def test_a_loop_that_has_done_nothing_yet_has_no_last_success() -> None:
    bench = WatchedBench()
    assert bench.sample("loop_last_success_timestamp_seconds") is None
    assert bench.sample("loop_errors_total") == 0
    assert bench.heartbeat.seconds_since() is None


def test_an_iteration_gives_what_the_work_gives() -> None:
    async def scenario() -> None:
        async def work() -> int:
            return 7

        bench = WatchedBench()
        assert await bench.heartbeat.iterate(work()) == 7
        await bench.clock.advance(3)
        assert bench.heartbeat.seconds_since() == 3
        assert bench.sample("loop_last_success_timestamp_seconds") == bench.clock.now().timestamp() - 3
        assert bench.sample("loop_duration_seconds_count") == 1

    asyncio.run(scenario())


def test_an_iteration_that_fails_is_an_error_and_no_heartbeat() -> None:
    bench = WatchedBench()
    with pytest.raises(KoordinatorError), bench.heartbeat.iteration():
        raise KoordinatorError("no")
    assert bench.sample("loop_errors_total") == 1
    assert bench.heartbeat.seconds_since() is None


def test_an_iteration_that_is_cancelled_is_neither() -> None:
    async def scenario() -> None:
        bench = WatchedBench()
        task = asyncio.create_task(bench.heartbeat.iterate(bench.clock.sleep(2)))
        await bench.clock.advance(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (bench.sample("loop_errors_total"), bench.heartbeat.seconds_since()) == (0, None)

    asyncio.run(scenario())


def test_a_watched_loop_beats_with_every_step() -> None:
    async def scenario() -> None:
        bench = WatchedBench()

        async def loop() -> str:
            for _ in range(3):
                await bench.clock.sleep(10)
            return "done"

        task = asyncio.create_task(bench.heartbeat.watch(loop))
        await bench.clock.advance(25)
        assert bench.heartbeat.seconds_since() == 5
        await bench.clock.advance(5)
        assert await task == "done"

    asyncio.run(scenario())


def test_a_watched_loop_can_be_cancelled_and_sees_it() -> None:
    async def scenario() -> None:
        seen: list[str] = []

        async def loop() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                seen.append("cancelled")
                raise

        task = asyncio.create_task(WatchedBench().heartbeat.watch(loop))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]

    asyncio.run(scenario())


def test_what_a_watched_loop_raises_comes_out() -> None:
    async def loop() -> None:
        await asyncio.sleep(0)
        raise KoordinatorError("no")

    with pytest.raises(KoordinatorError, match="no"):
        asyncio.run(WatchedBench().heartbeat.watch(loop))


def test_a_step_that_keeps_everything_else_waiting_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = WatchedBench(deadline=1.0)

        async def loop() -> None:
            await asyncio.sleep(0)
            bench.keep_everything_waiting(3)
            await asyncio.sleep(0)

        await bench.heartbeat.watch(loop)
        assert bench.sample("loop_errors_total") == 1

    asyncio.run(scenario())
    assert "loop worker kept everything else waiting for 3.0s" in caplog.text


@pytest.mark.parametrize(("seconds", "errors", "since"), [(5.0, 0, 0.0), (5.1, 1, None)])
def test_a_timed_iteration_past_its_deadline_is_an_error(seconds: float, errors: int, since: float | None) -> None:
    bench = WatchedBench(deadline=5.0)
    bench.heartbeat.timed(seconds)
    assert bench.sample("loop_errors_total") == errors
    assert bench.sample("loop_duration_seconds_sum") == seconds
    assert bench.heartbeat.seconds_since() == since


def test_loops_are_replaced_while_they_run() -> None:
    """One with another interval starts anew, one that is as before goes on, one that is gone is no fault."""
    clock, metrics, times = ManualClock(), Metrics(), dict[str, list[float]]()
    supervisor = LoopSupervisor(clock=clock, random=Random(1), metrics=metrics)

    def loop(name: str, interval: float) -> Loop:
        async def iterate() -> None:
            times.setdefault(name, []).append(clock.monotonic())

        return Loop(name, iterate, interval, deadline=5)

    for each in (loop("same", 10), loop("faster", 10), loop("gone", 10)):
        supervisor.add(each)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(supervisor.run())
            await clock.advance(15)
            supervisor.replace(["same", "faster", "gone"], [loop("same", 10), loop("faster", 4), loop("new", 10)])
            await clock.advance(10)
            running.cancel()

    asyncio.run(run())
    assert times == {"same": [0, 10, 20], "faster": [0, 10, 15, 19, 23], "gone": [0, 10], "new": [15, 25]}
    assert supervisor.check(missed=1) == ""
    name = "loop_last_success_timestamp_seconds"
    assert metrics.registry.get_sample_value(name, {"loop": "gone"}) is None
