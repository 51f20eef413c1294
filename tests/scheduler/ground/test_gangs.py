"""A gang by the public interface alone: gated, activated, waiting, allowed and rejected together."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster, profile_with
from tests.scheduler.ground.gangs import SECONDS, Gangs
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

MANY = 1000


def member(number: int, size: int, gang: str = "g", **labels: str) -> Pod:
    return make_pod(f"m{number}", cpu="1m", memory="1Mi", labels={"gang": gang, "size": str(size), **labels})


def gangs_of(fixture: RunningScheduler) -> Gangs:
    plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Gangs"]
    assert isinstance(plugin, Gangs)
    return plugin


def large_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a", cpu="64", memory="64Gi", pods="2000"))
    return api


def run(story: object) -> RunningScheduler:
    return simulate(story, large_node, lambda view: profile_with(view, Gangs))  # type: ignore[arg-type]


def test_a_gated_gang_is_activated_by_its_plugin() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member(number, 3))
        await fixture.until_idle()
        assert fixture.scheduler.queue.size(Pool.GATED) == 3
        gangs_of(fixture).complete("g", [f"uid-m{number}" for number in range(3)])
        await fixture.until_idle()

    fixture = run(story)
    assert fixture.api.placed() == dict.fromkeys(("m0", "m1", "m2"), "a")


def test_a_gate_that_stays_shut_keeps_an_activated_pod_out() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member(0, 1))
        await fixture.until_idle()
        gangs_of(fixture).handle.activate(["uid-m0"])
        await fixture.until_idle()
        assert fixture.scheduler.queue.size(Pool.GATED) == 1

    assert run(story).api.placed() == {}


def test_a_thousand_members_are_rejected_together() -> None:
    async def story(fixture: RunningScheduler) -> None:
        gangs_of(fixture).open.add("g")
        for number in range(MANY):
            fixture.api.store(member(number, MANY + 1))
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == MANY
        waiting = fixture.scheduler.state.view.waiting.get("uid-m0")
        assert waiting is not None
        gangs_of(fixture).broken["g"] = "the gang is given up"
        waiting.reject("Gangs", "one is gone")
        await fixture.until_idle()

    fixture = run(story)
    assert fixture.scheduler.state.assumed_count == 0
    assert len(gangs_of(fixture).unreserved) == MANY
    assert fixture.scheduler.queue.size(Pool.IN_FLIGHT) == 0


def test_a_thousand_members_are_allowed_together() -> None:
    async def story(fixture: RunningScheduler) -> None:
        gangs_of(fixture).open.add("g")
        for number in range(MANY):
            fixture.api.store(member(number, MANY))
        await fixture.until_idle()
        await fixture.until_idle(1)

    assert len(run(story).api.placed()) == MANY


def test_members_that_waited_too_long_are_rejected() -> None:
    async def story(fixture: RunningScheduler) -> None:
        gangs_of(fixture).open.add("g")
        for number in range(2):
            fixture.api.store(member(number, 3))
        await fixture.until_idle()
        gangs_of(fixture).broken["g"] = "the gang is given up"
        await fixture.until_idle(SECONDS)

    fixture = run(story)
    entry = fixture.scheduler.queue.get("uid-m0")
    assert entry is not None
    assert entry.pool is not Pool.IN_FLIGHT
    assert fixture.scheduler.state.assumed_count == 0


def test_one_that_is_refused_at_reserve_takes_the_others_along() -> None:
    async def story(fixture: RunningScheduler) -> None:
        gangs_of(fixture).open.add("g")
        fixture.api.store(member(0, 2))
        await fixture.until_idle()
        gangs_of(fixture).broken["other"] = "nothing"
        fixture.api.store(member(1, 2, unlucky="yes"))
        await fixture.until_idle()

    fixture = run(story)
    assert fixture.api.placed() == {}
    assert "default/m0" in gangs_of(fixture).unreserved


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
