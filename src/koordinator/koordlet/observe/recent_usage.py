"""What is used now, and what was used on the mean of some seconds: the present out of the usage table, the past out of
the metric cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from koordinator.base.clock import Clock
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache, Samples
from koordinator.koordlet.observe.usage_table import LATEST_INTERVALS, CgroupRow, UsageTable


class Present(NamedTuple):
    """The seconds from which on what was measured counts as the present usage: two of its intervals."""

    since: float
    memory_since: float

    def cpu(self, row: CgroupRow | None) -> float | None:
        """Cores."""
        return row.cpu if row is not None and row.cpu_at >= self.since else None

    def throttled(self, row: CgroupRow | None) -> float | None:
        return row.throttled if row is not None and row.throttled_at >= self.since else None

    def memory(self, row: CgroupRow | None) -> float | None:
        """Bytes without page cache."""
        return float(row.memory.usage) if row is not None and row.memory_at >= self.memory_since else None


class RecentUsage:
    def __init__(self, table: UsageTable, cache: RingMetricCache, clock: Clock) -> None:
        self.table = table
        self._cache = cache
        self._clock = clock

    @property
    def interval(self) -> float:
        """Seconds between two rounds of measuring."""
        return self.table.interval

    @property
    def is_due(self) -> bool:
        """Whether the next round of measuring should have been by now."""
        return self._clock.monotonic() > self.table.at + self.table.interval

    def present(self) -> Present:
        now = self._clock.monotonic()
        table = self.table
        return Present(now - LATEST_INTERVALS * table.interval, now - LATEST_INTERVALS * table.memory_interval)

    def average(self, kind: MetricKind, seconds: float, **labels: str) -> float | None:
        """The mean over the last seconds."""
        samples = self.samples(kind, seconds, **labels)
        return samples.average() if samples else None

    def averages(self, kind: MetricKind, seconds: float, values: Iterable[str]) -> list[float]:
        """The means over the last seconds of those with each of the values of the kind's one label; those without
        samples are left out."""
        start, end = self._window(seconds)
        return self._cache.averages(kind, start, end, values)

    def samples(self, kind: MetricKind, seconds: float, **labels: str) -> Samples:
        """Those of the last seconds."""
        start, end = self._window(seconds)
        return self._cache.select(kind, start, end, **labels)

    def _window(self, seconds: float) -> tuple[int, int]:
        now = round(self._clock.now().timestamp() * 1000)
        return now - round(seconds * 1000), now
