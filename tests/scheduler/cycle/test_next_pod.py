"""A plugin may name the pod that is tried next."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.scheduler.engine.framework_hooks import NextPodPlugin
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate


class OutOfTurn(NextPodPlugin):
    """Wants the pod ``wanted`` to be tried before all others, once it is there."""

    name = "OutOfTurn"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.wanted: str | None = None
        self.fails = False

    def next_pod(self) -> str | None:
        if self.fails:
            raise RuntimeError("no idea")
        return self.wanted


def out_of_turn(wanted: str | None, *, fails: bool = False) -> list[str]:
    """The order in which three pods are bound, of which the first has the highest priority."""

    def profile(view: ClusterView) -> Profile:
        base = make_profile(view)
        plugin = OutOfTurn(None, view)
        plugin.wanted, plugin.fails = wanted, fails
        return Profile(base.scheduler_name, {**base.plugins, plugin.name: plugin}, base.order)

    async def story(fixture: RunningScheduler) -> None:
        for number, name in enumerate("abc"):
            fixture.api.store(make_pod(name, priority=9 - number))
        fixture.api.store(make_node("n"))

    return [name for name, _ in simulate(story, profile=profile).api.bindings]


def test_a_plugin_may_name_the_next_pod() -> None:
    assert out_of_turn("uid-c") == ["c", "a", "b"]


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_response_the_queue_decides(fails: bool) -> None:
    assert out_of_turn("uid-unknown", fails=fails) == ["a", "b", "c"]
