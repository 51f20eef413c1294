"""Simulated time runs with the real clock, only faster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.rotation import SimulatedTime

_START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def test_at_speed_one_it_is_the_real_time() -> None:
    clock = ManualClock(_START)
    time = SimulatedTime(clock)
    asyncio.run(clock.advance(90))
    assert time.now() == _START.timestamp() + 90


def test_it_runs_speed_times_as_fast() -> None:
    clock = ManualClock(_START)
    time = SimulatedTime(clock, speed=60)
    asyncio.run(clock.advance(2))
    assert (time.now(), time.real(120)) == (_START.timestamp() + 120, 2)


def test_a_day_can_start_at_any_hour() -> None:
    time = SimulatedTime(ManualClock(_START), start_hour=6.5)
    assert datetime.fromtimestamp(time.now(), UTC) == datetime(2026, 3, 1, 6, 30, tzinfo=UTC)


def test_a_moment_of_the_real_clock_lies_as_far_back_as_simulated_time_has_run() -> None:
    clock = ManualClock(_START)
    time = SimulatedTime(clock, speed=60)
    assert time.of(_START - timedelta(seconds=5)) == _START.timestamp() - 300


def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    clock = ManualClock(_START)
    time = SimulatedTime(clock)
    clock.set_wall(_START + timedelta(hours=3))
    assert time.now() == _START.timestamp()
