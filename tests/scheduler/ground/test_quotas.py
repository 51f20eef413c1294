"""A quota by the public interface alone: it ends one attempt, and evicts within its group by simulation."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.post_filter import Nomination
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster, profile_with
from tests.scheduler.ground.quotas import Quotas
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


def of_quota(name: str, cpu: str = "1", priority: int = 0, quota: str = "q", node: str = "") -> Pod:
    return make_pod(name, cpu=cpu, priority=priority, labels={"quota": quota}, node=node)


def make_cluster(limit: int) -> tuple[Cluster, Quotas]:
    cluster = Cluster([make_node("a"), make_node("b")], Quotas)
    plugin = cluster.profile.plugins["Quotas"]
    assert isinstance(plugin, Quotas)
    plugin.limits["q"] = limit
    return cluster, plugin


def test_pods_of_one_class_are_rejected_by_what_is_used() -> None:
    cluster, _ = make_cluster(1000)
    assert isinstance(cluster.engine.decide(describe(of_quota("p")), NOW), Placement)
    cluster.bound(of_quota("p"), "a")
    rejection = cluster.engine.decide(describe(of_quota("r")), NOW)
    assert isinstance(rejection, Rejection)
    assert rejection.message == "0/2 nodes are available: quota q is used up. no victims in the quota"
    assert isinstance(cluster.engine.decide(describe(of_quota("s", quota="other")), NOW), Placement)


def test_victims_come_from_several_nodes() -> None:
    cluster, plugin = make_cluster(2000)
    for name, node in (("p", "a"), ("r", "b")):
        cluster.bound(of_quota(name), node)
    rejection = cluster.engine.decide(describe(of_quota("vip", cpu="2", priority=5)), NOW)
    assert isinstance(rejection, Rejection)
    assert [victim.key for victim in rejection.after.victims] == ["default/p", "default/r"]
    assert rejection.after.nominated_node == "a"
    assert plugin.used["q"] == 2000


def test_results_of_post_filter_are_not_shared_without_a_key() -> None:
    cluster, plugin = make_cluster(0)
    for name in ("p", "r"):
        cluster.engine.decide(describe(of_quota(name)), NOW)
    assert plugin.calls == 2


def test_a_plan_is_carried_out_on_all_its_nodes() -> None:
    api = SchedulerApi()
    for name in ("a", "b"):
        api.store(make_node(name))
    for name, node in (("p", "a"), ("r", "b")):
        api.store(of_quota(name, node=node))

    async def story(fixture: RunningScheduler) -> None:
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Quotas"]
        assert isinstance(plugin, Quotas)
        plugin.limits["q"] = 2000
        fixture.api.store(make_pod("friend", cpu="16"))
        await fixture.until_idle()
        friend = fixture.scheduler.queue.get("uid-friend")
        assert friend is not None
        plugin.also = (Nomination(friend.pod, "b"),)
        fixture.api.store(of_quota("vip", cpu="2", priority=5))
        await fixture.until_idle()
        assert fixture.scheduler.state.view.nominations.node_of("uid-friend") == "b"
        await fixture.until_idle(30)

    fixture = simulate(story, lambda: api, lambda view: profile_with(view, Quotas))
    assert fixture.api.placed() == {"vip": "a"}
    assert fixture.api.objects("pods")["default/friend"].status.nominated_node_name == "b"
