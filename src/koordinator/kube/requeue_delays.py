"""How long a work queue delays a failing item: client-go's default rate limiters, for any hashable item."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from koordinator.base.clock import Clock

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class ItemRateLimiter(Protocol[K_contra]):
    """Computes delays per item."""

    def when(self, item: K_contra, /) -> float:
        """Count a failure of the item and return the seconds that it has to wait."""
        ...

    def forget(self, item: K_contra, /) -> None:
        """Reset the item's failures, because it succeeded or was given up."""
        ...

    def retries(self, item: K_contra, /) -> int:
        """Return how often the item has failed."""
        ...


class ExponentialFailureLimiter(Generic[K]):
    """Doubles an item's delay with each failure: 5 ms to 1,000 s by default."""

    def __init__(self, base: float = 0.005, maximum: float = 1000.0) -> None:
        self._base = base
        self._maximum = maximum
        self._failures: dict[K, int] = {}

    def when(self, item: K) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # 2**64 is far above any maximum; a larger exponent would only overflow.
        return min(self._maximum, self._base * 2.0 ** min(failures, 64))

    def forget(self, item: K) -> None:
        self._failures.pop(item, None)

    def retries(self, item: K) -> int:
        return self._failures.get(item, 0)


class BucketLimiter(Generic[K]):
    """One token bucket over all items: 10 a second, bursts of 100, by default."""

    def __init__(self, clock: Clock, qps: float = 10.0, burst: int = 100) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = burst
        self._tokens = float(burst)
        self._updated = clock.monotonic()

    def when(self, item: K) -> float:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._qps) - 1
        self._updated = now
        return max(0.0, -self._tokens / self._qps)

    def forget(self, item: K) -> None:
        """Does nothing: tokens are not returned."""

    def retries(self, item: K) -> int:
        return 0


class MaxOfLimiter(Generic[K]):
    """The strictest of several limiters."""

    def __init__(self, *limiters: ItemRateLimiter[K]) -> None:
        self._limiters = limiters

    def when(self, item: K) -> float:
        return max(limiter.when(item) for limiter in self._limiters)

    def forget(self, item: K) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def retries(self, item: K) -> int:
        return max(limiter.retries(item) for limiter in self._limiters)


def default_controller_limiter(clock: Clock) -> MaxOfLimiter[K]:
    """Return client-go's default: exponential per item, and an overall token bucket."""
    return MaxOfLimiter(ExponentialFailureLimiter[K](), BucketLimiter[K](clock))
