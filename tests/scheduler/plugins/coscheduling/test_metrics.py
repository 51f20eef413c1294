"""The ranges of the label ``job_size``, and the series of job preemption."""

from __future__ import annotations

import pytest

from koordinator.scheduler.plugins.coscheduling.gangs import GangMetrics, job_size


@pytest.mark.parametrize(
    ("members", "size"),
    [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_sizes_are_given_in_hundreds(members: int, size: str) -> None:
    assert job_size(members) == size


def series(metrics: GangMetrics) -> dict[tuple[str, str], float]:
    """How many attempts to preempt are counted, by job and result."""
    name = "scheduler_job_preemption_duration_seconds"
    return {
        (sample.labels["jobName"], sample.labels["result"]): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == f"{name}_count"
    }


def test_attempts_to_preempt_are_counted_by_job_and_result() -> None:
    metrics = GangMetrics(lambda: ())
    for result in ("preempt success", "preemption not helpful", "preempt success"):
        metrics.preemption_ended("default/g", result, 1.0, 2.0)
    assert series(metrics) == {("default/g", "preempt success"): 2, ("default/g", "preemption not helpful"): 1}


def test_there_are_twenty_buckets_from_a_millisecond_on() -> None:
    metrics = GangMetrics(lambda: ())
    metrics.preemption_ended("default/g", "preempt success", 1.0, 2.0)
    bounds = [
        float(sample.labels["le"])
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == "scheduler_job_preemption_duration_seconds_bucket"
    ]
    assert bounds == [*(0.001 * 2**power for power in range(20)), float("inf")]


def test_a_job_that_tries_no_more_is_forgotten() -> None:
    metrics = GangMetrics(lambda: ())
    metrics.preemption_ended("default/old", "preempt success", 0.0, 0.0)
    metrics.preemption_ended("default/kept", "preempt success", 10.0, 10.0)
    metrics.preemption_ended("default/new", "preempt success", 305.0, 305.0)
    assert {job for job, _ in series(metrics)} == {"default/kept", "default/new"}
