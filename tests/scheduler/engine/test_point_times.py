"""How long extension points take is measured, with what came of them."""

from __future__ import annotations

from typing import NoReturn

import pytest

from koordinator.scheduler.engine.binding_points import BindPlugin, PermitPlugin, PreBindPlugin, ReservePlugin
from koordinator.scheduler.engine.framework import PreFilterPlugin, ScorePlugin
from koordinator.scheduler.engine.post_filter import PostFilterPlugin
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import make_pod
from tests.scheduler.recording import one_node, recording
from tests.scheduler.running_scheduler import RunningScheduler, simulate


def points_of(fixture: RunningScheduler) -> dict[tuple[str, str], float]:
    """(extension point, status) -> how many times it was measured."""
    return {
        (sample.labels["extension_point"], sample.labels["status"]): sample.value
        for family in fixture.registry.collect()
        for sample in family.samples
        if sample.name == "scheduler_framework_extension_point_duration_seconds_count"
    }


@pytest.mark.parametrize("bind", ["mine", "by the API"])
def test_every_point_on_the_way_to_a_node_is_measured(bind: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"bind": bind, "pre-bind": "yes"}))
        await fixture.until_idle()
        fixture.api.store(make_pod("p", node="a"))

    points = points_of(simulate(story, one_node, recording))
    assert points == {
        (point, "Success"): 1 for point in ("PreFilter", "PreScore", "Reserve", "Permit", "PreBind", "Bind", "PostBind")
    }


@pytest.mark.parametrize(("permit", "status"), [("wait", "Wait"), ("refuse", "Unschedulable")])
def test_what_permit_said_is_measured_with_it(permit: str, status: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"permit": permit}))
        await fixture.until_idle()
        fixture.api.drop("pods", "default/p")

    assert points_of(simulate(story, one_node, recording))["Permit", status] == 1


RAISING = {
    "PreFilter": (PreFilterPlugin, "pre_filter"),
    "PreScore": (ScorePlugin, "pre_score"),
    "PostFilter": (PostFilterPlugin, "post_filter"),
    "Reserve": (ReservePlugin, "reserve"),
    "Permit": (PermitPlugin, "permit"),
    "PreBind": (PreBindPlugin, "pre_bind"),
    "Bind": (BindPlugin, "bind"),
}


@pytest.mark.parametrize("point", RAISING)
def test_a_point_that_raises_is_measured_as_an_error(point: str) -> None:
    kind, method = RAISING[point]

    def broken(*arguments: object) -> NoReturn:
        raise ZeroDivisionError

    def profile(view: ClusterView) -> Profile:
        made = recording(view, preempts=True)
        for plugin in made.parts:
            if isinstance(plugin, kind):
                setattr(plugin, method, broken)
        return made

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9" if point == "PostFilter" else "1", labels={"pre-bind": "yes"}))
        await fixture.until_idle()
        fixture.api.drop("pods", "default/p")

    assert points_of(simulate(story, one_node, profile))[point, "Error"] == 1


def test_post_filter_is_measured_when_no_node_passes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9"))
        await fixture.until_idle()

    assert points_of(simulate(story, one_node, recording))["PostFilter", "Unschedulable"] == 1
