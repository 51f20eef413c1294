"""What goes wrong around gangs that wait or are being bound: each ends bound as a whole, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from koordinator.api.annotations import BIND_GANG_MEMBER_COUNT
from koordinator.api.kinds import POD_GROUPS
from koordinator.kube.errors import ApiStatusError
from koordinator.scheduler.engine.binding_points import ClusterWriter, CycleState, PodChanges, PreBindPlugin
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.in_memory_api import NO_FAULT, ApiRequest, Hang
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group
from tests.scheduler.plugins.coscheduling.test_plugin import PATIENCE, gang_profile, nodes
from tests.scheduler.plugins.coscheduling.test_vanishing_nodes import POLICIES
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate
from tests.scheduler.scheduler_api import SchedulerApi

MEMBERS: Final = 4
OUTAGE: Final = 300.0
CROWD: Final = 10_000
"""Pods of one group."""
_WRITES: Final = ("create", "update", "patch", "delete")


class Labels(PreBindPlugin):
    """Labels each pod that is bound, so that a patch comes before the Binding."""

    name = "Labels"

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        changes.labels["node"] = node.name


def labelling_profile(view: ClusterView) -> Profile:
    base = gang_profile(view)
    order = replace(base.order, pre_bind=(Labels.name, *base.order.pre_bind))
    return Profile(base.scheduler_name, {**base.plugins, Labels.name: Labels(None, view)}, order)


def declared_gang(*slots: int, policy: str = "once-satisfied") -> SchedulerApi:
    """Nodes, a PodGroup and its pods."""
    api = nodes(*slots)
    api.store(pod_group("g", MEMBERS, match_policy=policy), POD_GROUPS)
    for number in range(MEMBERS):
        api.store(labelled("g", number))
    return api


class Killer:
    """Ends the process at a step: the write of that number is not answered, and none comes after it."""

    def __init__(self, step: int, *, is_done: bool) -> None:
        """``is_done``: the last write still takes effect."""
        self.writes = 0
        self._step = step
        self._is_done = is_done

    def __call__(self, request: ApiRequest, done: bool) -> Exception | None:
        if request.verb not in _WRITES:
            return None
        self.writes += not done
        if self.writes < self._step:
            return None
        return Hang() if done or self.writes > self._step or not self._is_done else None


async def run_and_kill(fixture: RunningScheduler) -> None:
    async with fixture.running():
        await fixture.until_idle(5)
        raise RuntimeError("killed")


async def kill_and_go_on(
    make_profile: Callable[[ClusterView], Profile], killer: Killer, policy: str = "once-satisfied"
) -> SchedulerApi:
    api = declared_gang(2, 2, policy=policy)
    first, second = (RunningScheduler(api, make_profile) for _ in range(2))
    api.fault = killer
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run_and_kill(first)
    assert killer.writes > 0
    api.fault = NO_FAULT
    async with second.running():
        await second.until_idle(12)
    check(second)
    return api


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_done", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize(
    ("profile", "step"),
    [(profile, step) for profile, count in ((gang_profile, 5), (labelling_profile, 9)) for step in range(1, count + 1)],
)
def test_a_gang_is_bound_as_a_whole_whatever_write_its_scheduler_is_killed_at(
    profile: Callable[[ClusterView], Profile], step: int, is_done: bool, policy: str
) -> None:
    api = asyncio.run(kill_and_go_on(profile, Killer(step, is_done=is_done), policy))
    assert api.placed().keys() == {f"g-{number}" for number in range(MEMBERS)}
    if policy != "once-satisfied":
        counts = {pod.metadata.annotations.get(BIND_GANG_MEMBER_COUNT) for pod in api.objects("pods").values()}
        assert counts == {str(MEMBERS)}, "all say with how many they were to be bound"


@pytest.mark.parametrize(("profile", "expected"), [(gang_profile, 5), (labelling_profile, 9)])
def test_these_are_all_writes_of_the_binding_of_a_gang(
    profile: Callable[[ClusterView], Profile], expected: int
) -> None:
    killer = Killer(99, is_done=True)
    asyncio.run(kill_and_go_on(profile, killer))
    assert killer.writes == expected


async def outage(fixture: RunningScheduler, meanwhile: Callable[[SchedulerApi], None] = lambda api: None) -> None:
    """The API server is away for five minutes, and what has changed before it responds again."""
    fixture.api.go_away()
    await fixture.until_idle(OUTAGE)
    meanwhile(fixture.api)
    fixture.api.come_back()
    await fixture.until_idle(60)


def waiting_gang(waiting_time: str = "") -> Callable[[], SchedulerApi]:
    """Two of the three members of a NonStrict gang have a node and wait for the third."""

    def made() -> SchedulerApi:
        api = nodes(2)
        more: dict[str, Any] = {"waiting_time": waiting_time} if waiting_time else {}
        for number in range(3):
            api.store(member("g", number, 3, mode="NonStrict", **more))
        return api

    return made


def more_capacity(api: SchedulerApi) -> None:
    api.store(make_node("later", cpu="1"))


@pytest.mark.parametrize("waiting_time", ["", "60s"], ids=["they go on waiting", "their time is over meanwhile"])
def test_a_gang_that_waits_while_the_api_server_is_away_is_bound_when_there_is_capacity(waiting_time: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        assert fixture.scheduler.state.assumed_count == 2
        await outage(fixture, more_capacity)

    assert len(simulate(story, waiting_gang(waiting_time), gang_profile).api.placed()) == 3


def test_members_that_wait_keep_their_nodes_while_the_api_server_is_away() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await outage(fixture)
        assert fixture.scheduler.state.assumed_count == 2
        fixture.api.drop("pods", "default/g-2")
        await fixture.until_idle(PATIENCE)

    assert simulate(story, waiting_gang(), gang_profile).api.placed() == {}


def test_a_gang_whose_bindings_find_no_api_server_is_bound_when_it_is_back() -> None:
    async def story(fixture: RunningScheduler) -> None:
        def vanish(name: str, done: bool) -> Exception | None:
            fixture.api.binding_fault = lambda name, done: None
            fixture.api.go_away()
            return None

        fixture.api.binding_fault = vanish
        for number in range(MEMBERS):
            fixture.api.store(labelled("g", number))
        await fixture.until_idle()
        assert len(fixture.api.placed()) < MEMBERS
        await outage(fixture)

    def gang_without_pods() -> SchedulerApi:
        api = nodes(2, 2)
        api.store(pod_group("g", MEMBERS), POD_GROUPS)
        return api

    assert len(simulate(story, gang_without_pods, gang_profile).api.placed()) == MEMBERS


@pytest.mark.parametrize("policy", POLICIES)
def test_a_member_whose_binding_fails_is_bound_after_the_others(policy: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        failures = 2

        def fault(name: str, done: bool) -> Exception | None:
            nonlocal failures
            if name != "g-1" or done or not failures:
                return None
            failures -= 1
            return ApiStatusError(409, "Conflict", "a webhook is in the way")

        fixture.api.binding_fault = fault
        fixture.api.store(pod_group("g", MEMBERS, match_policy=policy), POD_GROUPS)
        for number in range(MEMBERS):
            fixture.api.store(labelled("g", number))
        await fixture.until_idle(0)
        assert len(fixture.api.placed()) == MEMBERS - 1
        await fixture.until_idle(30)

    assert len(simulate(story, lambda: nodes(2, 2), gang_profile).api.placed()) == MEMBERS


def delete_group(api: SchedulerApi) -> None:
    api.drop(POD_GROUPS.plural, "default/g")


def lower_minimum(api: SchedulerApi) -> None:
    api.store(pod_group("g", 2), POD_GROUPS)


def raise_minimum(api: SchedulerApi) -> None:
    api.store(pod_group("g", MEMBERS + 1), POD_GROUPS)


def lose_a_member(api: SchedulerApi) -> None:
    api.drop("pods", "default/g-0")


CHANGES: Final[dict[str, tuple[Callable[[SchedulerApi], None], int, int]]] = {
    "nothing": (lambda api: None, 0, MEMBERS),
    "the PodGroup is deleted": (delete_group, 0, 0),
    "minMember goes down to what fits": (lower_minimum, 2, MEMBERS),
    "minMember goes up beyond the pods": (raise_minimum, 0, 0),
    "a member is deleted": (lose_a_member, 0, 0),
}
"""What is changed, how many members are bound then, and how many once there is free capacity for all."""


@pytest.mark.parametrize("is_away", [False, True], ids=["seen at once", "seen after an outage"])
@pytest.mark.parametrize("case", CHANGES)
def test_what_changes_while_a_gang_is_pending_counts(case: str, is_away: bool) -> None:
    change, at_first, in_the_end = CHANGES[case]

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        if is_away:
            await outage(fixture, change)
        else:
            change(fixture.api)
            await fixture.until_idle(12)
        assert len(fixture.api.placed()) == at_first
        fixture.api.store(make_node("later", cpu="9"))
        await fixture.until_idle(12)

    assert len(simulate(story, lambda: declared_gang(2), gang_profile).api.placed()) == in_the_end


def test_a_pod_group_that_goes_while_its_members_wait_lets_their_nodes_go() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 3, mode="NonStrict"), POD_GROUPS)
        for number in range(3):
            fixture.api.store(labelled("g", number))
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == 2
        delete_group(fixture.api)
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == 0
        fixture.api.store(pod_group("g", 2), POD_GROUPS)
        await fixture.until_idle(12)

    assert len(simulate(story, lambda: nodes(2), gang_profile).api.placed()) == 2


def test_members_that_wait_on_a_node_that_goes_are_no_partners_to_be_bound_with() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.drop("nodes", "n0")
        await fixture.until_idle()
        more_capacity(fixture.api)
        await fixture.until_idle(12)
        assert fixture.api.placed() == {}
        fixture.api.store(make_node("last", cpu="2"))
        await fixture.until_idle(12)

    assert len(simulate(story, waiting_gang(), gang_profile).api.placed()) == 3


@pytest.mark.parametrize("days", [-400, 400])
def test_how_long_members_wait_is_no_matter_of_the_wall_clock(days: int) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.clock.set_wall(fixture.clock.now() + timedelta(days=days))
        await fixture.until_idle(PATIENCE / 2)
        assert fixture.scheduler.state.assumed_count == 2
        more_capacity(fixture.api)
        await fixture.until_idle(12)

    assert len(simulate(story, waiting_gang(), gang_profile).api.placed()) == 3


async def crowd(fixture: RunningScheduler) -> None:
    for gang in "ab":
        for number in range(CROWD // 2):
            fixture.api.store(member(gang, number, CROWD // 2, together=("a", "b")))
    for _ in range(5):
        await fixture.until_idle(1)


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "bound"), [(CROWD, CROWD), (CROWD - 1, 0)], ids=["they fit", "one does not"])
def test_ten_thousand_pods_of_a_group_of_gangs_are_bound_as_a_whole_or_not_at_all(slots: int, bound: int) -> None:
    api = simulate(crowd, lambda: nodes(*(2000,) * (slots // 2000), slots % 2000), gang_profile).api
    assert len(api.placed()) == bound
