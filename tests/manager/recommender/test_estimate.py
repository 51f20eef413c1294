"""Percentiles into amounts: the vectors of the specification, the bounds, and what history does to the range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.manager.recommender.container_model import ContainerModel, History
from koordinator.manager.recommender.estimate import Estimate, confidence, estimate
from koordinator.manager.recommender.options import EstimateOptions, ModelOptions
from koordinator.manager.recommender.policy import ContainerRules
from koordinator.model.container_sizes import Bounds

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
MIB = 1 << 20


def steady(cores: float = 1.0, memory: float = 1 << 30, minutes: int = 1441) -> ContainerModel:
    """The same usage every minute."""
    model = ContainerModel(ModelOptions())
    for minute in range(minutes):
        model.add_cpu("pod", cores, START + minute * MINUTE, 1.0)
        model.add_memory("pod", memory, START + minute * MINUTE)
    return model


def estimated(model: ContainerModel, rules: ContainerRules | None = None, containers: int = 1) -> dict[str, Estimate]:
    return dict(estimate(model, rules or ContainerRules(), EstimateOptions(), containers))


@pytest.mark.parametrize(("cores", "target"), [(0.5, 582), (1.0, 1174), (0.0005, 25)])
def test_cpu(cores: float, target: int) -> None:
    assert estimated(steady(cores=cores))["cpu"].target == target


@pytest.mark.parametrize(("used", "target"), [(1 << 30, 1182), (50e6, 250)])
def test_memory(used: float, target: int) -> None:
    assert estimated(steady(memory=used))["memory"].target == target * MIB


def test_the_containers_of_a_pod_share_its_minimum() -> None:
    found = estimated(steady(cores=0.0005, memory=50e6), containers=5)
    assert (found["cpu"].target, found["memory"].target) == (5, 61 * MIB)


@pytest.mark.parametrize(("minutes", "factor"), [(6, 289), (721, 3), (1441, 2), (10081, 1.14)])
def test_the_upper_bound_narrows_with_history(minutes: int, factor: float) -> None:
    found = estimated(steady(minutes=minutes))["cpu"]
    assert found.upper == pytest.approx(found.target * factor, rel=0.01)


@pytest.mark.parametrize(("minutes", "factor"), [(6, 0.6), (61, 0.95)])
def test_the_lower_bound_rises_with_history(minutes: int, factor: float) -> None:
    found = estimated(steady(minutes=minutes))["cpu"]
    assert found.lower == pytest.approx(found.target * factor, rel=0.02)


def test_without_history_there_is_no_upper_bound() -> None:
    found = estimated(steady(minutes=1))["cpu"]
    assert (found.target, found.lower, found.upper) == (1174, 25, None)


def test_what_is_allowed_bounds_the_target_and_not_what_is_said_of_it() -> None:
    rules = ContainerRules(bounds={"cpu": Bounds(maximum=500), "memory": Bounds(minimum=2 << 30)})
    found = estimated(steady(), rules)
    assert (found["cpu"].target, found["cpu"].uncapped_target) == (500, 1174)
    assert (found["memory"].target, found["memory"].uncapped_target) == (2 << 30, 1182 * MIB)


def test_only_what_is_controlled_is_estimated() -> None:
    assert estimated(steady(), ContainerRules(controlled=("memory",))).keys() == {"memory"}


def test_a_resource_without_samples_is_left_out() -> None:
    model = ContainerModel(ModelOptions())
    model.add_cpu("pod", 1.0, START, 1.0)
    assert estimated(model).keys() == {"cpu"}


def test_gaps_lower_the_confidence() -> None:
    assert confidence(History(START, START + 2 * DAY, 1440), DAY) == 1.0
    assert confidence(History(START, START + 2 * DAY, 2880), 2 * DAY) == 1.0
    assert confidence(History(), DAY) == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 2000), st.floats(0, 2e12)), min_size=1, max_size=20),
    st.integers(0, 4000) | st.none(),
    st.integers(0, 4000) | st.none(),
)
def test_the_bounds_are_in_order(usage: list[tuple[float, float]], low: int | None, high: int | None) -> None:
    if low is not None and high is not None and high < low:
        low, high = high, low
    model = ContainerModel(ModelOptions())
    for minute, (cores, memory) in enumerate(usage):
        model.add_cpu("pod", cores, START + minute * MINUTE, 1.0)
        model.add_memory("pod", memory, START + minute * MINUTE)
    for found in estimated(model, ContainerRules(bounds={"cpu": Bounds(low, high)})).values():
        assert 0 <= found.lower <= found.target
        assert found.upper is None or found.target <= found.upper
