"""What goes wrong around quotas that are in use: none is ever exceeded, and nobody waits for what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from koordinator.api.kinds import ELASTIC_QUOTAS
from tests.in_memory_api import NO_FAULT, ApiRequest, Hang
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.elastic_quota.quota_cluster import of_quota, quota_profile
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate
from tests.scheduler.scheduler_api import SchedulerApi

MAX: Final = 3
PODS: Final = 6
OUTAGE: Final = 300.0
Change = Callable[[SchedulerApi], None]


def set_quota(api: SchedulerApi, name: str, most: int, **given: Any) -> None:
    api.store(wire_quota(name, max={"cpu": most, "memory": "64Gi"}, **given), ELASTIC_QUOTAS)


def crowded() -> SchedulerApi:
    """More pods than their quota has free capacity for, on nodes that have free capacity for all."""
    api = SchedulerApi()
    for number in range(2):
        api.store(make_node(f"n{number}", cpu="8", memory="64Gi"))
    set_quota(api, "a", MAX)
    for number in range(PODS):
        api.store(of_quota(f"p{number}"))
    return api


def play(story: Callable[[RunningScheduler], Awaitable[None]]) -> SchedulerApi:
    return simulate(story, crowded, quota_profile).api


def delete_quota(api: SchedulerApi) -> None:
    api.drop(ELASTIC_QUOTAS.plural, wire_quota("a").metadata.key)


def below_a_parent(api: SchedulerApi) -> None:
    set_quota(api, "top", MAX + 1, is_parent=True)
    set_quota(api, "a", PODS, parent="top")


def below_nobody(api: SchedulerApi) -> None:
    set_quota(api, "a", PODS, parent="nobody")


def two_pods_leave(api: SchedulerApi) -> None:
    for name in sorted(api.placed())[:2]:
        api.drop("pods", f"default/{name}")


CHANGES: Final[dict[str, tuple[Change, int]]] = {
    "nothing": (lambda api: None, MAX),
    "its max goes up": (lambda api: set_quota(api, "a", MAX + 2), MAX + 2),
    "its max goes below what is used": (lambda api: set_quota(api, "a", 1), MAX),
    "it is deleted": (delete_quota, PODS),
    "it moves below a parent that is smaller": (below_a_parent, MAX + 1),
    "it moves below a parent that is not there": (below_nobody, MAX),
    "pods leave": (two_pods_leave, MAX),
}
"""What is changed, and how many pods have a node then."""


@pytest.mark.parametrize("is_away", [False, True], ids=["seen at once", "seen after an outage"])
@pytest.mark.parametrize("case", CHANGES)
def test_what_happens_to_a_quota_in_use_counts_for_the_pods_that_wait(case: str, is_away: bool) -> None:
    change, expected = CHANGES[case]

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        assert len(fixture.api.placed()) == MAX
        if is_away:
            fixture.api.go_away()
            await fixture.until_idle(OUTAGE)
        change(fixture.api)
        if is_away:
            fixture.api.come_back()
            await fixture.until_idle(60)
        await fixture.until_idle(12)

    assert len(play(story).placed()) == expected


def test_a_quota_that_is_deleted_between_decision_and_binding_harms_nobody() -> None:
    async def story(fixture: RunningScheduler) -> None:
        def delete_first(name: str, done: bool) -> Exception | None:
            fixture.api.binding_fault = lambda name, done: None
            delete_quota(fixture.api)
            return None

        fixture.api.drop("pods", "default/p0")
        await fixture.until_idle()
        fixture.api.binding_fault = delete_first
        set_quota(fixture.api, "a", MAX + 1)
        await fixture.until_idle(12)

    assert len(play(story).placed()) == PODS - 1


def test_a_quota_that_is_created_anew_counts_what_its_pods_use() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.drop("nodes", "n0")
        fixture.api.drop("nodes", "n1")
        await fixture.until_idle(12)
        delete_quota(fixture.api)
        await fixture.until_idle()
        set_quota(fixture.api, "a", MAX)
        await fixture.until_idle()
        fixture.api.store(make_node("later", cpu="8", memory="64Gi"))
        await fixture.until_idle(12)

    assert len(play(story).placed()) == MAX


@pytest.mark.parametrize("days", [-400, 400])
def test_the_wall_clock_is_no_matter_for_quotas(days: int) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.clock.set_wall(fixture.clock.now() + timedelta(days=days))
        set_quota(fixture.api, "a", MAX + 1)
        await fixture.until_idle(12)

    assert len(play(story).placed()) == MAX + 1


async def killed_at(step: int, *, is_done: bool) -> int:
    """How many pods have a node in the end, when the first scheduler is killed at that binding."""
    api, bindings = crowded(), 0

    def kill(request: ApiRequest, done: bool) -> Exception | None:
        nonlocal bindings
        if request.subresource != "binding":
            return None
        bindings += not done
        return Hang() if bindings > step or (bindings == step and (done or not is_done)) else None

    api.fault = kill
    first, second = RunningScheduler(api, quota_profile), RunningScheduler(api, quota_profile)
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run_and_kill(first)
    api.fault = NO_FAULT
    async with second.running():
        await second.until_idle(12)
    check(second)
    return len(api.placed())


async def run_and_kill(fixture: RunningScheduler) -> None:
    async with fixture.running():
        await fixture.until_idle(5)
        raise RuntimeError("killed")


@pytest.mark.parametrize("is_done", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("step", range(1, MAX + 1))
def test_whatever_binding_the_scheduler_is_killed_at_the_quota_is_used_up_and_not_exceeded(
    step: int, is_done: bool
) -> None:
    assert asyncio.run(killed_at(step, is_done=is_done)) == MAX
