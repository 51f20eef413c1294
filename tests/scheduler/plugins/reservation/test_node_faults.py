"""Reservations in a running scheduler when their node goes, the clock steps or the API server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_AFFINITY
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationStatus
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner
from tests.scheduler.plugins.reservation.test_waking import one_node, profile
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi, lost

OUTAGE: Final = 300.0


def pending(**spec: Any) -> Reservation:
    """One that the scheduler has yet to find a node for."""
    return replace(available(**spec), status=ReservationStatus())


def state(api: SchedulerApi) -> tuple[str, str]:
    """The phase of the Reservation, and the reason of its condition Ready."""
    status = api.document(RESERVATIONS, "r").get("status", {})
    ready = [each["reason"] for each in status.get("conditions", ()) if each["type"] == "Ready"]
    return status.get("phase", ""), "".join(ready)


def play(story: Callable[[RunningScheduler], Awaitable[None]]) -> SchedulerApi:
    """Play the story with a Reservation that has got its node."""

    async def run() -> SchedulerApi:
        api = one_node()
        api.store(pending(), RESERVATIONS)
        fixture = RunningScheduler(api, profile)
        async with fixture.running():
            await fixture.until_idle(3)
            assert state(api) == ("Available", "Available")
            await story(fixture)
        assert fixture.scheduler.state.assumed_count == 0
        return api

    return asyncio.run(run())


def must_use_one(name: str) -> Pod:
    return noted(owner(name), {RESERVATION_AFFINITY: "{}"})


async def lose_the_node(fixture: RunningScheduler) -> None:
    fixture.api.drop("nodes", "a")
    await fixture.until_idle(3)


def test_it_fails_with_its_node_and_says_so() -> None:
    assert state(play(lose_the_node)) == ("Failed", "Expired")


def test_it_is_deleted_once_others_have_had_time_to_see_how_it_ended() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await lose_the_node(fixture)
        await fixture.until_idle(60)

    assert play(story).names(RESERVATIONS) == []


def test_a_node_of_the_same_name_is_free_for_everybody() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await lose_the_node(fixture)
        fixture.api.store(make_node("a"))
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(3)

    assert play(story).placed() == {"p": "a"}


def test_an_owner_that_must_use_it_waits_instead_of_going_elsewhere() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await lose_the_node(fixture)
        fixture.api.store(make_node("b"))
        fixture.api.store(must_use_one("o"))
        await fixture.until_idle(3)

    assert play(story).placed() == {}


def test_the_node_goes_between_the_decision_about_an_owner_and_its_binding() -> None:
    async def story(fixture: RunningScheduler) -> None:
        def lose_it_first(name: str, done: bool) -> Exception | None:
            if done:
                return None
            fixture.api.binding_fault = lambda name, done: None
            fixture.api.drop("nodes", "a")
            return lost()

        fixture.api.binding_fault = lose_it_first
        fixture.api.store(must_use_one("o"))
        await fixture.until_idle(12)
        assert state(fixture.api)[0] == "Failed"

    assert len(play(story).bindings) <= 1


@pytest.mark.parametrize(("days", "expected"), [(-400, "Available"), (400, "Failed")])
def test_it_lives_by_the_wall_clock_wherever_that_steps_to(days: int, expected: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.clock.set_wall(fixture.clock.now() + timedelta(days=days))
        await fixture.until_idle(3)
        assert state(fixture.api)[0] == expected
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(12)

    assert play(story).placed() == ({"p": "a"} if expected == "Failed" else {})


@pytest.mark.parametrize("is_lost", [False, True], ids=["its node stays", "its node goes meanwhile"])
def test_an_outage_of_the_api_server_changes_nothing_by_itself(is_lost: bool) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.go_away()
        await fixture.until_idle(OUTAGE)
        if is_lost:
            fixture.api.drop("nodes", "a")
        fixture.api.come_back()
        await fixture.until_idle(30)

    assert state(play(story)) == (("Failed", "Expired") if is_lost else ("Available", "Available"))
