"""The machine's clocks."""

from __future__ import annotations

import sys
import time

import pytest

from koordinator.base.clock import SystemClock


@pytest.mark.skipif(sys.platform != "linux", reason="the clock that counts suspension is Linux's")
def test_intervals_include_the_time_that_the_machine_was_suspended_for() -> None:
    """So that a lease has run out for a leader whose machine was asleep."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    read = SystemClock().monotonic()
    assert before <= read <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_intervals_never_run_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
