"""The metric cache in memory: queries, the budget, clocks that step, and a plain list of samples as the oracle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.observe.metric_cache.kinds import (
    HOST_APPLICATION_MEMORY_USAGE,
    NODE_CPU_USAGE,
    NODE_MEMORY_USAGE,
    POD_CPU_USAGE,
    Series,
)
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache, Samples

MINUTE = Retention(interval=1, duration=60)
GENEROUS = 1 << 30
CPU = NODE_CPU_USAGE.series()
MEMORY = NODE_MEMORY_USAGE.series()


def cache(budget: int = GENEROUS, retention: Retention = MINUTE) -> RingMetricCache:
    return RingMetricCache({"node": retention, "pods": retention}, budget)


def pod(name: str) -> Series:
    return POD_CPU_USAGE.series(pod_uid=name)


def values(store: RingMetricCache, start: int = 0, end: int = 10**15) -> list[float]:
    return list(store.select(NODE_CPU_USAGE, start, end).values)


def test_a_window_has_both_of_its_ends() -> None:
    store = cache()
    for second in range(5):
        store.append(second * 1000, {CPU: second, MEMORY: 10.0 * second})
    samples = store.select(NODE_CPU_USAGE, 1000, 3000)
    assert (list(samples.times), list(samples.values)) == ([1000, 2000, 3000], [1, 2, 3])
    assert samples.duration() == 2.0
    assert values(store, 1001, 1999) == []


def test_figures_of_samples() -> None:
    samples = Samples([1, 2, 3, 4], [4.0, 1.0, 3.0, 2.0])
    assert (samples.average(), samples.percentile(50), samples.percentile(99)) == (2.5, 2.0, 3.0)
    assert not Samples([], [])
    assert Samples([], []).duration() == 0


@pytest.mark.parametrize("n", range(1, 301))
def test_the_rank_of_a_percentile(n: int) -> None:
    """As the original: the element at floor(n * p) - 1 of the ascending order, counted from 0."""
    samples = Samples(range(n), [float(value) for value in range(n)])
    for percent in (50, 90, 95, 99):
        assert samples.percentile(percent) == max(n * percent // 100 - 1, 0)


def test_labels_that_a_kind_has_not() -> None:
    with pytest.raises(ValueError, match=r"metric pod_cpu_usage has the labels \['pod_uid'\], not \['node'\]"):
        POD_CPU_USAGE.series(node="a")
    with pytest.raises(ValueError, match="pod_cpu_usage"):
        POD_CPU_USAGE.series()
    with pytest.raises(ValueError, match="pod_cpu_usage"):
        cache().select(POD_CPU_USAGE, 0, 1, node="a")


def test_a_group_that_nothing_keeps() -> None:
    with pytest.raises(KeyError, match="memory"):
        cache().append(0, {HOST_APPLICATION_MEMORY_USAGE.series(host_app_name="a"): 1.0})
    with pytest.raises(ValueError, match="one round are of one group"):
        cache().append(0, {CPU: 1.0, pod("a"): 1.0})


def test_what_is_measured_again_at_the_same_time_replaces_what_was_there() -> None:
    store = cache()
    store.append(1000, {CPU: 1.0})
    store.append(1000, {MEMORY: 5.0, CPU: 2.0})
    assert values(store) == [2.0]
    assert list(store.select(NODE_MEMORY_USAGE, 0, 2000).values) == [5.0]


def test_old_samples_make_room_for_new_ones() -> None:
    store = cache()
    for second in range(1000):
        store.append(second * 1000, {CPU: float(second)})
    assert values(store) == [float(second) for second in range(939, 1000)]


def test_a_series_that_is_not_measured_any_more_vanishes_with_its_samples() -> None:
    store = cache()
    for second in range(200):
        store.append(second * 1000, {pod("old" if second < 30 else "new"): 1.0})
    assert store.series_count == 1
    assert len(store.select(POD_CPU_USAGE, 0, 10**9, pod_uid="old")) == 0


def test_a_clock_that_is_set_back_takes_what_is_to_come_with_it() -> None:
    store = cache()
    for at in (1000, 2000, 3000, 2500, 3500):
        store.append(at, {CPU: float(at)})
    assert values(store) == [1000, 2000, 2500, 3500]
    store.append(10, {CPU: 1.0})
    assert values(store) == [1.0]


def test_a_clock_that_is_set_ahead_leaves_a_gap() -> None:
    store = cache()
    store.append(1000, {CPU: 1.0})
    store.append(10**12, {CPU: 2.0})
    assert values(store) == [1.0, 2.0]
    assert values(store, 10**12 - 1000) == [2.0]


def test_the_budget_costs_resolution_and_not_the_window() -> None:
    store = cache(budget=61 * 8 * 20)
    pods = {pod(str(number)): float(number) for number in range(30)}
    for second in range(120):
        store.append(second * 1000, {CPU: 1.0})
        store.append(second * 1000, pods)
    assert store.size_bytes <= 61 * 8 * 20
    assert store.rejected_samples == 0
    samples = store.select(POD_CPU_USAGE, 0, 10**9, pod_uid="7")
    assert set(samples.values) == {7.0}
    assert samples.times[-1] == 119000
    assert samples.duration() >= 55


def test_what_never_fits_is_counted() -> None:
    store = cache(budget=(16 + 61 + 61) * 8 + 3 * 16 * 8)
    store.append(0, {pod(str(number)): 1.0 for number in range(100)})
    assert store.rejected_samples > 0
    assert store.size_bytes <= (16 + 61 + 61) * 8 + 3 * 16 * 8


@given(
    rounds=st.lists(
        st.tuples(st.integers(-3, 5), st.dictionaries(st.sampled_from("abc"), st.floats(0, 100), min_size=1)),
        max_size=60,
    ),
    start=st.integers(0, 100),
    length=st.integers(0, 100),
)
def test_as_a_list_of_samples_would_respond(
    rounds: list[tuple[int, dict[str, float]]], start: int, length: int
) -> None:
    store = cache(retention=Retention(interval=1, duration=100))
    expected: dict[str, dict[int, float]] = {name: {} for name in "abc"}
    at = 10
    for step, samples in rounds:
        at = max(at + step, 0)
        store.append(at, {pod(name): value for name, value in samples.items()})
        for name in expected:
            expected[name] = {time: value for time, value in expected[name].items() if time <= at}
        for name, value in samples.items():
            expected[name][at] = value
    for name, all_samples in expected.items():
        wanted = {time: value for time, value in all_samples.items() if start <= time <= start + length}
        response = store.select(POD_CPU_USAGE, start, start + length, pod_uid=name)
        assert dict(zip(response.times, response.values, strict=True)) == wanted
        assert not any(math.isnan(value) for value in response.values)


def test_memory_stays_flat_over_an_hour_of_pods_that_come_and_go() -> None:
    store = cache(retention=Retention(interval=1, duration=300))
    sizes = []
    for second in range(3600):
        alive = range(second // 10, second // 10 + 20)
        store.append(second * 1000, {POD_CPU_USAGE.series(pod_uid=str(number)): 1.0 for number in alive})
        sizes.append(store.size_bytes)
    assert max(sizes[1800:]) <= max(sizes[:1800])
    assert store.series_count < 100
