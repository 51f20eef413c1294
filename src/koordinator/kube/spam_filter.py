"""A limit on the events of one source about one object, so that a hot loop cannot flood the API server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from koordinator.base.clock import Clock


class SpamFilter:
    """A token bucket per key, client-go's sizes by default; the least recently used keys are forgotten."""

    def __init__(self, clock: Clock, *, burst: int = 25, qps: float = 1 / 300, capacity: int = 4096) -> None:
        self._clock = clock
        self._burst = burst
        self._qps = qps
        self._capacity = capacity
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def allows(self, key: Hashable) -> bool:
        """Take a token of this key, if it has one left."""
        now = self._clock.monotonic()
        tokens, updated = self._buckets.pop(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - updated) * self._qps)
        allowed = tokens >= 1
        self._buckets[key] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._capacity:
            self._buckets.popitem(last=False)
        return allowed
