"""Decaying histograms: as the original's answer, and what holds for any samples."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.model.decaying_histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    Checkpoint,
    CheckpointError,
    DecayingHistogram,
)

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "recorded.json").read_text())
BUCKETS = {"cpu": CPU_BUCKETS, "memory": MEMORY_BUCKETS}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def filled(case: dict[str, Any]) -> DecayingHistogram:
    histogram = DecayingHistogram(BUCKETS[case["kind"]], timedelta(seconds=case["halfLifeSeconds"]))
    for sample in case["samples"] or ():
        histogram.add(sample["value"], datetime.fromisoformat(sample["at"]))
    return histogram


@pytest.mark.parametrize("case", RECORDED, ids=map(str, range(len(RECORDED))))
def test_percentiles_are_the_originals(case: dict[str, Any]) -> None:
    histogram = filled(case)
    assert {fraction: histogram.percentile(float(fraction)) for fraction in case["percentiles"]} == pytest.approx(
        case["percentiles"], rel=1e-12
    )


@pytest.mark.parametrize("case", [case for case in RECORDED if case["checkpoint"]])
def test_checkpoints_are_the_originals(case: dict[str, Any]) -> None:
    checkpoint = filled(case).checkpoint()
    expected = case["checkpoint"]
    assert checkpoint.reference == datetime.fromisoformat(expected["referenceTimestamp"])
    assert checkpoint.total == pytest.approx(expected["totalWeight"], rel=1e-9)
    assert {str(bucket): weight for bucket, weight in checkpoint.weights.items()} == expected["bucketWeights"]


@pytest.mark.parametrize("case", [case for case in RECORDED if case["checkpoint"]])
def test_percentiles_after_a_restore_are_the_originals(case: dict[str, Any]) -> None:
    histogram = DecayingHistogram(BUCKETS[case["kind"]], timedelta(seconds=case["halfLifeSeconds"]))
    histogram.restore(filled(case).checkpoint())
    assert {fraction: histogram.percentile(float(fraction)) for fraction in case["restored"]} == pytest.approx(
        case["restored"], rel=1e-12
    )


def test_the_number_of_buckets() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (158, 205)


def test_what_is_idle_is_predicted_the_end_of_the_first_bucket() -> None:
    for buckets, end in ((CPU_BUCKETS, 0.025), (MEMORY_BUCKETS, 5 << 20)):
        histogram = DecayingHistogram(buckets, DAY)
        histogram.add(0.0, NOON)
        assert histogram.percentile(0.95) == pytest.approx(end)


def test_old_samples_are_forgotten() -> None:
    histogram = DecayingHistogram(CPU_BUCKETS, DAY)
    for _ in range(10):
        histogram.add(8.0, NOON)
    histogram.add(1.0, NOON + 10 * DAY)
    assert histogram.percentile(0.95) < 1.1
    for day in range(11, 400):
        histogram.add(1.0, NOON + day * DAY)
    assert histogram.percentile(1.0) < 1.1


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (Checkpoint(NOON, {158: 1}, 1.0), "bucket 158: there are 0 to 157"),
        (Checkpoint(NOON, {-1: 1}, 1.0), "bucket -1"),
        (Checkpoint(NOON, {1: -1}, 1.0), "has -1 for bucket 1"),
        (Checkpoint(NOON, {1: 1}, -1.0), "totalWeight is -1.0"),
        (Checkpoint(NOON, {1: 1}, float("nan")), "totalWeight is nan"),
    ],
)
def test_a_checkpoint_that_does_not_fit_changes_nothing(checkpoint: Checkpoint, message: str) -> None:
    histogram = DecayingHistogram(CPU_BUCKETS, DAY)
    with pytest.raises(CheckpointError, match=message):
        histogram.restore(checkpoint)
    assert histogram.is_empty


@given(st.lists(st.tuples(st.floats(0, 2000), st.integers(-100, 10**7)), min_size=1, max_size=50))
def test_percentiles_rise_with_the_fraction_and_lie_in_the_range_of_the_samples(
    samples: list[tuple[float, int]],
) -> None:
    histogram = DecayingHistogram(CPU_BUCKETS, DAY)
    for value, seconds in samples:
        histogram.add(value, NOON + timedelta(seconds=seconds))
    responses = [histogram.percentile(fraction) for fraction in (0.0, 0.5, 0.9, 0.95, 1.0)]
    assert responses == sorted(responses)
    largest = max(value for value, _ in samples)
    assert responses[-1] <= max(largest * 1.05 + 0.026, 0.026)
    smallest = min(value for value, _ in samples)
    assert responses[0] >= min(smallest, CPU_BUCKETS.start(CPU_BUCKETS.count - 1))


@given(st.lists(st.tuples(st.floats(0, 2000), st.integers(0, 10**6), st.floats(0.1, 10)), min_size=1, max_size=20))
def test_a_sample_that_is_removed_leaves_the_histogram_as_it_was(samples: list[tuple[float, int, float]]) -> None:
    histogram = DecayingHistogram(CPU_BUCKETS, DAY)
    for value, seconds, weight in samples[1:]:
        histogram.add(value, NOON + timedelta(seconds=seconds), weight)
    before = histogram.copy()
    value, seconds, weight = samples[0]
    histogram.add(value, NOON + timedelta(seconds=seconds), weight)
    histogram.subtract(value, NOON + timedelta(seconds=seconds), weight)
    assert histogram.is_empty == before.is_empty
    after, expected = histogram.checkpoint(), before.checkpoint()
    assert after.total == pytest.approx(expected.total)
    assert after.weights == pytest.approx(expected.weights, abs=1)


@given(st.floats(0, 1e15))
def test_a_value_is_in_its_bucket(value: float) -> None:
    for buckets in (CPU_BUCKETS, MEMORY_BUCKETS):
        bucket = buckets.find(value)
        assert 0 <= bucket < buckets.count
        assert buckets.start(bucket) <= value * (1 + 1e-9)
        if bucket < buckets.count - 1:
            assert value <= buckets.start(bucket + 1) * (1 + 1e-9)
