"""A pod that waits for another one to be somewhere hears of it, also when the scheduler itself has put it there."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, ResourceMap
from koordinator.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from koordinator.api.quantity import Quantity
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from tests.scheduler.fakes import Fit, make_node, make_pod
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

HOSTNAME = "kubernetes.io/hostname"


def profile(view: ClusterView) -> Profile:
    plugins = {"Fit": Fit(None, view), "InterPodAffinity": InterPodAffinity(None, view)}
    order = PluginOrder(pre_filter=("InterPodAffinity",), filter=("Fit", "InterPodAffinity"), score=(("Fit", 1),))
    return Profile("koord-scheduler", plugins, order)


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a", labels={HOSTNAME: "a"}))
    return api


def near(name: str, app: str) -> Pod:
    pod = make_pod(name)
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=HOSTNAME)
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    return replace(pod, spec=replace(pod.spec, affinity=Affinity(pod_affinity=rule)))


def test_a_binding_of_ours_wakes_those_that_wait_for_the_pod() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(near("follower", "leader"))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        fixture.api.store(make_pod("leader", labels={"app": "leader"}))
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"leader": "a", "follower": "a"}

    simulate(story, one_node, profile)


def placed_after(*seconds: float, expired_nodes_pass: bool) -> list[bool]:
    """Whether a pod that is checked for load has its node after so many seconds each. The node has reported at the
    beginning that it is too busy, and reports are good for 120 seconds."""
    args = LoadAwareSchedulingArgs(
        node_metric_expiration_seconds=120, enable_schedule_when_node_metrics_expired=expired_nodes_pass
    )

    def profile(view: ClusterView) -> Profile:
        load_aware = LoadAwareScheduling(args.completed(""), view)
        plugins = {"Fit": Fit(None, view), load_aware.name: load_aware}
        return Profile("koord-scheduler", plugins, PluginOrder(filter=tuple(plugins), score=(("Fit", 1),)))

    found: list[bool] = []

    async def story(fixture: RunningScheduler) -> None:
        usage = ResourceMap(resources={"cpu": Quantity.parse("3900m"), "memory": Quantity.parse("1Gi")})
        status = NodeMetricStatus(update_time=fixture.clock.now(), node_metric=NodeMetricInfo(node_usage=usage))
        fixture.api.store(NodeMetric(metadata=ObjectMeta(name="a"), status=status), NODE_METRICS)
        await fixture.until_idle()
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        for each in seconds:
            await fixture.until_idle(each)
            found.append("p" in fixture.api.placed())

    simulate(story, one_node, profile)
    return found


def test_a_pod_is_placed_when_the_report_that_kept_it_off_has_expired() -> None:
    """Nothing else happens, and long before unschedulable pods are tried again anyway."""
    assert placed_after(100, 19, 2, expired_nodes_pass=True) == [False, False, True]


def test_a_report_that_expires_helps_nobody_where_that_rejects_the_node() -> None:
    assert placed_after(119, 60, expired_nodes_pass=False) == [False, False]
