"""A pod that waits for another one to be somewhere hears of it, also when the scheduler itself has put it there."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tests.scheduler.fake_api import FakeApi
from tests.scheduler.fakes import Fit, make_node, make_pod
from tests.scheduler.world import World, simulate

HOSTNAME = "kubernetes.io/hostname"


def profile(view: ClusterView) -> Profile:
    plugins = {"Fit": Fit(None, view), "InterPodAffinity": InterPodAffinity(None, view)}
    order = PluginOrder(pre_filter=("InterPodAffinity",), filter=("Fit", "InterPodAffinity"), score=(("Fit", 1),))
    return Profile("koord-scheduler", plugins, order)


def one_node() -> FakeApi:
    api = FakeApi()
    api.put(make_node("a", labels={HOSTNAME: "a"}))
    return api


def near(name: str, app: str) -> Pod:
    pod = make_pod(name)
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=HOSTNAME)
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    return replace(pod, spec=replace(pod.spec, affinity=Affinity(pod_affinity=rule)))


def test_a_binding_of_ours_wakes_those_that_wait_for_the_pod() -> None:
    async def story(world: World) -> None:
        world.api.put(near("follower", "leader"))
        await world.settle()
        assert world.api.placed() == {}
        world.api.put(make_pod("leader", labels={"app": "leader"}))
        await world.settle(2)
        assert world.api.placed() == {"leader": "a", "follower": "a"}

    simulate(story, one_node, profile)
