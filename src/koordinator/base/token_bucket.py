"""A token bucket that nobody waits for: who gets no token does without, or comes again."""

from __future__ import annotations

from koordinator.base.clock import Clock


class TokenBucket:
    """Full at the start. A rate of 0 gives the burst and no more."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        """Amounts below 0 count as 0."""
        self._clock = clock
        self._per_second = max(per_second, 0.0)
        self._burst = float(max(burst, 0))
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def take(self) -> bool:
        """Whether there was a token."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
