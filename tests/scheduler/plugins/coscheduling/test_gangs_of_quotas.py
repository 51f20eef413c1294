"""Gangs whose members belong to a quota: none is bound in part for lack of it, and none uses more than there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from koordinator.api.kinds import ELASTIC_QUOTAS, POD_GROUPS
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import ElasticQuotaArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from tests.in_memory_api import NO_FAULT
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, pod_group
from tests.scheduler.plugins.coscheduling.test_gang_faults import Killer, run_and_kill
from tests.scheduler.plugins.coscheduling.test_plugin import gang_profile, nodes
from tests.scheduler.plugins.elastic_quota.quota_cluster import LABEL, of_quota
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate
from tests.scheduler.scheduler_api import SchedulerApi

MEMBERS: Final = 4


def profile(view: ClusterView) -> Profile:
    base, plugin = gang_profile(view), ElasticQuota(ElasticQuotaArgs(), view)
    order = replace(
        base.order,
        pre_filter=(*base.order.pre_filter, plugin.name),
        post_filter=(*base.order.post_filter, plugin.name),
    )
    return Profile(base.scheduler_name, {**base.plugins, plugin.name: plugin}, order)


def of_gang(number: int, gang: str = "g", quota: str = "a") -> Pod:
    pod = labelled(gang, number)
    labels = {**pod.metadata.labels, f"{LABEL}/name": quota}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def set_quota(api: SchedulerApi, most: int, name: str = "a") -> None:
    api.store(wire_quota(name, max={"cpu": most, "memory": "640Gi"}), ELASTIC_QUOTAS)


def cluster(most: int, **group: Any) -> Callable[[], SchedulerApi]:
    """Nodes for all members, a quota for ``most`` of them, and the gang."""

    def made() -> SchedulerApi:
        api = nodes(8, 8)
        set_quota(api, most)
        api.store(pod_group("g", MEMBERS, **group), POD_GROUPS)
        for number in range(MEMBERS):
            api.store(of_gang(number))
        return api

    return made


def used(api: SchedulerApi, quota: str = "a") -> int:
    """Pods of the quota with a node; each requests one CPU."""
    pods = api.objects("pods").values()
    return sum(bool(pod.spec.node_name) and pod.metadata.labels.get(f"{LABEL}/name") == quota for pod in pods)


def test_a_gang_that_its_quota_has_capacity_for_is_bound() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)

    assert used(simulate(story, cluster(MEMBERS), profile).api) == MEMBERS


def test_of_a_gang_that_its_quota_has_too_little_for_nobody_is_bound_and_each_is_notified() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)

    fixture = simulate(story, cluster(MEMBERS - 1), profile)
    assert used(fixture.api) == 0
    reported = {
        name: note for name, reason, note in fixture.events.notes if reason == "FailedScheduling" and name != "g"
    }
    assert reported.keys() == {f"g-{number}" for number in range(MEMBERS)}
    assert all("Insufficient quotas, quotaName: a" in note for note in reported.values())


def test_what_a_gang_lets_go_of_others_of_its_quota_may_use() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)
        for number in range(MEMBERS - 1):
            fixture.api.store(of_quota(f"single-{number}"))
        await fixture.until_idle(12)

    fixture = simulate(story, cluster(MEMBERS - 1), profile)
    assert set(fixture.api.placed()) == {f"single-{number}" for number in range(MEMBERS - 1)}


def test_it_is_bound_as_a_whole_when_its_quota_grows() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        set_quota(fixture.api, MEMBERS)
        await fixture.until_idle(12)

    assert used(simulate(story, cluster(MEMBERS - 1), profile).api) == MEMBERS


def test_it_is_bound_as_a_whole_when_a_pod_of_its_quota_leaves() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        assert set(fixture.api.placed()) == {"first"}
        fixture.api.drop("pods", "default/first")
        await fixture.until_idle(12)

    def api() -> SchedulerApi:
        made = cluster(MEMBERS)()
        made.store(of_quota("first", node="n0"))
        return made

    assert used(simulate(story, api, profile).api) == MEMBERS


def test_what_members_hold_that_wait_counts_in_their_quota() -> None:
    """The gang has free capacity for three on the nodes, and keeps them; its quota has one left."""

    async def story(fixture: RunningScheduler) -> None:
        assert fixture.scheduler.state.assumed_count == 3
        fixture.api.store(make_node("later", cpu="8"))
        for number in range(3):
            fixture.api.store(of_quota(f"single-{number}", priority=-1))
        await fixture.until_idle(0)
        await fixture.until_idle(12)

    def api() -> SchedulerApi:
        made = nodes(3)
        set_quota(made, MEMBERS + 1)
        made.store(pod_group("g", MEMBERS, mode="NonStrict"), POD_GROUPS)
        for number in range(MEMBERS):
            made.store(of_gang(number))
        return made

    fixture = simulate(story, api, profile)
    assert used(fixture.api) == MEMBERS + 1
    assert {f"g-{number}" for number in range(MEMBERS)} <= set(fixture.api.placed())


def test_two_gangs_of_one_quota_do_not_keep_each_other_out() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("h", MEMBERS), POD_GROUPS)
        for number in range(MEMBERS):
            fixture.api.store(of_gang(number, "h"))
        await fixture.until_idle(12)
        bound = {name.partition("-")[0] for name in fixture.api.placed()}
        assert (len(bound), len(fixture.api.placed())) == (1, MEMBERS)
        for name in list(fixture.api.placed()):
            fixture.api.drop("pods", f"default/{name}")
        await fixture.until_idle(12)
        assert {name.partition("-")[0] for name in fixture.api.placed()} == {"g", "h"} - bound

    simulate(story, cluster(MEMBERS + 2), profile)


async def killed_at(step: int, *, is_done: bool) -> SchedulerApi:
    """The gang and as many single pods as its quota has free capacity for besides, with a scheduler that is killed."""
    api = cluster(MEMBERS + 1)()
    for number in range(3):
        api.store(of_quota(f"single-{number}", priority=-1))
    first, second = RunningScheduler(api, profile), RunningScheduler(api, profile)
    api.fault = Killer(step, is_done=is_done)
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run_and_kill(first)
    api.fault = NO_FAULT
    async with second.running():
        await second.until_idle(12)
    check(second)
    return api


@pytest.mark.parametrize("is_done", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("step", range(1, 12, 2))
def test_whatever_write_the_scheduler_is_killed_at_the_gang_is_whole_and_the_quota_is_not_exceeded(
    step: int, is_done: bool
) -> None:
    api = asyncio.run(killed_at(step, is_done=is_done))
    members = sum(name.startswith("g-") for name in api.placed())
    assert members in (0, MEMBERS)
    assert used(api) <= MEMBERS + 1
    assert used(api) >= 3, "what fits is placed"
