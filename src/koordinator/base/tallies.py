"""Counts and distributions for what happens a thousand times a second, on one event loop.

The library's own take a lock for every sample and walk through the buckets one by one; here a sample is an append, and
samples are sorted into buckets many at a time or when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_KEPT: Final = 4096
Labels = tuple[str, ...]


class Count:
    """One series of a Tally."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Samples:
    """One series of a Distribution."""

    __slots__ = ("_bounds", "_counts", "_new", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self._sum = 0.0
        self._new: list[float] = []

    def observe(self, value: float) -> None:
        new = self._new
        new.append(value)
        if len(new) >= _KEPT:
            self._sort()

    def _sort(self) -> None:
        # A sample that equals a bound belongs to its bucket.
        found = np.searchsorted(self._bounds, self._new)
        self._counts += np.bincount(found, minlength=self._counts.shape[0])
        self._sum += sum(self._new)
        self._new.clear()

    def totals(self) -> tuple[list[int], float]:
        """How many samples are at or below each bound, the last being infinite; and the sum of all samples."""
        self._sort()
        counts: list[int] = np.cumsum(self._counts).tolist()
        return counts, self._sum


class Tally(Collector):
    """A counter; ``labels`` finds or makes a series, ``inc`` counts in the one that has no labels."""

    def __init__(self, name: str, help_text: str, labels: Labels) -> None:
        self._family = name, help_text, labels
        self._series: dict[Labels, Count] = {}
        if not labels:
            self.inc = self.labels().inc

    def labels(self, *values: str) -> Count:
        count = self._series.get(values)
        if count is None:
            count = self._series[_checked(self._family, values)] = Count()
        return count

    def collect(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        family = CounterMetricFamily(name, help_text, labels=labels)
        for values, count in self._series.items():
            family.add_metric(values, count.value)
        return (family,)


class Distribution(Collector):
    """A histogram with fixed upper bounds; ``labels`` and ``observe`` as above."""

    def __init__(self, name: str, help_text: str, labels: Labels, buckets: Sequence[float]) -> None:
        self._family = name, help_text, labels
        self._buckets = buckets
        self._names = [*map(floatToGoString, buckets), "+Inf"]
        self._series: dict[Labels, Samples] = {}
        if not labels:
            self.observe = self.labels().observe

    def labels(self, *values: str) -> Samples:
        samples = self._series.get(values)
        if samples is None:
            samples = self._series[_checked(self._family, values)] = Samples(self._buckets)
        return samples

    def collect(self) -> Iterable[Metric]:
        name, help_text, labels = self._family
        family = HistogramMetricFamily(name, help_text, labels=labels)
        for values, samples in self._series.items():
            counts, total = samples.totals()
            family.add_metric(values, list(zip(self._names, counts, strict=True)), total)
        return (family,)


def _checked(family: tuple[str, str, Labels], values: Labels) -> Labels:
    name, _, labels = family
    if len(values) != len(labels):
        raise ValueError(f"{name} has the labels {labels}, not {values}")
    return values
