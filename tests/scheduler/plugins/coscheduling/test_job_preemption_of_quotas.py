"""Job preemption for gangs of a quota: nobody is evicted for members that the quota does not admit."""

from __future__ import annotations

from dataclasses import replace

import msgspec

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


def profile(view: ClusterView) -> Profile:
    """With ElasticQuota at PreFilter alone: it does not preempt itself."""
    base, plugin = preempting(view), ElasticQuota(ElasticQuotaArgs(), view)
    order = replace(base.order, pre_filter=(*base.order.pre_filter, plugin.name))
    return Profile(base.scheduler_name, {**base.plugins, plugin.name: plugin}, order)


def of_quota(pod: Pod) -> Pod:
    labels = {**pod.metadata.labels, f"{LABEL}/name": "a"}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def play(on_nodes: list[Pod], members: int, most: int, *slots: int, cpu: str = "1") -> RunningScheduler:
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


def test_a_gang_that_its_quota_admits_in_part_evicts_nobody() -> None:
    fixture = play([running("x", 0), running("y", 0)], 2, 1, 2)
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
