"""How fast an autoscaler follows its recommendations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.controllers.autoscaler.scaling_rules import History, Moment, Normalized, normalize
from koordinator.cluster.controllers.autoscaler.types import (
    AutoscalerBehavior,
    AutoscalerSpec,
    ScalingPolicy,
    ScalingRules,
)
from tests.cluster.controllers.objects import NOW, ago


def _rules(*policies: tuple[str, int, int], window: int = 0, select: str = "Max") -> ScalingRules:
    made = [ScalingPolicy(type=kind, value=value, period_seconds=period) for kind, value, period in policies]
    return ScalingRules(stabilization_window_seconds=window, select_policy=select, policies=made)


_ANY = _rules(("Percent", 1000, 15), ("Pods", 1000, 15))


def _normalize(
    current: int,
    desired: int,
    history: History | None = None,
    *,
    up: ScalingRules | None = None,
    down: ScalingRules | None = None,
    **spec: Any,
) -> Normalized:
    behavior = None
    if up is not None or down is not None:
        behavior = AutoscalerBehavior(scale_up=up or _ANY, scale_down=down or _ANY)
    given = AutoscalerSpec(behavior=behavior, **{"min_replicas": 2, "max_replicas": 20, **spec})
    return normalize(given, current, desired, history or History(), NOW)


@pytest.mark.parametrize(
    ("current", "desired", "replicas", "limited"),
    [
        (3, 5, 5, "DesiredWithinRange"),
        (1, 9, 4, "ScaleUpLimit"),
        (5, 30, 10, "ScaleUpLimit"),
        (15, 30, 20, "TooManyReplicas"),
        (5, 1, 2, "TooFewReplicas"),
        (5, 5, 5, "DesiredWithinRange"),
    ],
)
def test_without_a_behavior_one_step_doubles_at_most(current: int, desired: int, replicas: int, limited: str) -> None:
    found = _normalize(current, desired)
    assert (found.replicas, found.limited[0], found.is_limited) == (replicas, limited, replicas != desired)


def test_without_a_behavior_the_highest_recommendation_of_five_minutes_holds() -> None:
    history = History(recommended=(Moment(ago(310), 19), Moment(ago(290), 9), Moment(ago(10), 4)))
    found = _normalize(10, 3, history)
    assert (found.replicas, found.able[0]) == (9, "ScaleDownStabilized")
    assert [each.replicas for each in found.history.recommended] == [9, 4, 3]


def test_a_window_upwards_takes_the_lowest_recommendation() -> None:
    history = History(recommended=(Moment(ago(70), 3), Moment(ago(50), 6)))
    found = _normalize(4, 9, history, up=_rules(("Pods", 100, 15), window=60))
    assert (found.replicas, found.able[0]) == (6, "ScaleUpStabilized")


def test_a_behavior_without_a_window_downwards_has_that_of_five_minutes() -> None:
    down = ScalingRules(policies=[ScalingPolicy(type="Percent", value=100, period_seconds=15)])
    history = History(recommended=(Moment(ago(290), 8),))
    assert _normalize(10, 3, history, down=down).replicas == 8


@pytest.mark.parametrize(("select", "up", "down"), [("Max", 15, 5), ("Min", 12, 8), ("Disabled", 10, 10)])
def test_the_policy_that_is_selected_bounds_a_step(select: str, up: int, down: int) -> None:
    rules = _rules(("Percent", 50, 60), ("Pods", 2, 60), select=select)
    grown, shrunk = _normalize(10, 19, up=rules), _normalize(10, 2, down=rules)
    assert (grown.replicas, grown.limited[0]) == (up, "ScaleUpLimit")
    assert (shrunk.replicas, shrunk.limited[0]) == (down, "ScaleDownLimit")


def test_what_was_added_in_the_period_counts_against_the_policy() -> None:
    rules = _rules(("Pods", 4, 60))
    history = History(added=(Moment(ago(70), 4), Moment(ago(30), 3)))
    assert _normalize(10, 19, history, up=rules).replicas == 11
    assert _normalize(10, 2, History(removed=(Moment(ago(30), 1),)), down=rules).replicas == 7


def test_a_rescale_is_remembered_for_the_longest_period() -> None:
    behavior = AutoscalerBehavior(scale_up=_rules(("Pods", 4, 60), ("Pods", 9, 120)), scale_down=_ANY)
    history = History(added=(Moment(ago(130), 1), Moment(ago(110), 2)))
    after = history.rescaled(behavior, 3, 6, NOW)
    assert [each.replicas for each in after.added] == [2, 3]
    assert [each.replicas for each in after.rescaled(behavior, 6, 5, NOW).removed] == [1]
    assert history.rescaled(None, 3, 6, NOW) == history


_RULES = st.builds(
    lambda policies, window, select: _rules(*policies, window=window, select=select),
    st.lists(
        st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 100), st.integers(1, 100)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 200),
    st.sampled_from(["Max", "Min", "Disabled"]),
)
_MOMENTS = st.lists(st.builds(lambda s, n: Moment(ago(s), n), st.integers(0, 400), st.integers(1, 30)), max_size=5)


@given(st.none() | st.tuples(_RULES, _RULES), st.integers(2, 20), st.integers(0, 50), _MOMENTS, _MOMENTS, _MOMENTS)
def test_the_bounds_hold_and_no_step_goes_the_other_way(
    rules: tuple[ScalingRules, ScalingRules] | None,
    current: int,
    desired: int,
    recommended: list[Moment],
    added: list[Moment],
    removed: list[Moment],
) -> None:
    up, down = rules or (None, None)
    history = History(tuple(recommended), tuple(added), tuple(removed))
    found = _normalize(current, desired, history, up=up, down=down)
    assert 2 <= found.replicas <= 20
    highest = max([desired, *(each.replicas for each in recommended)])
    if rules is not None:
        assert (found.replicas > current) <= (desired > current)
    if highest < current:
        assert found.replicas <= current
    assert all(NOW - each.at <= timedelta(seconds=400) for each in found.history.recommended)
