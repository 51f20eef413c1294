"""Completion indexes of an Indexed Job as ordered intervals, which ``status.completedIndexes`` has as ``1,3-5,7``.

A Job may have 100,000 indexes: nothing here takes time or memory for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

Interval = tuple[int, int]
"""The first and the last index."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """Disjoint intervals in ascending order, none of them adjacent to the next."""

    intervals: tuple[Interval, ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Indexes:
        return cls(_merged((index, index) for index in indexes))

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """Read ``1,3-5``; what is not an interval is left out, as is what is not below ``completions``."""
        return cls(_merged(_read(text, completions)))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.intervals)

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes(_merged((*self.intervals, *other.intervals)))

    def __and__(self, other: Indexes) -> Indexes:
        overlaps = (
            (max(first, begin), min(last, end)) for first, last in self.intervals for begin, end in other.intervals
        )
        return Indexes(_merged((first, last) for first, last in overlaps if first <= last))

    def __str__(self) -> str:
        """Two neighbours are written as ``1,2``, three as ``1-3``."""
        return ",".join(map(_written, self.intervals))

    def absent(self, count: int, completions: int) -> list[int]:
        """The first ``count`` indexes below ``completions`` that are not among these."""
        return list(islice(self._gaps(completions), max(0, count)))

    def _gaps(self, completions: int) -> Iterator[int]:
        candidate = 0
        for first, last in self.intervals:
            yield from range(candidate, min(first, completions))
            candidate = last + 1
        yield from range(candidate, completions)


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def _read(text: str, completions: int) -> Iterator[Interval]:
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if _is_number(first) and (_is_number(last) or first == part):
            begin, end = int(first), min(int(last or first), completions - 1)
            if begin <= end:
                yield begin, end


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _written(interval: Interval) -> str:
    first, last = interval
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
