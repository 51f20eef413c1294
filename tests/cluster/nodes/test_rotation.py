"""Turns are spread evenly, none is lost, and nobody gets two for one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.nodes.rotation import Rotation


def _rotation(count: int, interval: float = 10.0) -> Rotation[int]:
    rotation: Rotation[int] = Rotation(interval, 0.0)
    for item in range(count):
        rotation.join(item, at_once=False)
    return rotation


def test_everybody_has_one_turn_each_interval() -> None:
    rotation = _rotation(7)
    turns = Counter(item for tick in range(1, 121) for item in rotation.due(tick * 0.25, 100))
    assert set(turns.values()) == {3}


def test_turns_are_spread_over_the_interval() -> None:
    rotation = _rotation(1000)
    assert {len(rotation.due(tick * 0.25, 100)) for tick in range(1, 41)} == {25}


def test_a_long_pause_brings_one_turn_for_everybody() -> None:
    rotation = _rotation(5)
    assert sorted(rotation.due(1000.0, 100)) == [0, 1, 2, 3, 4]


def test_who_joins_at_once_is_served_first() -> None:
    rotation = _rotation(5)
    rotation.join(9)
    assert rotation.due(0.0, 100) == [9]


def test_who_failed_has_another_turn() -> None:
    rotation = _rotation(5)
    rotation.again(3)
    assert rotation.due(0.0, 100) == [3]


def test_who_has_left_gets_no_turn_even_if_the_last_one_failed() -> None:
    rotation = _rotation(2)
    rotation.again(1)
    rotation.leave(1)
    rotation.again(1)
    assert rotation.due(20.0, 100) == [0]


def test_more_than_can_be_served_waits_for_the_next_call() -> None:
    rotation = _rotation(10)
    served = rotation.due(10.0, 4) + rotation.due(10.0, 4) + rotation.due(10.0, 4)
    assert sorted(served) == list(range(10))


@given(steps=st.lists(st.floats(0, 3), max_size=60), count=st.integers(1, 9), gone=st.integers(0, 8))
def test_turns_are_counted_right_when_somebody_leaves(steps: list[float], count: int, gone: int) -> None:
    rotation = _rotation(count)
    turns: Counter[int] = Counter()
    now = 0.0
    for index, step in enumerate(steps):
        now += step
        turns.update(rotation.due(now, 100))
        if index == 5 and gone < count:
            rotation.leave(gone)
            turns.pop(gone, None)
    stayed = [turns[item] for item in range(count) if item != gone or len(steps) <= 5]
    assert not stayed or max(stayed) - min(stayed) <= 2
