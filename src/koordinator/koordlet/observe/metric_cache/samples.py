"""What a query of the metric cache gives: samples of a window, and the figures that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind, Series


class MetricCacheError(KoordinatorError):
    """The metric cache does not support the query."""


class NoSamplesError(MetricCacheError):
    """An aggregation of no samples at all."""

    def __init__(self) -> None:
        super().__init__("metric input is empty")


@dataclass(frozen=True, slots=True)
class Samples:
    """Values with the times that they were measured at, in milliseconds since 1970.

    Samples of one series are in the order of time; where a query meets several series, one series follows the other.
    """

    times: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.values)

    def average(self) -> float:
        """The arithmetic mean; NoSamplesError if there are none."""
        return sum(self._some()) / len(self.values)

    def percentile(self, percent: int) -> float:
        """The value at rank ``floor(n * percent / 100)``, counted from 1 in ascending order and at least 1.

        No interpolation: it is a value that was measured. NoSamplesError if there are none.
        """
        rank = max(len(self._some()) * percent // 100, 1)
        return sorted(self.values)[rank - 1]

    def last(self) -> float:
        """The value with the latest time, the first of several; NoSamplesError if there are none."""
        self._some()
        return self.values[max(range(len(self.times)), key=self.times.__getitem__)]

    def duration(self) -> float:
        """Seconds from the first sample to the last."""
        return (self.times[-1] - self.times[0]) / 1000 if self.times else 0.0

    def _some(self) -> Sequence[float]:
        if not self.values:
            raise NoSamplesError
        return self.values


AGGREGATIONS: Final[dict[str, Callable[[Samples], float]]] = {
    "avg": Samples.average,
    "p50": lambda samples: samples.percentile(50),
    "p90": lambda samples: samples.percentile(90),
    "p95": lambda samples: samples.percentile(95),
    "p99": lambda samples: samples.percentile(99),
    "last": Samples.last,
    "count": lambda samples: float(len(samples)),
}
"""The figures by the names that the wire contract has for them."""


class MetricCache(Protocol):
    """A store of recent samples. One round of a collector is one ``append``: all of it, or nothing of it."""

    def append(self, at: int, samples: dict[Series, float]) -> None:
        """Keep samples that were measured at ``at`` (ms); all of one group.

        ConflictingSampleError if one of them is there with that time and another value.
        """
        ...

    def select(self, kind: MetricKind, start: int, end: int, **labels: str) -> Samples:
        """The samples of all series with these labels whose time (ms) is in the window, both ends included.

        ValueError if the kind does not have one of the labels.
        """
        ...

    def averages(self, kind: MetricKind, start: int, end: int, values: Iterable[str]) -> list[float]:
        """The means in the window of many series of a kind with one label, by its values; those without samples are
        left out."""
        ...

    def newest(self, kind: MetricKind) -> int | None:
        """When the group of the kind was measured last (ms); None before the first time."""
        ...
