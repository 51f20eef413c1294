"""The metric cache in memory: for each group of kinds a ring of rows, for each series a column of fixed size.

All series of a group are measured at once, so that a row needs one time and a sample costs eight bytes. Memory is
bounded by construction: where the columns would exceed the budget, the largest group keeps every second row, which
costs resolution and leaves windows as long as they were. The newest row is always the newest measurement.
"""

from __future__ import annotations

import logging
import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind, Series
from koordinator.koordlet.options import Options

logger = logging.getLogger(__name__)

_VALUE_BYTES: Final = 8
_FEWEST_ROWS: Final = 16
_NODE_SECONDS: Final = 1830.0
"""The longest window of the default policy, and a little."""
_POD_SECONDS: Final = 330.0
"""The window over which pods are averaged, and a little."""
_NAN: Final = math.nan
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Retention:
    """How often a group is measured and for how long samples are kept, in seconds."""

    interval: float
    duration: float

    @property
    def rows(self) -> int:
        return max(math.ceil(self.duration / max(self.interval, 0.001)) + 1, _FEWEST_ROWS)


@dataclass(frozen=True, slots=True)
class Samples:
    """Values in the order of time, with the times that they were measured at, in milliseconds since 1970. Of no samples
    there are no figures: who asks for one looks first whether there are any."""

    times: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.values)

    def average(self) -> float:
        return sum(self.values) / len(self.values)

    def percentile(self, percent: int) -> float:
        """The value at rank ``floor(n * percent / 100)``, counted from 1 in ascending order and at least 1.

        No interpolation: it is a value that was measured.
        """
        rank = max(len(self.values) * percent // 100, 1)
        return sorted(self.values)[rank - 1]

    def duration(self) -> float:
        """Seconds from the first sample to the last."""
        return (self.times[-1] - self.times[0]) / 1000 if self.times else 0.0


class RingMetricCache:
    """A store of recent samples, which one thread uses."""

    def __init__(self, retentions: Mapping[str, Retention], budget_bytes: int) -> None:
        """``retentions`` by group; ``budget_bytes`` is what the samples of all groups may take together."""
        self._groups = {name: _Group(name, retention.rows) for name, retention in retentions.items()}
        self._budget = budget_bytes
        self._followers: list[Callable[[int, Mapping[Series, float]], None]] = []
        self.rejected_samples = 0
        """Samples that were dropped because their series do not fit the budget even at the coarsest resolution."""

    @property
    def size_bytes(self) -> int:
        return sum(group.size_bytes for group in self._groups.values())

    @property
    def series_count(self) -> int:
        return sum(len(group.columns) for group in self._groups.values())

    def append(self, at: int, samples: Mapping[Series, float]) -> None:
        """Keep what a round has measured at ``at`` (ms); all of one group. What was measured at the same time before is
        replaced."""
        if not samples:
            return
        group = self._groups[next(iter(samples)).kind.group]
        if {series.kind.group for series in samples} != {group.name}:
            raise ValueError(f"samples of one round are of one group: {group.name}")
        group.begin_row(at)
        for series in group.write(samples):
            if self._free_space(group):
                group.add(series, samples[series])
            else:
                self.rejected_samples += 1
        for follow in self._followers:
            follow(at, samples)

    def on_append(self, callback: Callable[[int, Mapping[Series, float]], None]) -> None:
        """Call back with each round that is appended. The samples are the callback's to keep, not to change."""
        self._followers.append(callback)

    def select(self, kind: MetricKind, start: int, end: int, **labels: str) -> Samples:
        """The samples of one series whose time (ms) is in the window, both ends included. ValueError unless the labels
        are exactly those of the kind."""
        return self._groups[kind.group].samples(kind.series(**labels), start, end)

    def averages(self, kind: MetricKind, start: int, end: int, values: Iterable[str]) -> list[float]:
        """The means in the window of many series of a kind with one label, by its values; those without samples are
        left out."""
        return self._groups[kind.group].averages([Series(kind, (value,)) for value in values], start, end)

    def newest(self, kind: MetricKind) -> int | None:
        """When the group of the kind was measured last (ms); None before the first time."""
        return self._groups[kind.group].newest

    def _free_space(self, group: _Group) -> bool:
        """Whether one more column of the group fits into the budget, after thinning out what is there."""
        while self.size_bytes + group.capacity * _VALUE_BYTES > self._budget:
            largest = max(self._groups.values(), key=lambda other: other.size_bytes)
            if not largest.thin_out():
                return False
            logger.warning(
                "the metric cache is at its budget of %d bytes: of the group %s every %d. sample is kept from now on",
                self._budget,
                largest.name,
                largest.stride,
            )
        return True


def retentions(options: Options) -> dict[str, Retention]:
    """Of each group of kinds."""
    memory_interval = max(options.memory_interval, options.collect_interval)
    return {
        kinds.NODE: Retention(options.collect_interval, _NODE_SECONDS),
        kinds.PODS: Retention(options.collect_interval, _POD_SECONDS),
        kinds.MEMORY: Retention(memory_interval, _POD_SECONDS),
        kinds.COLD_PAGES: Retention(options.collectors.cold_pages_interval, _NODE_SECONDS),
    }


class _Group:
    """The rows from ``first`` up to ``end`` (numbers that only grow) are there, at their number modulo the capacity."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.columns: dict[Series, array[float]] = {}
        self.stride = 1
        self._written_at: dict[Series, int] = {}
        """The number of the last row that each series has a sample in."""
        self._times = array("q", bytes(8 * capacity))
        self._end = 0
        self._size = 0
        self._rounds_in_row = 0

    @property
    def size_bytes(self) -> int:
        return (len(self.columns) + 1) * self.capacity * _VALUE_BYTES

    @property
    def newest(self) -> int | None:
        """The time of the newest row."""
        return self._time(self._end - 1) if self._size else None

    def begin_row(self, at: int) -> None:
        """Make the row of that time the newest one."""
        self._drop_future(at)
        if self.newest == at:
            return
        self._rounds_in_row += 1
        if self._size and self._rounds_in_row < self.stride:
            # The newest row shows the latest round until the next row begins.
            self._clear(self._end - 1, at)
            return
        self._rounds_in_row = 0
        self._clear(self._end, at)
        self._end += 1
        self._size = min(self._size + 1, self.capacity)
        if self._end % self.capacity == 0:
            self._drop_dead_series()

    def write(self, samples: Mapping[Series, float]) -> list[Series]:
        """Into the newest row; those of the series that have no column."""
        columns, slot = self.columns, (self._end - 1) % self.capacity
        written_at = dict.fromkeys(samples, self._end - 1)
        absent = []
        for series, value in samples.items():
            try:
                columns[series][slot] = value
            except KeyError:
                absent.append(series)
                del written_at[series]
        self._written_at.update(written_at)
        return absent

    def add(self, series: Series, value: float) -> None:
        """A column, with a sample in the newest row."""
        column = self.columns[series] = array("d", [_NAN]) * self.capacity
        column[(self._end - 1) % self.capacity] = value
        self._written_at[series] = self._end - 1

    def samples(self, series: Series, start: int, end: int) -> Samples:
        column = self.columns.get(series)
        if column is None:
            return Samples((), ())
        first, beyond = self._first_row_from(start), self._first_row_from(end + 1)
        times, values = self._slice(self._times, first, beyond), self._slice(column, first, beyond)
        # A sum is a number only if all of its terms are: one pass in C instead of a test of each.
        if math.isnan(sum(values)):
            kept = [(at, value) for at, value in zip(times, values, strict=True) if value == value]
            return Samples([at for at, _ in kept], [value for _, value in kept])
        return Samples(times, values)

    def averages(self, selected: Iterable[Series], start: int, end: int) -> list[float]:
        first, beyond = self._first_row_from(start), self._first_row_from(end + 1)
        found = []
        for series in selected:
            if (column := self.columns.get(series)) is None:
                continue
            values: Sequence[float] = self._slice(column, first, beyond)
            total = sum(values)
            if total != total:
                values = [value for value in values if value == value]
                total = sum(values)
            if values:
                found.append(total / len(values))
        return found

    def thin_out(self) -> bool:
        """Keep every second row, counted from the newest, in half of the memory; False if few are left already."""
        if self.capacity // 2 < _FEWEST_ROWS:
            return False
        self._drop_dead_series()
        capacity = self.capacity // 2
        rows = list(range(self._end - 1, self._end - 1 - self._size, -2))[:capacity][::-1]
        times = array("q", bytes(8 * capacity))
        for number, row in enumerate(rows):
            times[number % capacity] = self._time(row)
        for series, old in self.columns.items():
            column = array("d", [_NAN]) * capacity
            for number, row in enumerate(rows):
                column[number % capacity] = old[row % self.capacity]
            self.columns[series] = column
            self._written_at[series] = len(rows) - 1
        self._times, self.capacity = times, capacity
        self._end = self._size = len(rows)
        self.stride *= 2
        self._rounds_in_row = 0
        return True

    def _first_row_from(self, at: int) -> int:
        """The number of the first row that is not older than ``at``; ``end`` if all are."""
        first, size, capacity = self._end - self._size, self._size, self.capacity
        start = first % capacity
        # Times grow from the oldest row up to the end of the memory, and go on at its beginning.
        behind = min(size, capacity - start)
        row = bisect_left(self._times, at, start, start + behind) - start
        if row == behind and size > behind:
            row += bisect_left(self._times, at, 0, size - behind)
        return first + row

    def _time(self, row: int) -> int:
        return self._times[row % self.capacity]

    def _clear(self, row: int, at: int) -> None:
        slot = row % self.capacity
        self._times[slot] = at
        for column in self.columns.values():
            column[slot] = _NAN

    def _slice(self, column: array[_Number], start: int, stop: int) -> array[_Number]:
        """The values of the rows from ``start`` up to ``stop``."""
        first, last = start % self.capacity, stop % self.capacity
        if start >= stop:
            return column[:0]
        return column[first:last] if first < last else column[first:] + column[:last]

    def _drop_future(self, at: int) -> None:
        """The clock was set back. What has a time that is still to come would be found by no window until then."""
        while self._size and self._time(self._end - 1) > at:
            self._end -= 1
            self._size -= 1
        for series, row in self._written_at.items():
            if row >= self._end:
                self._written_at[series] = self._end - 1

    def _drop_dead_series(self) -> None:
        """Forget series without a sample in any row that is left: pods and containers that have ended."""
        oldest = self._end - self._size
        for series in [series for series, row in self._written_at.items() if row < oldest]:
            del self.columns[series], self._written_at[series]
