"""The client's own limit on requests: ``--kube-api-qps`` and ``--kube-api-burst`` with client-go's meaning."""

from __future__ import annotations

from koordinator.base.clock import Clock


class RateLimiter:
    """A token bucket: ``burst`` requests at once, ``qps`` a second after that, first come, first served.

    ``qps`` of zero or less means no limit. The bucket may go into debt: each request takes the next free moment, so
    that order is kept without a queue and a waiter costs one sleep.
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._interval = 1 / qps if qps > 0 else 0.0
        self._allowance = max(burst, 1) * self._interval
        # The moment at which the bucket is full; a request moves it on by one interval.
        self._full_at = 0.0

    def reserve(self) -> float:
        """Take a token; the seconds to wait before using it."""
        if not self._interval:
            return 0.0
        now = self._clock.monotonic()
        self._full_at = max(self._full_at, now) + self._interval
        return max(0.0, self._full_at - self._allowance - now)

    async def acquire(self) -> None:
        """Wait for a token. A waiter that is cancelled has spent its token all the same."""
        delay = self.reserve()
        if delay > 0:
            await self._clock.sleep(delay)
