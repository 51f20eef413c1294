"""What is remembered of a container's usage, against the rules of the vertical pod autoscaler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from koordinator.manager.recommender.container_model import CPU_BUCKETS, MEMORY_BUCKETS, ContainerModel
from koordinator.manager.recommender.options import ModelOptions

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
GIB = float(1 << 30)
MIB = float(1 << 20)


@pytest.fixture
def model() -> ContainerModel:
    return ContainerModel(ModelOptions())


def largest(model: ContainerModel) -> float:
    """The end of the highest bucket of memory that is not empty."""
    return model.memory.percentile(1.0)


def test_the_buckets_are_those_of_the_vertical_pod_autoscaler() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (223, 176)
    assert (CPU_BUCKETS.find(0.5), CPU_BUCKETS.find(1.0), CPU_BUCKETS.find(0.0005)) == (66, 80, 0)
    assert (MEMORY_BUCKETS.find(GIB), MEMORY_BUCKETS.find(5e7)) == (37, 4)


def test_a_sample_of_cpu_counts_once(model: ContainerModel) -> None:
    assert model.add_cpu("a", 1.0, START, 1.0)
    assert not model.add_cpu("a", 1.0, START, 1.0)
    assert model.add_cpu("b", 1.0, START, 1.0)
    assert model.history.count == 2


def test_a_negative_sample_does_not_count(model: ContainerModel) -> None:
    assert not model.add_cpu("a", -1.0, START, 1.0)
    assert not model.add_memory("a", -1.0, START)
    assert model.is_empty


def test_a_container_that_requests_more_weighs_more(model: ContainerModel) -> None:
    model.add_cpu("small", 0.1, START, 0.0)
    model.add_cpu("large", 4.0, START, 8.0)
    assert model.cpu.percentile(0.5) > 4.0
    assert model.cpu.percentile(0.01) < 0.2


def test_of_an_interval_the_peak_counts(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START)
    model.add_memory("a", 3 * GIB, START + HOUR)
    model.add_memory("a", 2 * GIB, START + 2 * HOUR)
    assert model.memory.percentile(0.01) == largest(model) > 3 * GIB


def test_a_container_that_used_nothing_at_first_has_a_peak_later(model: ContainerModel) -> None:
    model.add_memory("a", 0.0, START)
    model.add_memory("a", 3 * GIB, START + HOUR)
    assert model.memory.percentile(0.01) == largest(model) > 3 * GIB


def test_the_next_interval_has_a_peak_of_its_own(model: ContainerModel) -> None:
    model.add_memory("a", 3 * GIB, START)
    model.add_memory("a", GIB, START + DAY)
    assert model.memory.percentile(0.01) < 1.1 * GIB
    assert largest(model) > 3 * GIB


def test_an_interval_ends_a_whole_number_of_intervals_after_the_first_sample(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START)
    model.add_memory("a", GIB, START + 3.5 * DAY)
    assert model.replicas["a"].window_end == START + 4 * DAY


def test_a_late_sample_of_memory_is_dropped(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START + HOUR)
    assert not model.add_memory("a", 3 * GIB, START)
    assert largest(model) < 1.1 * GIB


@pytest.mark.parametrize(
    ("used", "needed"), [(GIB, 1.2 * GIB), (100 * MIB, 200 * MIB)], ids=["by ratio", "by a least amount"]
)
def test_a_kill_for_memory_says_that_more_is_needed(model: ContainerModel, used: float, needed: float) -> None:
    assert model.add_oom("a", used, START)
    bucket = MEMORY_BUCKETS.find(needed)
    assert largest(model) == MEMORY_BUCKETS.start(bucket + 1)


def test_a_kill_counts_from_the_usage_where_that_was_above_the_request(model: ContainerModel) -> None:
    model.add_memory("a", 2 * GIB, START)
    model.add_oom("a", GIB, START + HOUR)
    assert model.replicas["a"].oom_peak == pytest.approx(2.4 * GIB)


def test_one_kill_does_not_raise_the_next(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START)
    model.add_oom("a", GIB, START + HOUR)
    model.add_oom("a", GIB, START + 2 * HOUR)
    assert model.replicas["a"].oom_peak == pytest.approx(1.2 * GIB)


def test_a_kill_is_bounded_by_what_is_allowed(model: ContainerModel) -> None:
    model.add_oom("a", 8 * GIB, START, most=GIB)
    assert model.replicas["a"].oom_peak == pytest.approx(1.2 * GIB)


def test_an_old_kill_does_not_count(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START + 10 * DAY)
    assert not model.add_oom("a", 8 * GIB, START)
    assert largest(model) < 1.1 * GIB


def test_a_checkpoint_lacks_the_interval_that_is_not_over(model: ContainerModel) -> None:
    model.add_memory("a", GIB, START)
    model.add_memory("a", 3 * GIB, START + DAY + HOUR)
    assert model.memory_without_open_intervals().percentile(1.0) < 1.1 * GIB
    assert largest(model) > 3 * GIB
