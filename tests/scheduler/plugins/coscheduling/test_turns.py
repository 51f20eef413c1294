"""Whose turn it is among gangs that wait: nobody is tried over and over for what it has let go itself, so that who has
waited for long is there when room comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.row_amounts import CPU
from tests.examples import examples
from tests.scheduler.fakes import make_node
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
        await fixture.until_idle(12)
        assert fixture.scheduler.state.assumed_count == 0
        before = [attempts(fixture, f"g-{number}") for number in range(3)]
        for _ in range(6):
            await fixture.until_idle(20)
        assert [attempts(fixture, f"g-{number}") for number in range(3)] == before

    run(story, 2)


def test_a_member_that_another_one_stood_in_the_way_of_is_tried_before_it() -> None:
    """The small member takes the node that the large one needs; both fit when the large one is placed first."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 0, 2, cpu="1"))
        fixture.api.store(member("g", 1, 2, cpu="2"))
        await fixture.until_idle(12)
        await fixture.until_idle(12)

    placed = run(story, 2, 1).api.placed()
    assert placed == {"g-0": "n1", "g-1": "n0"}


def test_members_that_stand_in_each_other_s_way_are_tried_in_each_order_once() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number, cpu in enumerate(("1", "2", "3")):
            fixture.api.store(member("g", number, 3, cpu=cpu))
        for _ in range(10):
            await fixture.until_idle(30)
        assert max(attempts(fixture, f"g-{number}") for number in range(3)) <= 4

    run(story, 2, 1, 2)


def test_a_gang_that_waits_has_its_turn_before_those_that_come_later() -> None:
    """Whenever a gang leaves, another one comes in the same moment. The first one that waited would never find free
    capacity if it had to wait out a back-off each time."""

    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("first", number, 2))
        await fixture.until_idle(1)
        for number in range(2):
            fixture.api.store(member("waits", number, 2))
        await fixture.until_idle(25)
        for generation in range(5):
            running = {name.rpartition("-")[0] for name in fixture.api.placed()}
            if "waits" in running:
                return
            for name in list(fixture.api.placed()):
                fixture.api.drop("pods", f"default/{name}")
            for number in range(2):
                fixture.api.store(member(f"later{generation}", number, 2))
            await fixture.until_idle(1)
        raise AssertionError("it has never had its turn")

    run(story, 3)


gangs = st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from(["Strict", "NonStrict"]))
"""How many members, how many CPUs each requests, the mode."""
events = st.one_of(
    st.tuples(st.just("gang"), gangs), st.tuples(st.just("leave"), st.integers(0, 9)), st.tuples(st.just("node"), gangs)
)


@settings(max_examples=examples(10))
@given(st.lists(events, min_size=1, max_size=8), st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_once_all_is_quiet_no_gang_waits_that_fits(happened: list[tuple[str, Any]], pauses: list[int]) -> None:
    """Gangs come, others leave, and nodes appear, at any moment of attempts and back-offs."""
    known: dict[str, tuple[int, int, str]] = {}

    async def story(fixture: RunningScheduler) -> None:
        for number, (kind, about) in enumerate(happened):
            if kind == "gang":
                known[f"g{number}"] = about
                for index in range(about[0]):
                    pod = member(f"g{number}", index, about[0], cpu=str(about[1]), mode=about[2], waiting_time="8s")
                    fixture.api.store(pod)
            elif kind == "node":
                fixture.api.store(make_node(f"later{number}", cpu=str(about[0]), memory="2000Gi"))
            elif known:
                leaving = sorted(known)[about % len(known)]
                del known[leaving]
                for name in [key for key in fixture.api.objects("pods") if key.startswith(f"default/{leaving}-")]:
                    fixture.api.drop("pods", name)
            await fixture.until_idle(pauses[number % len(pauses)])
        for _ in range(6):
            await fixture.until_idle(12)
        assert waiting_in_vain(fixture, known) == []
        # One NonStrict gang after the other holds nodes, unbound, for its waiting time: the books are compared without.
        for name in sorted(fixture.api.objects("pods").keys() - {f"default/{name}" for name in fixture.api.placed()}):
            fixture.api.drop("pods", name)
        await fixture.until_idle(1)

    run(story, 4, 3)


def waiting_in_vain(fixture: RunningScheduler, known: dict[str, tuple[int, int, str]]) -> list[str]:
    """The gangs of which nobody has a node although all members would fit beside those that have one."""
    columns, placed = fixture.scheduler.state.view.columns, fixture.api.placed()
    free = {
        name: int(columns.allocatable[row, CPU] - columns.requested[row, CPU]) // 1000
        for name, row in columns.row_of.items()
    }
    return [
        gang
        for gang, (count, cpu, _) in known.items()
        if f"{gang}-0" not in placed and sum(cpus // cpu for cpus in free.values()) >= count
    ]
