"""The shape of a day of pods."""

from __future__ import annotations

import itertools
import math

import numpy as np

from benchmarks.daily_pods import arrivals, best_minute, documents, percentile


def test_all_come_within_the_day_in_order() -> None:
    moments = arrivals(1000, 3600.0)
    assert moments.shape == (1000,)
    assert moments[0] >= 0
    assert moments[-1] <= 3600
    assert (np.diff(moments) >= 0).all()


def test_most_come_in_office_hours() -> None:
    hours = np.bincount((arrivals(24_000, 24 * 3600.0) / 3600).astype(int), minlength=24)
    assert 13 <= hours.argmax() <= 16
    assert hours.max() > 5 * hours.min()
    assert hours[8:18].sum() > 0.6 * hours.sum()


def test_pods_have_names_of_their_own_and_end_at_once() -> None:
    pods = list(itertools.islice(documents(6000), 5000, 5010))
    assert [pod["metadata"]["name"] for pod in pods] == [f"pod-{number:06d}" for number in range(5000, 5010)]
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in pods} == {0}


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert math.isnan(percentile([], 0.5))


def test_the_best_minute_counts_bindings_within_sixty_seconds() -> None:
    assert best_minute([0.0, 1.0, 2.0, 100.0, 130.0, 159.0, 160.0]) == round(4 / 60, 1)
    assert best_minute([]) == 0
