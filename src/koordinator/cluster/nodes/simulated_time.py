"""Simulated time: the real clock, run ``speed`` times as fast from the moment of its making.

Usage, run times and measuring windows live in simulated time, so that a day can pass in a minute. What is written to
the API keeps real time, because other programs compare it with their own clocks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from koordinator.base.clock import Clock


class SimulatedTime:
    """Seconds since the epoch (UTC), as floats."""

    def __init__(self, clock: Clock, speed: float = 1.0, start_hour: float | None = None) -> None:
        """``start_hour`` is the hour of the day at which it begins; None means that of the real clock."""
        self._clock = clock
        self._speed = speed
        self._began = clock.monotonic()
        start = clock.now()
        if start_hour is not None:
            midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            start = midnight + timedelta(hours=start_hour)
        self._start = start.timestamp()

    @property
    def speed(self) -> float:
        return self._speed

    def now(self) -> float:
        return self._start + self.elapsed()

    def elapsed(self) -> float:
        """Simulated seconds since the start."""
        return (self._clock.monotonic() - self._began) * self._speed

    def real(self, simulated_seconds: float) -> float:
        """How many real seconds so much simulated time takes."""
        return simulated_seconds / self._speed

    def of(self, moment: datetime) -> float:
        """When a moment of the real clock was, or will be, in simulated time."""
        return self.now() + (moment - self._clock.now()).total_seconds() * self._speed
