"""A pod with resource claims waits and says why; other pods never notice the plugin."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from koordinator.api.pod import Pod, PodResourceClaim
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.dynamic_resources import DynamicResources
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


def profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    plugins = {**base.plugins, DynamicResources.name: DynamicResources(None, view)}
    order = replace(base.order, pre_filter=(*base.order.pre_filter, DynamicResources.name))
    return Profile(base.scheduler_name, plugins, order)


def play(*pods: Pod) -> RunningScheduler:
    def api() -> SchedulerApi:
        found = SchedulerApi()
        for name in ("a", "b"):
            found.store(make_node(name))
        return found

    async def story(fixture: RunningScheduler) -> None:
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle()

    return simulate(story, api, profile)


def with_claim(name: str) -> Pod:
    pod = make_pod(name)
    claims = [PodResourceClaim(name="gpu", resource_claim_name="one-of-them")]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resource_claims=claims))


def test_a_pod_with_resource_claims_waits_with_that_as_its_reason() -> None:
    fixture = play(with_claim("p"))
    message = "0/2 nodes are available: the pod has resource claims, which this scheduler does not allocate."
    assert fixture.api.conditions == [("p", "Unschedulable", message)]
    assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 1


def test_pods_without_claims_are_placed() -> None:
    assert set(play(with_claim("p"), make_pod("plain")).api.placed()) == {"plain"}
