"""A gang by the public interface alone: gated, activated, waiting, allowed and rejected together."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fake_api import FakeApi
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster, profile_with
from tests.scheduler.ground.gangs import SECONDS, Gangs
from tests.scheduler.world import World, simulate

MANY = 1000


def member(number: int, size: int, gang: str = "g", **labels: str) -> Pod:
    return make_pod(f"m{number}", cpu="1m", memory="1Mi", labels={"gang": gang, "size": str(size), **labels})


def gangs_of(world: World) -> Gangs:
    plugin = world.scheduler.engines["koord-scheduler"].profile.plugins["Gangs"]
    assert isinstance(plugin, Gangs)
    return plugin


def large_node() -> FakeApi:
    api = FakeApi()
    api.put(make_node("a", cpu="64", memory="64Gi", pods="2000"))
    return api


def run(story: object) -> World:
    return simulate(story, large_node, lambda view: profile_with(view, Gangs))  # type: ignore[arg-type]


def test_a_gated_gang_is_activated_by_its_plugin() -> None:
    async def story(world: World) -> None:
        for number in range(3):
            world.api.put(member(number, 3))
        await world.settle()
        assert world.scheduler.queue.size(Pool.GATED) == 3
        gangs_of(world).complete("g", [f"uid-m{number}" for number in range(3)])
        await world.settle()

    world = run(story)
    assert world.api.placed() == dict.fromkeys(("m0", "m1", "m2"), "a")


def test_a_gate_that_stays_shut_keeps_an_activated_pod_out() -> None:
    async def story(world: World) -> None:
        world.api.put(member(0, 1))
        await world.settle()
        gangs_of(world).handle.activate(["uid-m0"])
        await world.settle()
        assert world.scheduler.queue.size(Pool.GATED) == 1

    assert run(story).api.placed() == {}


def test_a_thousand_members_are_rejected_together() -> None:
    async def story(world: World) -> None:
        gangs_of(world).open.add("g")
        for number in range(MANY):
            world.api.put(member(number, MANY + 1))
        await world.settle()
        assert world.scheduler.state.assumed_count == MANY
        waiting = world.scheduler.state.view.waiting.get("uid-m0")
        assert waiting is not None
        gangs_of(world).broken["g"] = "the gang is given up"
        waiting.reject("Gangs", "one is gone")
        await world.settle()

    world = run(story)
    assert world.scheduler.state.assumed_count == 0
    assert len(gangs_of(world).unreserved) == MANY
    assert world.scheduler.queue.size(Pool.IN_FLIGHT) == 0


def test_a_thousand_members_are_allowed_together() -> None:
    async def story(world: World) -> None:
        gangs_of(world).open.add("g")
        for number in range(MANY):
            world.api.put(member(number, MANY))
        await world.settle()
        await world.settle(1)

    assert len(run(story).api.placed()) == MANY


def test_members_that_waited_too_long_are_rejected() -> None:
    async def story(world: World) -> None:
        gangs_of(world).open.add("g")
        for number in range(2):
            world.api.put(member(number, 3))
        await world.settle()
        gangs_of(world).broken["g"] = "the gang is given up"
        await world.settle(SECONDS)

    world = run(story)
    entry = world.scheduler.queue.get("uid-m0")
    assert entry is not None
    assert entry.pool is not Pool.IN_FLIGHT
    assert world.scheduler.state.assumed_count == 0


def test_one_that_is_refused_at_reserve_takes_the_others_along() -> None:
    async def story(world: World) -> None:
        gangs_of(world).open.add("g")
        world.api.put(member(0, 2))
        await world.settle()
        gangs_of(world).broken["other"] = "nothing"
        world.api.put(member(1, 2, unlucky="yes"))
        await world.settle()

    world = run(story)
    assert world.api.placed() == {}
    assert "default/m0" in gangs_of(world).unreserved


def test_a_rejected_attempt_leaves_the_class_its_filter_results() -> None:
    cluster = Cluster([make_node("a")], Gangs)
    plugin, fit = cluster.profile.plugins["Gangs"], cluster.profile.plugins["Fit"]
    assert isinstance(plugin, Gangs)
    assert isinstance(cluster.engine.decide(describe(member(0, 2)), NOW), Placement)
    before = fit.filtered_rows  # type: ignore[attr-defined]
    plugin.broken["g"] = "the gang is given up"
    rejection = cluster.engine.decide(describe(member(1, 2)), NOW)
    assert isinstance(rejection, Rejection)
    assert rejection.message == "0/1 nodes are available: the gang is given up."
    assert rejection.plugins == {"Gangs"}
    assert isinstance(cluster.engine.decide(describe(member(2, 2, gang="h")), NOW), Placement)
    assert fit.filtered_rows == before  # type: ignore[attr-defined]
