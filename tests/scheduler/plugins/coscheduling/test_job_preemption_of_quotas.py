"""Job preemption for gangs of a quota: nobody is evicted for members that the quota does not admit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import ElasticQuotaArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from tests.scheduler.plugins.coscheduling.test_gangs_of_quotas import set_quota
from tests.scheduler.plugins.coscheduling.test_job_preemption import gang, running
from tests.scheduler.plugins.coscheduling.test_job_preemption import profile as preempting
from tests.scheduler.plugins.coscheduling.test_plugin import nodes, notes
from tests.scheduler.plugins.elastic_quota.quota_cluster import LABEL
from tests.scheduler.running_scheduler import RunningScheduler, simulate


def profile(view: ClusterView, *, first: bool = False, preempts: bool = False) -> Profile:
    """With ElasticQuota behind Coscheduling, or ``first``, at PreFilter; and at PostFilter, if it ``preempts``."""
    base, plugin = preempting(view), ElasticQuota(ElasticQuotaArgs(), view)
    listed, name = base.order.pre_filter, (plugin.name,)
    order = replace(
        base.order,
        pre_filter=(*name, *listed) if first else (*listed, *name),
        post_filter=(*base.order.post_filter, *(name if preempts else ())),
    )
    return Profile(base.scheduler_name, {**base.plugins, plugin.name: plugin}, order)


def of_quota(pod: Pod) -> Pod:
    labels = {**pod.metadata.labels, f"{LABEL}/name": "a"}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def play(
    on_nodes: list[Pod],
    members: int,
    most: int,
    *slots: int,
    cpu: str = "1",
    profile: Callable[[ClusterView], Profile] = profile,
) -> RunningScheduler:
    """A gang of the quota, which has ``most`` CPUs."""

    async def story(fixture: RunningScheduler) -> None:
        set_quota(fixture.api, most)
        for pod in on_nodes:
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in gang(members, cpu=cpu):
            fixture.api.store(of_quota(pod))
        await fixture.until_idle()
        await fixture.until_idle(60)

    return simulate(story, lambda: nodes(*slots), profile)


@pytest.mark.parametrize("most", [0, 1])
@pytest.mark.parametrize("first", [False, True], ids=["asked after the gang", "asked before the gang"])
def test_a_gang_that_its_quota_admits_in_part_evicts_nobody(most: int, first: bool) -> None:
    fixture = play([running("x", 0), running("y", 0)], 2, most, 2, profile=partial(profile, first=first))
    assert fixture.api.placed() == {"x": "n0", "y": "n0"}


def test_a_gang_that_its_quota_does_not_admit_is_not_nominated_to_free_nodes() -> None:
    fixture = play([of_quota(running("x", 1, priority=20))], 1, 1, 1, 1)
    assert fixture.api.pod("g-0").status.nominated_node_name == ""
    assert "preemption: " in notes(fixture, "g-0")[-1]


def test_pods_of_the_quota_that_leave_make_room_in_it_too() -> None:
    fixture = play([of_quota(running("x", 0)), of_quota(running("y", 1))], 2, 2, 1, 1)
    assert set(fixture.api.placed()) == {"g-0", "g-1"}


def test_a_pod_stays_only_if_the_quota_admits_the_members_on_other_nodes_too() -> None:
    """One pod could stay on each node, if it were not for the quota."""
    on_nodes = [of_quota(running(name, node)) for name, node in (("w", 0), ("x", 0), ("y", 1), ("z", 1))]
    fixture = play(on_nodes, 2, 4, 3, 3, cpu="2")
    assert set(fixture.api.placed()) == {"g-0", "g-1"}


def test_members_stay_nominated_whatever_quota_preemption_says() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        set_quota(fixture.api, 2)
        for pod in (running("x", 0), running("y", 1), *map(of_quota, gang(2))):
            fixture.api.store(pod)
        await fixture.until_idle()
        assert nominated(fixture) == {"n0", "n1"}
        fixture.scheduler.queue.activate_unschedulable()
        await fixture.until_idle(60)
        assert nominated(fixture) == {"n0", "n1"}
        assert all("not eligible due to terminating pod" in notes(fixture, f"g-{number}")[-1] for number in range(2))

    simulate(story, lambda: nodes(1, 1), partial(profile, preempts=True))


def nominated(fixture: RunningScheduler) -> set[str]:
    return {fixture.api.pod(f"g-{number}").status.nominated_node_name for number in range(2)}
