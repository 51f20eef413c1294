"""How soon a pod is changed again."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.base.clock import ManualClock
from koordinator.manager.colocation_profile.controller import HandledPods


def pass_time(clock: ManualClock, seconds: float) -> None:
    asyncio.run(clock.advance(seconds))


def test_a_pod_is_handled_for_a_while() -> None:
    clock = ManualClock()
    handled = HandledPods(clock, keep=300, clean=600)
    handled.add("7", "uid")
    pass_time(clock, 299)
    assert handled.has("7", "uid")
    pass_time(clock, 1)
    assert not handled.has("7", "uid")


def test_another_version_of_the_profile_is_another_thing() -> None:
    handled = HandledPods(ManualClock(), keep=300, clean=600)
    handled.add("7", "uid")
    assert not handled.has("8", "uid")


def test_without_a_duration_it_is_handled_for_ever() -> None:
    clock = ManualClock()
    handled = HandledPods(clock, keep=0, clean=600)
    handled.add("7", "uid")
    pass_time(clock, 10**6)
    assert handled.has("7", "uid")


@pytest.mark.parametrize(
    ("after", "known", "left"), [(599, (), 1), (600, (), 0), (600, ("uid",), 1), (700, ("uid",), 0)]
)
def test_what_is_gone_or_old_is_forgotten_in_time(after: float, known: tuple[str, ...], left: int) -> None:
    clock = ManualClock()
    handled = HandledPods(clock, keep=650, clean=600)
    handled.add("7", "uid")
    pass_time(clock, after)
    handled.clean(known)
    assert len(handled) == left
