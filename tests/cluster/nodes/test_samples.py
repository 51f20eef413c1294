"""Windows over the ring of samples, compared with a naive version."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.nodes.population import SampleRing

_INTERVAL = 15.0
_SLOTS = 10

series = st.lists(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=3, max_size=3), min_size=1, max_size=40)


def _ring(samples: list[list[float | None]]) -> SampleRing:
    ring = SampleRing(_SLOTS, rows=1)
    for index, moment in enumerate(samples):
        rows = np.array([row for row, value in enumerate(moment) if value is not None], dtype=np.int64)
        values = np.array([value for value in moment if value is not None], dtype=np.float64)
        ring.append(index * _INTERVAL, rows, values, values * 1000)
    return ring


def _naive(samples: list[list[float | None]], row: int, start: float, end: float) -> list[tuple[float, float]]:
    kept = list(enumerate(samples))[-_SLOTS:]
    points = [(index * _INTERVAL, moment[row]) for index, moment in kept]
    return [(time, value) for time, value in points if value is not None and start <= time <= end]


@given(samples=series, start=st.integers(0, 40), length=st.integers(0, 40))
def test_window_statistics_are_those_of_the_samples_in_it(
    samples: list[list[float | None]], start: int, length: int
) -> None:
    since, until = start * _INTERVAL, (start + length) * _INTERVAL
    window = _ring(samples).window(np.arange(3), since, until)
    for row in range(3):
        points = _naive(samples, row, since, until)
        values = sorted(value for _, value in points)
        expected = {
            "count": len(values),
            "avg": sum(values) / len(values) if values else math.nan,
            "p90": values[max(len(values) * 90 // 100 - 1, 0)] if values else math.nan,
            "p50": values[max(len(values) * 50 // 100 - 1, 0)] if values else math.nan,
            "span": points[-1][0] - points[0][0] if points else math.nan,
        }
        found = {
            "count": window.counts()[row],
            "avg": window.averages()[0][row],
            "p90": window.percentiles(90)[0][row],
            "p50": window.percentiles(50)[0][row],
            "span": window.spans()[row],
        }
        assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [(1, 50, 1), (1, 99, 1), (2, 50, 1), (3, 90, 2), (10, 50, 5), (10, 90, 9), (10, 95, 9), (20, 95, 19), (99, 99, 98)],
)
def test_percentile_is_the_element_at_the_cut_rank(count: int, percent: int, rank: int) -> None:
    ring = SampleRing(count)
    for value in range(1, count + 1):
        ring.append(float(value), np.array([0]), np.array([float(value)]), np.array([0.0]))
    assert ring.window(np.array([0]), 0, count).percentiles(percent)[0][0] == rank


def test_a_row_that_was_never_sampled_is_absent() -> None:
    ring = _ring([[1.0, None, None]])
    assert ring.window(np.array([500]), 0, 100).counts()[0] == 0


def test_forgotten_samples_do_not_reach_the_next_owner_of_the_row() -> None:
    ring = _ring([[1.0, 2.0, 3.0]])
    ring.forget(1)
    assert ring.window(np.arange(3), 0, 100).counts().tolist() == [1, 0, 1]
