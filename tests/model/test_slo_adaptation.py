"""The levels of adapted nodes: bounds, hold and recovery times, and what is remembered in the annotation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.adaptive_slo import AdaptiveSLOState, read_state
from koordinator.api.annotations import ADAPTIVE_SLO
from koordinator.api.codec import DecodeError, encode
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.model.slo_adaptation import AdaptiveSLO, Evidence, suffering
from koordinator.model.slo_configuration.configuration_keys import ADAPTIVE_SLO as KEY

START = datetime(2026, 5, 4, tzinfo=UTC)
CALM, UNKNOWN = Evidence(), Evidence(is_known=False)
SUFFERS = Evidence(("cpu-pressure of pod default/web is 40, above 10",))
Look = tuple[float, Evidence]
"""Seconds after the look before, and what there is to see."""


def adaptive(**fields: Any) -> AdaptiveSLO:
    found = AdaptiveSLO.of(msgspec.structs.replace(KEY.defaults, enable=True, **fields))
    assert found is not None
    return found


strategies = st.builds(
    adaptive,
    steps=st.integers(1, 10),
    hold_seconds=st.integers(1, 600),
    recover_seconds=st.integers(1, 1200),
    cpu_suppress_floor_percent=st.integers(0, 100),
    score_floor_percent=st.integers(0, 100),
)
looks = st.lists(
    st.tuples(st.floats(0, 900, allow_nan=False), st.sampled_from((CALM, SUFFERS, UNKNOWN))), min_size=1, max_size=40
)


def stored(state: AdaptiveSLOState | None) -> AdaptiveSLOState | None:
    """As another process reads it."""
    return None if state is None else read_state({ADAPTIVE_SLO: encode(state).decode()})


def played(adaptive: AdaptiveSLO, seen: list[Look]) -> list[tuple[datetime, AdaptiveSLOState | None]]:
    now, state, states = START, None, list[tuple[datetime, AdaptiveSLOState | None]]()
    for seconds, evidence in seen:
        now += timedelta(seconds=seconds)
        state = adaptive.next_state(state, evidence, now)
        states.append((now, state))
    return states


def level(state: AdaptiveSLOState | None) -> int:
    return 0 if state is None else state.level


@given(strategies, looks, st.integers(0, 100))
def test_no_value_leaves_its_bounds(adaptive: AdaptiveSLO, seen: list[Look], configured: int) -> None:
    for _, state in played(adaptive, seen):
        if state is None:
            continue
        assert 0 <= state.level <= adaptive.steps
        assert adaptive.score <= state.score_percent <= 100
        lowered = adaptive.threshold(ResourceThresholdStrategy(cpu_suppress_threshold_percent=configured), state)
        percent = lowered.cpu_suppress_threshold_percent
        assert percent is not None
        assert min(configured, adaptive.cpu_suppress) <= percent <= configured


@given(strategies, looks)
def test_steps_are_single_and_never_two_in_the_hold_time(adaptive: AdaptiveSLO, seen: list[Look]) -> None:
    before, last = 0, None
    for now, state in played(adaptive, seen):
        step = level(state) - before
        assert abs(step) <= 1
        if step:
            assert last is None or now - last >= adaptive.hold
            before, last = level(state), now


@given(strategies, looks, st.data())
def test_a_restart_at_any_moment_changes_nothing(adaptive: AdaptiveSLO, seen: list[Look], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(seen) - 1))
    now, state, states = START, None, list[AdaptiveSLOState | None]()
    for number, (seconds, evidence) in enumerate(seen):
        now += timedelta(seconds=seconds)
        state = adaptive.next_state(stored(state) if number == place else state, evidence, now)
        states.append(state)
    assert states == [each for _, each in played(adaptive, seen)]


@given(strategies, looks)
def test_a_calm_node_comes_back_fully_at_the_moments_that_are_foretold(adaptive: AdaptiveSLO, seen: list[Look]) -> None:
    now, state = played(adaptive, seen)[-1]
    for _ in range(2 * adaptive.steps + 2):
        then = adaptive.next_look(state, now)
        if then is None:
            break
        now, state = then, adaptive.next_state(state, CALM, then)
    assert level(state) == 0
    assert state is None or state.score_percent == 100


@given(strategies, looks, st.floats(0, 900, allow_nan=False))
def test_more_evidence_never_gives_a_lower_level(adaptive: AdaptiveSLO, seen: list[Look], seconds: float) -> None:
    now, state = played(adaptive, seen)[-1]
    now += timedelta(seconds=seconds)
    calm, unknown, suffers = (level(adaptive.next_state(state, each, now)) for each in (CALM, UNKNOWN, SUFFERS))
    assert calm <= unknown <= suffers


@given(strategies, st.lists(st.integers(0, 100), min_size=2, max_size=2))
def test_values_fall_with_the_level_and_reach_the_floor_at_the_last(adaptive: AdaptiveSLO, values: list[int]) -> None:
    configured, floor = values
    states = [AdaptiveSLOState(level=each, steps=adaptive.steps) for each in range(adaptive.steps + 1)]
    lowered = [adaptive.lowered(configured, floor, state) for state in states]
    assert lowered == sorted(lowered, reverse=True)
    assert (lowered[0], lowered[-1]) == (configured, min(configured, floor))


def test_a_node_that_suffers_goes_down_step_by_step_and_comes_back() -> None:
    given = adaptive(steps=2, hold_seconds=300, recover_seconds=900)
    minutes = [(60.0, SUFFERS)] * 12 + [(60.0, CALM)] * 60
    levels = [level(state) for _, state in played(given, minutes)]
    # A step at once, the next after five minutes. Suffering ends after twelve: the steps back follow after 31 and 46.
    assert levels.index(2) - levels.index(1) == 5
    assert levels[-1] == 0
    assert (levels.count(1), levels.count(2)) == (5 + 15, 6 + 19)


def test_a_node_is_written_once_in_the_hold_time_however_often_it_reports() -> None:
    states = [state for _, state in played(adaptive(steps=1, hold_seconds=300), [(60.0, SUFFERS)] * 61)]
    assert len({encode(state) for state in states}) <= 60 * 60 / 300 + 1


def test_a_node_without_reports_stays_where_it_is() -> None:
    _, state = played(adaptive(), [(0.0, SUFFERS), *[(900.0, UNKNOWN)] * 20])[-1]
    assert level(state) == 1


def test_a_clock_that_was_set_back_delays_nothing_for_longer_than_the_times_are() -> None:
    given = adaptive(steps=2, hold_seconds=300, recover_seconds=900)
    state = given.next_state(None, SUFFERS, START)
    earlier = START - timedelta(days=30)
    state = given.next_state(state, SUFFERS, earlier)
    assert level(given.next_state(state, SUFFERS, earlier + timedelta(seconds=302))) == 2


def test_fewer_steps_in_the_configuration_hold_at_once() -> None:
    given = adaptive(steps=4)
    _, state = played(given, [(300.0, SUFFERS)] * 4)[-1]
    fewer = replace(given, steps=2).next_state(state, CALM, START + timedelta(seconds=1201))
    assert fewer is not None
    assert (fewer.level, fewer.steps) == (2, 2)


@pytest.mark.parametrize("text", ["", "x", "[]", '{"level": 5, "steps": 2}', '{"level": -1}', '{"scorePercent": 101}'])
def test_a_state_that_cannot_be_is_none(text: str) -> None:
    assert read_state({ADAPTIVE_SLO: text}) is None


def test_what_best_effort_pods_do_to_a_pod_counts() -> None:
    finding = {"indicator": "cpu-pressure", "value": 42.1, "limit": 9.9}
    by_batch = finding | {"suspects": [{"pod": "default/job", "qos": "BE"}]}
    by_another = finding | {"suspects": [{"pod": "default/db", "qos": "LS"}, {"pod": "default/job", "qos": "BE"}]}
    on_the_network = by_batch | {"indicator": "tcp-retransmits"}
    document = {"Object": {"interference": [by_batch, by_another, finding, on_the_network]}}
    assert suffering("default/web", document) == (
        "cpu-pressure of pod default/web is 42.1, above 9.9, with default/job as the suspect",
        "cpu-pressure of pod default/web is 42.1, above 9.9",
    )


@pytest.mark.parametrize("document", [{"Object": 1}, {"Object": {"interference": "much"}}])
def test_extensions_that_cannot_be_read_are_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        suffering("default/web", document)


@pytest.mark.parametrize("document", [{}, {"Object": None}, {"Object": {"a": 1}}])
def test_extensions_that_say_something_else_are_no_evidence(document: dict[str, Any]) -> None:
    assert suffering("default/web", document) == ()


def test_a_long_report_makes_a_short_reason() -> None:
    state = adaptive().next_state(None, Evidence(("x" * 100_000, "y", "z")), START)
    assert state is not None
    assert len(state.reason) < 600
    assert state.reason.endswith("and 2 more")
