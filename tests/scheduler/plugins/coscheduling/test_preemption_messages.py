"""What the members of a gang are told of the search for room, and whose nominations are left."""

from __future__ import annotations

import msgspec

from koordinator.api.pod import Pod
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.test_job_preemption import gang, important, profile, running
from tests.scheduler.plugins.coscheduling.test_plugin import nodes, notes
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

FULL = "0/2 nodes are available: 2 Insufficient cpu."


def play(on_nodes: list[Pod], pods: list[Pod], *slots: int) -> RunningScheduler:
    """One attempt; victims take their time."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        for pod in (*on_nodes, *pods):
            fixture.api.store(pod)
        await fixture.until_idle()

    return simulate(story, lambda: nodes(*slots), profile)


def failure_of(name: str, reason: str, waiting: int) -> str:
    return (
        f'GangGroup "default/g" gets rejected due to member Pod "default/{name}" is unschedulable with reason '
        f'"{reason}", alreadyWaitForBound: {waiting}'
    )


def nominated(api: SchedulerApi, name: str) -> str:
    return api.pod(name).status.nominated_node_name


def test_the_reasons_of_the_nodes_are_reported_where_eviction_would_not_help() -> None:
    fixture = play([running("a", 0), running("b", 1, priority=20)], gang(2), 1, 1)
    assert notes(fixture, "g-0") == [f"{FULL} preemption: {FULL}"]
    others = f"preemption: preemption already attempted by default/g-0 with message {FULL}"
    assert notes(fixture, "g-1") == [f"0/2 nodes are available: {failure_of('g-0', FULL, 0)}. {others}"]


def test_nodes_without_victims_are_counted() -> None:
    api = nodes(1)
    api.store(make_node("cordoned", cpu="1", unschedulable=True))

    async def story(fixture: RunningScheduler) -> None:
        for pod in (running("a", 0, priority=10), *gang(1)):
            fixture.api.store(pod)

    fixture = simulate(story, lambda: api, profile)
    why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    helps = "0/2 nodes are available: 1 Preemption is not helpful for scheduling, 1 no potential victims."
    assert notes(fixture, "g-0") == [f"{why} preemption: {helps}"]


def test_those_that_were_not_tried_are_told_that_capacity_is_freed() -> None:
    fixture = play([running("a", 0), running("b", 1)], gang(2), 1, 1)
    assert notes(fixture, "g-0") == [FULL]
    others = "preemption already attempted by default/g-0 with message preempt success, alreadyWaitingForBound: 0/2"
    assert notes(fixture, "g-1") == [f"0/2 nodes are available: {failure_of('g-0', FULL, 0)}. preemption: {others}"]


def test_those_that_had_a_node_are_told_that_capacity_is_freed() -> None:
    fixture = play([running("a", 0)], gang(2), 1, 1)
    assert notes(fixture, "g-1") == [FULL]
    assert notes(fixture, "g-0") == ["0/1 nodes are available: 1 preempt success, alreadyWaitingForBound: 1/2."]
    assert (nominated(fixture.api, "g-0"), nominated(fixture.api, "g-1")) == ("n1", "n0")


def test_what_members_let_go_for_their_victims_does_not_wake_the_gang() -> None:
    """Nothing has changed before the victim has left."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        for pod in (running("a", 0), *gang(2)):
            fixture.api.store(pod)
        await fixture.until_idle(60)
        assert [len(notes(fixture, f"g-{number}")) for number in range(2)] == [1, 1]
        fixture.api.drop("pods", "default/a")
        await fixture.until_idle(20)

    assert set(simulate(story, lambda: nodes(1, 1), profile).api.placed()) == {"g-0", "g-1"}


def test_a_gang_that_finds_no_capacity_any_more_keeps_no_node_from_others() -> None:
    """Both members are nominated; the room of one goes to a more important pod before the other's is free."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        for pod in (running("a", 0), running("b", 1), *gang(2)):
            fixture.api.store(pod)
        await fixture.until_idle()
        assert {nominated(fixture.api, "g-0"), nominated(fixture.api, "g-1")} == {"n0", "n1"}
        reported = len(fixture.events.notes)
        fixture.api.store(running("vip", 1, priority=20))
        for victim in ("b", "a"):
            fixture.api.drop("pods", f"default/{victim}")
        for _ in range(100):
            if len(fixture.events.notes) > reported:
                break
            await fixture.until_idle(0.1)
        assert (nominated(fixture.api, "g-0"), nominated(fixture.api, "g-1")) == ("", "")
        fixture.api.store(important(single("low"), priority=5))
        await fixture.until_idle(30)

    fixture = simulate(story, lambda: nodes(1, 1), profile)
    assert fixture.api.placed() == {"vip": "n1", "low": "n0"}


def single(name: str) -> Pod:
    pod = running(name, 0)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
