"""A token bucket without waiting: a caller that gets no token skips the operation or retries later."""

from __future__ import annotations

from koordinator.base.clock import Clock


class TokenBucket:
    """Full at the start. With a rate of 0, only the initial burst is available."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        """Negative amounts count as 0."""
        self._clock = clock
        self._per_second = max(per_second, 0.0)
        self._burst = float(max(burst, 0))
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def take(self) -> bool:
        """Take a token. Returns whether there was one."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
