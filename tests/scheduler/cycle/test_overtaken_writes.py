"""Writes of a pod's status that are late, or fail: what was decided last is what the pod has in the end, and no earlier
decision comes back by the watch."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.kinds import PODS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.scheduler.cycle.failure_report import Failure, FailureReporter
from koordinator.scheduler.metrics import SchedulerMetrics
from tests.examples import examples
from tests.real_world.faulty_api_server import FAULTS, Fault, Rule
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import EventList, RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

preempting = partial(make_profile, preempts=True)


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    return api


def full_node() -> SchedulerApi:
    api = SchedulerApi()
    api.leaving_takes_time = True
    api.store(make_node("a", cpu="2"))
    for name in ("low-1", "low-2"):
        api.store(make_pod(name, priority=1, node="a"))
    return api


def slow(name: str, times: float = 1) -> Rule:
    return Rule(Fault(delay=3), "patch", "pods", "status", name=name, times=times)


async def nominate_and_clear(fixture: RunningScheduler) -> None:
    """The pod is nominated by a write that takes three seconds; a more important one clears that meanwhile."""
    fixture.api.store(make_pod("middle", cpu="2", priority=5))
    await fixture.until_idle(1)
    assert nominated(fixture, "middle") == "a"
    fixture.api.store(make_pod("high", cpu="2", priority=10))
    await fixture.until_idle()
    assert nominated(fixture, "high") == "a"


def nominated(fixture: RunningScheduler, name: str) -> str:
    """As the scheduler sees it."""
    return fixture.scheduler.state.view.nominations.node_of(f"uid-{name}")


def test_a_nomination_that_is_cleared_while_it_is_written_does_not_stay() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(slow("middle"))
        await nominate_and_clear(fixture)
        await fixture.until_idle(9)
        assert fixture.api.pod("middle").status.nominated_node_name == ""
        assert nominated(fixture, "middle") == ""

    simulate(story, full_node, preempting)


def test_a_nomination_that_the_watch_shows_late_is_not_taken_over() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(slow("middle", times=2))
        await nominate_and_clear(fixture)
        await fixture.until_idle(3)
        assert fixture.api.pod("middle").status.nominated_node_name == "a", "it has been cleared by us alone"
        assert nominated(fixture, "middle") == ""

    simulate(story, full_node, preempting)


def test_another_change_of_the_pod_does_not_bring_its_nomination_back() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await nominate_and_clear_with_a_failing_write(fixture)
        pod = fixture.api.pod("middle")
        assert pod.status.nominated_node_name == "a"
        fixture.api.store(replace(pod, metadata=replace(pod.metadata, labels={"changed": "yes"})))
        await fixture.until_idle()
        assert nominated(fixture, "middle") == ""

    simulate(story, full_node, preempting)


async def nominate_and_clear_with_a_failing_write(fixture: RunningScheduler) -> None:
    fixture.api.store(make_pod("middle", cpu="2", priority=5))
    await fixture.until_idle(1)
    fixture.api.faults.rules.append(Rule(FAULTS["a webhook refuses"], "patch", "pods", "status", name="middle"))
    fixture.api.store(make_pod("high", cpu="2", priority=10))
    await fixture.until_idle()


def test_what_others_nominate_is_taken_over() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9"))
        await fixture.until_idle()
        for name in ("a", ""):
            pod = fixture.api.pod("p")
            fixture.api.store(replace(pod, status=replace(pod.status, nominated_node_name=name)))
            await fixture.until_idle()
            assert nominated(fixture, "p") == name

    simulate(story, one_node)


def test_a_message_that_comes_back_while_another_is_written_stays() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9"))
        await fixture.until_idle(1)
        fixture.api.faults.rules.append(slow("p"))
        fixture.api.store(make_node("b"))
        await fixture.until_idle(1)
        fixture.api.drop("nodes", "b")
        fixture.api.store(make_node("a", cpu="5"))
        await fixture.until_idle(1.5)
        message = fixture.scheduler.decisions.attempts("default/p")[-1].rejection
        assert message is not None
        assert message.message.startswith("0/1 nodes")
        await fixture.until_idle(9)
        assert [each.message for each in fixture.api.pod("p").status.conditions] == [message.message]

    simulate(story, one_node)


MOST_BEHIND = 8.0
"""Seconds by which a watch is late."""


class Reports:
    """A reporter alone, to which a pod is passed as its informer last showed it."""

    def __init__(self) -> None:
        self.api, self.clock = one_node(), ManualClock()
        self.api.store(make_pod("p"))
        self.seen = self.api.pod("p")
        heartbeat = SchedulerMetrics(Metrics()).loops(self.clock).loop("failure-reporter")
        self.reporter = FailureReporter(self.api.client(self.clock), EventList(), heartbeat, self.clock, Random(7))
        self.message, self.nominated = "", ""
        self.behind = 0.0

    async def play(self, step: tuple[str, Any]) -> None:
        match step:
            case "fault", name:
                self.api.faults.rules[:] = [Rule(FAULTS[name], "patch", "pods", "status", times=1)]
            case "late", seconds:
                self.api.faults.rules[:] = [Rule(Fault(delay=seconds), "patch", "pods", "status", times=1)]
            case "wait", seconds:
                await self.clock.advance(seconds)
                self.behind += seconds
            case "see", _:
                self.seen, self.behind = self.api.pod("p"), 0.0
            case "nominate", node_name:
                self.nominated = node_name
                self.reporter.nominate(self.seen, node_name)
            case "report", (message, node_name):
                self.message = message
                self.nominated = self.nominated if node_name is None else node_name
                self.reporter.report(Failure(self.seen, "Unschedulable", message, node_name))
        await self.clock.advance(0)
        if self.behind > MOST_BEHIND:
            await self.play(("see", None))

    async def run(self, steps: list[tuple[str, Any]]) -> None:
        task = asyncio.create_task(self.reporter.run())
        for step in steps:
            await self.play(step)
        # Whatever is still under way ends; then there is one more attempt.
        self.api.faults.rules.clear()
        for last in (("wait", 200), ("see", None), ("report", ("the last one", None)), ("wait", 200)):
            await self.play(last)
        task.cancel()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
        st.tuples(st.just("late"), st.sampled_from([0.5, 5.0, 20.0])),
        st.tuples(st.just("wait"), st.sampled_from([0.3, 1.0, 4.0, 40.0])),
        st.tuples(st.just("see"), st.none()),
        st.tuples(st.just("nominate"), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("report"), st.tuples(st.sampled_from(["A", "B"]), st.sampled_from([None, "", "a", "b"]))),
    ),
    max_size=10,
)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_the_last_decision_is_on_the_pod_in_the_end(steps: list[tuple[str, Any]]) -> None:
    reports = Reports()
    asyncio.run(reports.run(steps))
    status = reports.api.document(PODS, "p", "default")["status"]
    assert [each["message"] for each in status["conditions"]] == ["the last one"]
    assert status.get("nominatedNodeName", "") == reports.nominated


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_without_faults_the_last_report_is_on_the_pod_in_the_end(steps: list[tuple[str, Any]]) -> None:
    """However late each of the writes is; nothing more has to be reported."""
    reports = Reports()

    async def run() -> None:
        task = asyncio.create_task(reports.reporter.run())
        for step in steps:
            if step[0] != "fault":
                await reports.play(step)
        await reports.clock.advance(200)
        task.cancel()

    asyncio.run(run())
    status = reports.api.document(PODS, "p", "default")["status"]
    assert [each["message"] for each in status.get("conditions", ())] == [reports.message][: bool(reports.message)]
    assert status.get("nominatedNodeName", "") == reports.nominated


@pytest.mark.parametrize(("node_name", "is_behind"), [(None, False), ("", True), ("a", True)])
def test_a_state_of_the_pod_is_behind_until_it_shows_the_nomination_that_was_written(
    node_name: str | None, is_behind: bool
) -> None:
    """If only the condition was written, another's nomination before that counts."""
    reports = Reports()

    async def run() -> list[bool]:
        task, found = asyncio.create_task(reports.reporter.run()), []
        for step in (("report", ("A", node_name)), ("wait", 1.0), ("see", None)):
            await reports.play(step)
            found.append(reports.reporter.is_behind(reports.seen))
        task.cancel()
        return found

    assert asyncio.run(run()) == [is_behind, is_behind, False]
    assert not reports.reporter.is_behind(reports.api.pod("p"))


def test_what_is_known_about_a_pod_that_is_gone_is_forgotten() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(20):
            fixture.api.store(make_pod(f"p{number}", cpu="9"))
        await fixture.until_idle(1)
        reporter = fixture.scheduler.event_handlers.writes
        assert isinstance(reporter, FailureReporter)
        assert reporter.known == 20
        for number in range(20):
            fixture.api.drop("pods", f"default/p{number}")
        await fixture.until_idle(1)
        assert reporter.known == 0

    simulate(story, one_node)
