"""Plugins for which time alone makes nodes pass are queried when that is, and what has become of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest

from koordinator.base.clock import ManualClock
from koordinator.scheduler.cycle.loop import TimeEvents
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import EventHandler, Plugin
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugin_errors import PluginErrors


class Ticking(EventHandler, Plugin):
    """Has something to tell at ``at``."""

    name = "Ticking"

    def __init__(self, view: ClusterView, at: float | None) -> None:
        super().__init__(None, view)
        self.at = at

    def next_time_event(self) -> float | None:
        return self.at

    def time_events(self, now: datetime) -> Sequence[ClusterEvent]:
        self.at = None
        return [ClusterEvent("Tick")]


class Broken(Ticking):
    name = "Broken"

    def next_time_event(self) -> float | None:
        raise ZeroDivisionError


class Silent(EventHandler, Plugin):
    name = "Silent"


class Story:
    """Plugins that have something to tell so many seconds from now."""

    def __init__(self, *kinds: type[Ticking], after: float | None = 5.0) -> None:
        self.clock = ManualClock()
        view = ClusterView(NodeColumns())
        at = self.clock.now().timestamp() + after if after is not None else None
        plugins: list[Plugin] = [*(kind(view, at) for kind in kinds), Silent(None, view)]
        profile = Profile("koord-scheduler", {plugin.name: plugin for plugin in plugins}, PluginOrder())
        self.notified: list[str] = []
        self.failures: list[tuple[str, str]] = []
        errors = PluginErrors(self.clock.monotonic, lambda plugin, point: self.failures.append((plugin, point)))
        self.passing = TimeEvents([profile], self.clock, lambda event: self.notified.append(event.kind), errors)

    def announce_after(self, seconds: float) -> list[str]:
        asyncio.run(self.clock.advance(seconds))
        self.passing.announce()
        return self.notified


def test_nothing_is_reported_before_its_time() -> None:
    assert Story(Ticking).announce_after(4.9) == []


def test_what_is_due_is_reported_once() -> None:
    story = Story(Ticking)
    assert story.announce_after(5) == ["Tick"]
    assert story.announce_after(5) == ["Tick"]


@pytest.mark.parametrize(("after", "expected"), [(5.0, 5.0), (None, None)])
def test_the_next_deadline_is_the_earliest(after: float | None, expected: float | None) -> None:
    assert Story(Ticking, after=after).passing.next_deadline() == expected


def test_a_plugin_that_fails_keeps_no_other_from_telling() -> None:
    story = Story(Broken, Ticking)
    assert story.announce_after(5) == ["Tick"]
    assert story.passing.next_deadline() is None
    assert story.failures == [("Broken", "next_time_event")] * 2
