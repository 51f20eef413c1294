"""Gangs that their authors have to mend, or complete: who is told what, once, and that the others are placed all the
same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from koordinator.api.kinds import POD_GROUPS
from koordinator.scheduler.plugins.coscheduling.controllers import PATIENCE
from tests.scheduler.fakes import make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group
from tests.scheduler.plugins.coscheduling.test_plugin import run
from tests.scheduler.running_scheduler import RunningScheduler

Story = Callable[[RunningScheduler], Awaitable[None]]
Reported = list[tuple[str, str, str]]
"""(object, reason, note)."""


def reported(*stories: Story) -> Reported:
    """What is told while the stories are played one after another, each with time for everybody to notice."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("other"))
        for each in stories:
            await each(fixture)
            await fixture.until_idle(PATIENCE + 10)
        assert "other" in fixture.api.placed()

    return [note for note in run(story, 8).events.notes if note[0] != "other" and note[1] != "Scheduled"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("mode", "strict"),
        ("match_policy", "all"),
        ("groups", "default/h"),
        ("total_number", "1"),
    ],
)
def test_the_author_of_a_pod_group_is_told_what_cannot_be_used_of_it(annotation: str, value: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 2, None, **{annotation: value}), POD_GROUPS)

    ((name, reason, note),) = reported(story)
    assert (name, reason) == ("g", "InvalidPodGroup")
    assert note.startswith(f"gang.scheduling.koordinator.sh/{annotation.replace('_', '-')} is '{value}'")


def test_without_a_pod_group_the_pod_that_declares_the_gang_is_notified() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 0, 1, waiting_time="soon"))

    ((name, reason, note),) = reported(story)
    assert (name, reason) == ("g-0", "InvalidGang")
    assert note.startswith("gang.scheduling.koordinator.sh/waiting-time: ")


async def one_gang_of_two(fixture: RunningScheduler) -> None:
    fixture.api.store(pod_group("g", 1, groups='["default/g","default/h"]'), POD_GROUPS)
    fixture.api.store(labelled("g", 0))


_MISSING = "the gang default/g is not tried: Gang default/h of its group does not exist."


def test_that_a_gang_of_the_group_is_missing_the_pod_and_its_pod_group_say() -> None:
    assert reported(one_gang_of_two) == [("g", "FailedScheduling", _MISSING), ("g-0", "FailedScheduling", _MISSING)]


def test_a_member_that_comes_later_is_reported_too() -> None:
    async def later(fixture: RunningScheduler) -> None:
        fixture.api.store(labelled("g", 1))

    assert [name for name, _, note in reported(one_gang_of_two, later) if note == _MISSING] == ["g", "g-0", "g", "g-1"]


async def two_of_three(fixture: RunningScheduler) -> None:
    for number in range(2):
        fixture.api.store(member("g", number, 3))


def test_an_incomplete_gang_says_how_many_it_needs() -> None:
    text = "the gang default/g is not tried: Gang default/g has 2 schedulable pods and needs 3."
    assert reported(two_of_three) == [("g-0", "FailedScheduling", text), ("g-1", "FailedScheduling", text)]


def test_pods_whose_pod_group_is_missing_say_so() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(labelled("g", 0))

    ((name, _, note),) = reported(story)
    assert name == "g-0"
    assert "there is no PodGroup default/g" in note


def test_pods_of_other_schedulers_are_told_nothing() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            pod = member("g", number, 3)
            fixture.api.store(replace(pod, spec=replace(pod.spec, scheduler_name="other")))

    assert reported(story) == []


def test_of_a_gang_that_is_completed_in_time_nobody_is_told_anything() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await two_of_three(fixture)
        await fixture.until_idle(PATIENCE / 2)
        fixture.api.store(member("g", 2, 3))

    assert reported(story) == []


def test_what_is_missing_again_is_reported_again() -> None:
    async def complete(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("h", 1, groups='["default/g","default/h"]'), POD_GROUPS)
        fixture.api.store(labelled("h", 0, cpu="100"))

    async def incomplete(fixture: RunningScheduler) -> None:
        fixture.api.drop("pods", "default/h-0")
        fixture.api.drop(POD_GROUPS.plural, "default/h")

    notes = [note for name, _, note in reported(one_gang_of_two, complete, incomplete) if name == "g"]
    assert notes.count(_MISSING) == 2
