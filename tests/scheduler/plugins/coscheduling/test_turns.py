"""Whose turn it is among gangs that wait: nobody is tried over and over for what it has let go itself, so that who has
waited for long is there when room comes."""

from __future__ import annotations

import pytest

from tests.scheduler.plugins.coscheduling.gang_fakes import member
from tests.scheduler.plugins.coscheduling.test_plugin import run
from tests.scheduler.running_scheduler import RunningScheduler


def attempts(fixture: RunningScheduler, name: str) -> int:
    entry = fixture.scheduler.queue.get(f"uid-{name}")
    assert entry is not None
    return entry.attempts


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_a_gang_whose_members_let_go_is_not_tried_again_for_that(mode: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3, mode=mode, waiting_time="5s"))
        await fixture.settle(12)
        assert fixture.scheduler.state.assumed_count == 0
        before = [attempts(fixture, f"g-{number}") for number in range(3)]
        for _ in range(6):
            await fixture.settle(20)
        assert [attempts(fixture, f"g-{number}") for number in range(3)] == before

    run(story, 2)


def test_a_member_that_another_one_stood_in_the_way_of_is_tried_before_it() -> None:
    """The small member takes the node that the large one needs; both fit when the large one is placed first."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 0, 2, cpu="1"))
        fixture.api.store(member("g", 1, 2, cpu="2"))
        await fixture.settle(12)
        await fixture.settle(12)

    placed = run(story, 2, 1).api.placed()
    assert placed == {"g-0": "n1", "g-1": "n0"}


def test_members_that_stand_in_each_other_s_way_are_tried_in_each_order_once() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number, cpu in enumerate(("1", "2", "3")):
            fixture.api.store(member("g", number, 3, cpu=cpu))
        for _ in range(10):
            await fixture.settle(30)
        assert max(attempts(fixture, f"g-{number}") for number in range(3)) <= 4

    run(story, 2, 1, 2)


def test_a_gang_that_waits_has_its_turn_before_those_that_come_later() -> None:
    """Whenever a gang leaves, another one comes in the same moment. The first one that waited would never find room if
    it had to wait out a back-off each time."""

    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("first", number, 2))
        await fixture.settle(1)
        for number in range(2):
            fixture.api.store(member("waits", number, 2))
        await fixture.settle(25)
        for generation in range(5):
            running = {name.rpartition("-")[0] for name in fixture.api.placed()}
            if "waits" in running:
                return
            for name in list(fixture.api.placed()):
                fixture.api.drop("pods", f"default/{name}")
            for number in range(2):
                fixture.api.store(member(f"later{generation}", number, 2))
            await fixture.settle(1)
        raise AssertionError("it has never had its turn")

    run(story, 3)
