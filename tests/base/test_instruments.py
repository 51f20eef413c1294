"""Counters and histograms for one event loop say the same as the library's."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from koordinator.base.instruments import Histogram, HistogramSeries, JointSamples
from koordinator.base.metrics import Metrics

# All exact in binary: sums do not depend on their order, nor on how Python adds up.
BUCKETS = (2**-10, 0.25, 1.0, 4.0)


@given(st.lists(st.one_of(st.sampled_from(BUCKETS), st.integers(0, 5).map(float)), max_size=50))
def test_a_histogram_is_written_as_the_librarys_histogram(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    ours_histogram = Histogram("took_seconds", "Time", ("what",), BUCKETS)
    ours.register(ours_histogram)
    histogram = prometheus_client.Histogram("took_seconds", "Time", ("what",), registry=theirs, buckets=BUCKETS)
    for value in values:
        ours_histogram.labels("a").observe(value)
        histogram.labels("a").observe(value)
    if not values:
        histogram.labels("a")
        ours_histogram.labels("a")
    assert generate_latest(ours) == generate_latest(theirs)


def test_samples_beyond_what_is_kept_are_counted() -> None:
    ours_histogram = Histogram("took_seconds", "Time", (), BUCKETS)
    for _ in range(10_000):
        ours_histogram.observe(0.5)
    (family,) = ours_histogram.collect()
    values = {sample.name: sample.value for sample in family.samples if sample.labels.get("le", "+Inf") == "+Inf"}
    assert values == {"took_seconds_bucket": 10_000, "took_seconds_count": 10_000, "took_seconds_sum": 5000}


@pytest.mark.parametrize("rows", [0, 3, 10_000])
def test_joint_samples_are_those_of_each_series(rows: int) -> None:
    first, second = HistogramSeries(BUCKETS), HistogramSeries(BUCKETS)
    joint = JointSamples(first, second)
    second.observe(4.0)
    for _ in range(rows):
        joint.observe((0.25, 2.0))
    assert first.totals() == ([0, rows, rows, rows, rows], 0.25 * rows)
    assert second.totals() == ([0, 0, 0, rows + 1, rows + 1], 2.0 * rows + 4.0)


def test_samples_that_share_a_series_with_frequent_ones_are_bounded_without_a_scrape() -> None:
    shared, often, seldom = (HistogramSeries((1.0,)) for _ in range(3))
    frequent, rare = JointSamples(shared, often), JointSamples(shared, seldom)
    for number in range(40_000):
        frequent.observe((0.5, 0.5))
        if number % 4 == 0:
            rare.observe((2.0, 2.0))
    assert len(seldom._new) + len(rare._rows) <= 4096
    assert shared.totals() == ([40_000, 50_000], 40_000.0)


def test_a_counter_counts_by_labels() -> None:
    metrics = Metrics()
    counter = metrics.counter("things_total", "Things", ("kind",))
    counter.labels("a").inc()
    counter.labels("a").inc(2)
    assert metrics.counter("things_total", "Things", ("kind",)) is counter
    assert 'things_total{kind="a"} 3.0' in metrics.exposition()[0].decode()


def test_a_wrong_number_of_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"things_total has the labels \('kind',\), not \(\)"):
        Metrics().counter("things_total", "Things", ("kind",)).labels()


def test_a_name_means_one_type() -> None:
    metrics = Metrics()
    metrics.counter("things_total", "Things")
    with pytest.raises(ValueError, match="exists with another type"):
        metrics.histogram("things_total", "Things")
