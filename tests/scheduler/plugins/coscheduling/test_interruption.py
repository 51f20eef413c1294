"""What the API says of a gang that was bound in part when its scheduler or its leader changed, and what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import BIND_GANG_GROUP_ID, BIND_GANG_MEMBER_COUNT
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod, PodCondition, PodStatus
from koordinator.api.reservation import (
    AVAILABLE,
    SCHEDULED_CONDITION,
    ReservationCondition,
    ReservationStatus,
)
from koordinator.scheduler.plugins.coscheduling.documents import what_it_waits_for
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from koordinator.scheduler.plugins.coscheduling.interruption import NONE, Interruption, interruption
from tests.in_memory_api import NO_FAULT
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.gang_fakes import member, with_annotations
from tests.scheduler.plugins.coscheduling.test_gang_faults import Killer, run_and_kill
from tests.scheduler.plugins.coscheduling.test_plugin import gang_profile, nodes
from tests.scheduler.plugins.coscheduling.test_reservations_in_gangs import node_of, profile, wanted
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate
from tests.scheduler.scheduler_api import SchedulerApi

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
GROUP: Final = "default/g"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def pending(number: int, created: float | None = 0, minimum: int = 4, **annotations: Any) -> Pod:
    pod = member("g", number, minimum, match_policy="only-waiting", **annotations)
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=at(created) if created is not None else None))


def bound(number: int, when: float | None = 1, count: str = "4", group: str = GROUP, minimum: int = 4) -> Pod:
    """On a node since ``when``."""
    pod = pending(number, minimum=minimum)
    noted = {**pod.metadata.annotations, BIND_GANG_GROUP_ID: group, BIND_GANG_MEMBER_COUNT: count}
    condition = PodCondition(
        type="PodScheduled", status="True", last_transition_time=at(when) if when is not None else None
    )
    pod = replace(with_annotations(pod, noted), status=PodStatus(conditions=[condition]))
    return replace(pod, spec=replace(pod.spec, node_name="n0"))


def cache_of(*pods: Pod) -> GangCache:
    cache = GangCache()
    for pod in pods:
        cache.set_pod(pod, pod.spec.node_name)
    return cache


def found(*pods: Pod) -> Interruption:
    group = cache_of(*pods).gangs[GROUP].group
    assert group is not None
    return interruption(group)


def uids(*numbers: int) -> frozenset[str]:
    return frozenset(f"uid-g-{number}" for number in numbers)


def test_who_was_there_when_the_others_were_bound_is_one_of_them() -> None:
    assert found(bound(0), bound(1), pending(2), pending(3)) == Interruption(uids(0, 1), uids(2, 3), 4)


def test_who_was_created_in_the_second_of_the_binding_was_there() -> None:
    assert found(bound(0, when=1), pending(1, created=1)).waiting == uids(1)


def test_who_replaces_a_member_that_was_bound_is_none() -> None:
    assert found(bound(0), bound(1), bound(2), pending(4, created=2)) == NONE


def test_of_a_gang_that_was_bound_as_a_whole_nobody_is_missing() -> None:
    """Whoever else was there found no node, or had a scheduling gate."""
    assert found(bound(0), bound(1), bound(2), bound(3), pending(4)) == NONE


def test_two_attempts_are_distinguished_by_their_times() -> None:
    earlier = [bound(number, when=1) for number in range(4)]
    assert found(*earlier, bound(4, when=9), pending(5, created=5)) == Interruption(uids(4), uids(5), 4)
    assert found(*earlier, bound(4, when=9), pending(5, created=0)) == Interruption(uids(4), uids(5), 4)


@pytest.mark.parametrize(
    "other",
    [
        bound(0, count="1"),
        bound(0, count=""),
        bound(0, count="-4"),
        bound(0, count="four"),
        bound(0, count="9" * 5000),
        bound(0, group="default/h"),
        bound(0, when=None),
    ],
    ids=["alone", "no number", "negative", "a word", "very long", "another group", "nobody knows when"],
)
def test_what_says_nothing_of_an_attempt_is_no_partner(other: Pod) -> None:
    assert found(other, pending(1)) == NONE


def test_a_pod_of_which_nobody_knows_since_when_it_is_there_is_none() -> None:
    assert found(bound(0), pending(1, created=None)) == NONE


def attempt(cache: GangCache, *numbers: int) -> set[str]:
    """The members that may be bound once these have a node, one after another."""
    uid: str | None = f"uid-g-{numbers[0]}"
    tried = 0
    while uid is not None:
        assert cache.begin_attempt(uid) == ""
        tried += 1
        cache.permit(uid)
        uid = cache.next_pod()
    assert tried == len(numbers)
    members = cache.gangs[GROUP].by_state
    return {member.pod.metadata.name for member in members[MemberState.BINDING].values()}


def test_the_rest_is_bound_as_what_it_was_to_be_bound_as() -> None:
    cache = cache_of(bound(0), bound(1), pending(2), pending(3))
    assert attempt(cache, 2, 3) == {"g-2", "g-3"}
    assert {cache.gangs[GROUP].members[uid].bound_with for uid in uids(2, 3)} == {4}


def test_of_the_rest_all_are_bound_or_none() -> None:
    cache = cache_of(bound(0), bound(1), pending(2), pending(3))
    cache.begin_attempt("uid-g-2")
    cache.permit("uid-g-2")
    assert cache.next_pod() == "uid-g-3"
    cache.begin_attempt("uid-g-3")
    cache.attempt_failed("uid-g-3", "no room")
    assert [uid for uid, _ in cache.take_instructions().reject] == ["uid-g-2"]


def test_who_comes_beside_the_rest_is_bound_by_the_policy_and_not_counted_as_one_of_it() -> None:
    cache = cache_of(bound(0), bound(1), bound(2), pending(3), pending(4, created=5))
    assert attempt(cache, 3, 4) == {"g-3", "g-4"}
    members = cache.gangs[GROUP].members
    assert (members["uid-g-3"].bound_with, members["uid-g-4"].bound_with) == (4, 1)


def test_gangs_of_a_group_of_which_one_was_bound_wait_for_the_others() -> None:
    names = ("g", "h")
    first, second = (member(name, 0, 1, match_policy="only-waiting", together=names) for name in names)
    noted = {**first.metadata.annotations, BIND_GANG_GROUP_ID: "default/g,default/h", BIND_GANG_MEMBER_COUNT: "2"}
    placed = replace(bound(0), metadata=with_annotations(first, noted).metadata)
    waits = replace(second, metadata=replace(second.metadata, creation_timestamp=BEGIN))
    cache = cache_of(placed, waits)
    assert cache.begin_attempt("uid-h-0") == ""
    assert cache.permit("uid-h-0") is None
    assert cache.gangs["default/h"].members["uid-h-0"].bound_with == 2


def test_the_explanation_says_who_was_to_be_bound_with_whom() -> None:
    cache = cache_of(bound(0), bound(1), pending(2), pending(3))
    assert what_it_waits_for(cache, cache.gangs[GROUP])[:2] == [
        "Of the 4 that were to be bound together 2 are bound; the others are tried again.",
        "2 more members of default/g must find a node before any member is bound.",
    ]


# With a scheduler.


def half_bound(*slots: int, missing: int = 2, created: float = 0, **changes: Any) -> Callable[[], SchedulerApi]:
    def api() -> SchedulerApi:
        made = nodes(*slots)
        for number in range(4 - missing):
            made.store(bound(number, **changes))
        for number in range(4 - missing, 4):
            made.store(pending(number, created=created))
        return made

    return api


async def nothing(fixture: RunningScheduler) -> None:
    await fixture.until_idle(12)


def placed(fixture: RunningScheduler) -> set[str]:
    return set(fixture.api.placed())


def test_the_rest_of_a_gang_is_placed() -> None:
    assert placed(simulate(nothing, half_bound(4), gang_profile)) == {f"g-{number}" for number in range(4)}


def test_without_capacity_for_the_rest_nobody_of_it_is_placed_until_there_is() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await nothing(fixture)
        assert placed(fixture) == {"g-0", "g-1"}
        assert fixture.scheduler.state.assumed_count == 0
        fixture.api.store(make_node("n1", cpu="1"))
        await nothing(fixture)

    assert len(placed(simulate(story, half_bound(3), gang_profile))) == 4


def test_what_replaces_members_waits_for_others_after_a_restart_too() -> None:
    fixture = simulate(nothing, half_bound(4, missing=1, created=5), gang_profile)
    assert placed(fixture) == {"g-0", "g-1", "g-2"}


def test_two_that_are_killed_one_after_another_leave_the_rest_to_a_third() -> None:
    async def story() -> SchedulerApi:
        api = half_bound(4, missing=3)()
        for step, expected in ((2, 2), (2, 3)):
            api.fault = Killer(step, is_done=False)
            with pytest.raises(ExceptionGroup, match="TaskGroup"):
                await run_and_kill(RunningScheduler(api, gang_profile))
            assert len(api.placed()) == expected
        api.fault = NO_FAULT
        async with (last := RunningScheduler(api, gang_profile)).running():
            await last.until_idle(12)
        check(last)
        return api

    api = asyncio.run(story())
    assert len(api.placed()) == 4
    counts = {pod.metadata.annotations.get(BIND_GANG_MEMBER_COUNT) for pod in api.objects("pods").values()}
    assert counts == {"4"}


def test_a_reservation_that_was_bound_counts_as_a_pod_does() -> None:
    first, second = (wanted(f"r{number}", "g", 2) for number in (1, 2))
    policy = {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}
    note = {BIND_GANG_GROUP_ID: GROUP, BIND_GANG_MEMBER_COUNT: "2"}
    condition = ReservationCondition(type=SCHEDULED_CONDITION, status="True", last_transition_time=at(1))
    metadata = replace(first.metadata, annotations={**first.metadata.annotations, **policy, **note})
    template = first.spec.template
    assert template is not None
    status = ReservationStatus(phase=AVAILABLE, node_name="n0", conditions=[condition])
    available = replace(first, metadata=replace(metadata, creation_timestamp=at(0)), status=status)
    metadata = replace(second.metadata, annotations={**second.metadata.annotations, **policy})
    waiting = replace(second, metadata=replace(metadata, creation_timestamp=at(0)))

    def api() -> SchedulerApi:
        made = SchedulerApi()
        for name in ("n0", "n1"):
            made.store(make_node(name, cpu="4"))
        made.store(available, RESERVATIONS)
        made.store(waiting, RESERVATIONS)
        return made

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        assert node_of(fixture, "r2") == "n1"

    simulate(story, api, profile)
