"""Attempts that take too long are complained about."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.scheduler.cycle.measurement import MonitorOptions, SchedulerMonitor
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.fakes import describe, make_pod


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.queue = SchedulingQueue(lambda pod, at: (at,), lambda pod: None, self.clock.monotonic)
        self.monitor = SchedulerMonitor(
            self.queue, SchedulerMetrics(self.metrics), self.clock, MonitorOptions(period=10.0, timeout=30.0)
        )

    def timeouts(self, profile: str = "koord-scheduler") -> float | None:
        return self.metrics.registry.get_sample_value("scheduler_scheduling_timeout", {"profile": profile})


def looking(seconds: float, *, taken: bool = True) -> Watched:
    """What has come of a pod after that time of its attempt (or of its waiting)."""
    watched = Watched()

    async def story() -> None:
        watched.queue.add(describe(make_pod("p")))
        if taken:
            watched.queue.pop()
        running = asyncio.create_task(watched.monitor.run())
        await watched.clock.advance(0)
        await watched.clock.advance(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return watched


def test_an_attempt_in_time_is_no_timeout() -> None:
    assert looking(29).timeouts() is None


def test_an_attempt_that_takes_too_long_counts_at_every_look() -> None:
    assert looking(60).timeouts() == 3


def test_it_is_logged_in_the_original_s_words(caplog: pytest.LogCaptureFixture) -> None:
    looking(40)
    assert caplog.messages == [
        "!!!CRITICAL TIMEOUT!!! scheduling pod default/p(uid-p) took longer (40.000s) than the timeout 30s"
    ]


def test_a_pod_that_waits_for_its_turn_is_not_late() -> None:
    assert looking(60, taken=False).timeouts() is None


def test_the_end_of_a_late_attempt_counts_once_more() -> None:
    watched = Watched()
    watched.monitor.failed(make_pod("p", scheduler="other"), "SchedulerError", watched.clock.monotonic() - 31.0)
    assert watched.timeouts("other") == 1


def test_the_end_of_an_attempt_in_time_does_not_count() -> None:
    watched = Watched()
    watched.monitor.failed(make_pod("p"), "SchedulerError", watched.clock.monotonic() - 30.0)
    assert watched.timeouts() is None
