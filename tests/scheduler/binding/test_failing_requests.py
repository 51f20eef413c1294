"""The API server fails for some pods: they give up and say why, their room is free again, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import PODS
from koordinator.kube.errors import TransportError
from koordinator.scheduler.binding.binder import DEADLINE
from koordinator.scheduler.binding.binding_cycle import pod_binding
from koordinator.scheduler.engine.binding_points import ClusterWriter, CycleState, PodChanges, PreBindPlugin
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.examples import examples
from tests.real_world.faulty_api_server import FAULTS, Fault, Rule, bindings
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate, two_nodes
from tests.scheduler.scheduler_api import SchedulerApi

POISONED, GOOD = 70, 40
BEFORE = {name: fault for name, fault in FAULTS.items() if fault.status and not fault.carried_out and not fault.delay}
AFTER = {name: fault for name, fault in FAULTS.items() if fault.carried_out}


def large(*rules: Rule) -> SchedulerApi:
    api = SchedulerApi()
    for name in "abcd":
        api.store(make_node(name, cpu="200", memory="400Gi", pods="500"))
    api.faults.rules += rules
    return api


def store(api: SchedulerApi, name: str, count: int, **changes: Any) -> None:
    for number in range(count):
        api.store(make_pod(f"{name}-{number:03}", **changes))


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    return api


def placed(fixture: RunningScheduler, name: str) -> list[str]:
    return [pod for pod in fixture.api.placed() if pod.startswith(name)]


@pytest.mark.parametrize(
    "name",
    [
        "etcd or a webhook fails",
        "the server asks for an hour",
        "a webhook takes half a minute and fails",
        "there is never an answer",
        "the connection breaks before",
    ],
)
def test_pods_are_bound_beside_more_than_there_are_slots_whose_bindings_fail(name: str) -> None:
    rule = bindings(FAULTS[name], "poisoned-*")

    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "poisoned", POISONED)
        await fixture.until_idle(1)
        store(fixture.api, "good", GOOD)
        await fixture.until_idle(25)
        assert len(placed(fixture, "good")) == GOOD
        assert len(set(rule.hits)) == POISONED, "all of them are tried"
        fixture.api.faults.rules.clear()
        await fixture.until_idle(DEADLINE + 15)
        assert len(fixture.api.placed()) == POISONED + GOOD

    simulate(story, partial(large, rule))


@pytest.mark.parametrize("name", BEFORE)
def test_a_pod_whose_binding_fails_says_why_and_others_get_its_room(name: str) -> None:
    fault = BEFORE[name]

    def api() -> SchedulerApi:
        api = one_node()
        api.faults.rules.append(bindings(fault, "poisoned"))
        return api

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("poisoned", cpu="4"))
        await fixture.until_idle(15)
        text = f"binding rejected: {fault.message} ("
        assert any(each[0] == "poisoned" and each[2].startswith(text) for each in fixture.api.conditions)
        assert any(each[:2] == ("poisoned", "FailedScheduling") and text in each[2] for each in fixture.events.notes)
        attempts = [each.error for each in fixture.scheduler.decisions.attempts("default/poisoned") if each.error]
        assert attempts
        assert all(text in each for each in attempts)
        fixture.api.store(make_pod("other", cpu="4"))
        await fixture.until_idle(20)
        assert fixture.api.placed() == {"other": "a"}

    simulate(story, api)


@pytest.mark.parametrize("fault", AFTER.values(), ids=AFTER)
def test_a_binding_that_was_carried_out_is_found_out_by_reading(fault: Fault) -> None:
    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "p", 8)
        await fixture.until_idle(75)
        assert len(fixture.api.placed()) == 8

    def api() -> SchedulerApi:
        api = two_nodes()
        api.faults.rules.append(bindings(fault))
        return api

    fixture = simulate(story, api)
    assert Counter(name for name, _ in fixture.api.bindings) == Counter(f"p-{number:03}" for number in range(8))


def test_the_room_is_kept_while_a_lost_request_may_be_carried_out() -> None:
    """It comes back 40 seconds later, when the scheduler has long given up to send it."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(bindings(Fault("drop"), times=1))
        fixture.api.faults.rules.append(bindings(FAULTS["etcd or a webhook fails"], "late"))
        fixture.api.store(make_pod("late", cpu="4"))
        await fixture.until_idle(20)
        fixture.api.store(make_pod("rival", cpu="4"))
        await fixture.until_idle(20)
        assert fixture.api.placed() == {}, "the node is kept"
        fixture.api.faults.rules.clear()
        await pod_binding(make_pod("late"), "a").send(fixture.api.client())
        await fixture.until_idle(30)
        assert fixture.api.placed() == {"late": "a"}

    simulate(story, one_node)


def test_a_node_that_is_deleted_ends_the_attempts_to_bind_to_it() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(bindings(FAULTS["the server is not ready"]))
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        fixture.api.drop("nodes", "a")
        fixture.api.store(make_node("b"))
        await fixture.until_idle(8)
        fixture.api.faults.rules.clear()
        await fixture.until_idle(12)
        assert fixture.api.placed() == {"p": "b"}

    simulate(story, one_node)


def test_a_pod_that_is_deleted_after_its_answer_was_lost_leaves_nothing_behind() -> None:
    """Its deletion is seen between the moment at which it is read and that at which the answer arrives, which shows it
    on its node: it holds nothing for ever."""
    read = Rule(FAULTS["the answer itself is late"], "get", "pods", times=1)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules += [bindings(FAULTS["the answer is lost"], times=1), read]
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(1)
        assert fixture.api.placed() == {"p": "a"}
        fixture.api.drop("pods", "default/p")
        await fixture.until_idle(1)
        assert read.in_flight, "the answer comes after the deletion"
        await fixture.until_idle(DEADLINE)
        assert not read.in_flight
        fixture.api.store(make_pod("next", cpu="4"))
        await fixture.until_idle(12)
        assert fixture.api.placed() == {"next": "a"}

    simulate(story, one_node)


UNREADABLE = ["etcd or a webhook fails", "a webhook refuses", "there is never an answer"]


def unreadable(name: str, pods: str = "*") -> Rule:
    return Rule(FAULTS[name], "get", "pods", name=pods)


def said(fixture: RunningScheduler) -> list[str]:
    """The events that say that nobody knows."""
    return [name for name, _, note in fixture.events.notes if note.startswith("it is not known whether it is bound")]


@pytest.mark.parametrize("name", UNREADABLE)
def test_the_room_of_a_pod_that_cannot_be_read_is_kept_until_it_can(name: str) -> None:
    """That is said once, and the API server is not asked all the time."""
    read = unreadable(name)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules += [bindings(FAULTS["the connection breaks before"], times=1), read]
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(2 * DEADLINE)
        fixture.api.store(make_pod("rival", cpu="4"))
        await fixture.until_idle(2 * DEADLINE)
        assert fixture.api.placed() == {}, "the node is kept"
        assert fixture.scheduler.check_bindings()
        assert said(fixture) == ["p"]
        assert 4 < len(read.hits) <= 4 * DEADLINE / 20
        fixture.api.faults.rules.clear()
        await fixture.until_idle(65)
        assert set(fixture.api.placed().values()) == {"a"}
        assert fixture.scheduler.check_bindings() == ""

    simulate(story, one_node)


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_pod_that_cannot_be_read_is_bound_once_it_is_seen_on_its_node(name: str) -> None:
    read = unreadable(name)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules += [bindings(FAULTS["the connection breaks before"], times=1), read]
        fixture.api.store(make_pod("p"))
        await fixture.until_idle(45)
        assert ("p", "Scheduled", "Successfully assigned default/p to a") not in fixture.events.notes
        await pod_binding(make_pod("p"), "a").send(fixture.api.client())
        # A request without an answer takes half a minute.
        await fixture.until_idle(31 if name == "there is never an answer" else 0)
        assert ("p", "Scheduled", "Successfully assigned default/p to a") in fixture.events.notes
        count = len(read.hits)
        await fixture.until_idle(DEADLINE)
        assert len(read.hits) == count

    simulate(story, one_node)


def test_a_pod_that_is_seen_elsewhere_keeps_no_room_where_it_may_have_been_bound() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules += [
            bindings(FAULTS["the connection breaks before"], times=1),
            unreadable("etcd or a webhook fails"),
        ]
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(45)
        fixture.api.store(make_node("b"))
        await pod_binding(make_pod("p"), "b").send(fixture.api.client())
        fixture.api.store(make_pod("rival", cpu="4"))
        await fixture.until_idle(12)
        assert fixture.api.placed() == {"p": "b", "rival": "a"}

    simulate(story, one_node)


def test_a_pod_that_cannot_be_read_gives_its_room_back_when_it_is_deleted() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules += [
            bindings(FAULTS["the connection breaks before"], times=1),
            unreadable("etcd or a webhook fails"),
        ]
        fixture.api.store(make_pod("p", cpu="4"))
        await fixture.until_idle(45)
        fixture.api.drop("pods", "default/p")
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == 0
        assert fixture.scheduler.queue.get("uid-p") is None
        fixture.api.store(make_pod("next", cpu="4"))
        await fixture.until_idle(12)
        assert fixture.api.placed() == {"next": "a"}

    simulate(story, one_node)


@pytest.mark.parametrize("name", UNREADABLE)
def test_pods_are_bound_beside_many_that_cannot_be_read(name: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        lost = bindings(FAULTS["the connection breaks before"], "poisoned-*")
        fixture.api.faults.rules += [lost, unreadable(name, "poisoned-*")]
        store(fixture.api, "poisoned", POISONED)
        await fixture.until_idle(60)
        store(fixture.api, "good", GOOD)
        await fixture.until_idle(1)
        assert len(placed(fixture, "good")) == GOOD
        store(fixture.api, "again", 1)
        fixture.api.faults.rules.append(bindings(FAULTS["the server is overloaded"], "again-*", times=1))
        await fixture.until_idle(5)
        assert len(placed(fixture, "again")) == 1, "what is in trouble, too"
        fixture.api.faults.rules.clear()
        await fixture.until_idle(DEADLINE)
        assert len(fixture.api.placed()) == POISONED + GOOD + 1

    simulate(story, large)


def test_deciding_rests_while_no_server_is_reached() -> None:
    async def whole(fixture: RunningScheduler) -> None:
        store(fixture.api, "p", 300)
        fixture.api.binding_fault = lambda name, done: TransportError("connection refused", maybe_applied=False)
        await fixture.until_idle(10)
        assert fixture.scheduler.state.assumed_count <= 100
        fixture.api.binding_fault = lambda name, done: None
        await fixture.until_idle(20)
        assert len(fixture.api.placed()) == 300

    simulate(whole, large)


def test_it_ends_at_once_while_bindings_wait_until_they_are_sent_again() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(bindings(FAULTS["etcd or a webhook fails"]))
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == 1
        assert not fixture.scheduler.is_binding

    async def run() -> None:
        fixture = RunningScheduler(one_node())
        async with fixture.running():
            await story(fixture)
        assert fixture.api.placed() == {}

    asyncio.run(run())


class Slow(PreBindPlugin):
    """Waits for an object that never comes, for pods that are so labelled; patches others."""

    name = "Slow"

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        metadata = pod.pod.metadata
        if "slow" in metadata.labels:
            await writer.until(lambda: False, 50)
            raise RuntimeError("it never came")
        await writer.patch(PODS, metadata.name, metadata.namespace, {"metadata": {"annotations": {"prepared": ""}}})


def slow(view: ClusterView) -> Profile:
    base = make_profile(view)
    plugins: dict[str, Plugin] = {**base.plugins, "Slow": Slow(None, view)}
    return Profile(base.scheduler_name, plugins, replace(base.order, pre_bind=("Slow",)))


def test_pods_are_prepared_and_bound_beside_a_thousand_that_wait() -> None:
    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "slow", 1010, labels={"slow": ""}, cpu="10m", memory="1Mi")
        await fixture.until_idle(1)
        store(fixture.api, "good", 50, cpu="10m", memory="1Mi")
        await fixture.until_idle(1)
        assert len(placed(fixture, "good")) == 50
        fixture.api.faults.rules.clear()
        for number in range(1010):
            fixture.api.drop("pods", f"default/slow-{number:03}")
        await fixture.until_idle(60)

    simulate(story, large, slow)


@pytest.mark.parametrize(
    "name", ["the server is overloaded", "there is never an answer", "a webhook takes half a minute"]
)
def test_pods_are_prepared_beside_those_whose_patches_fail(name: str) -> None:
    rule = Rule(FAULTS[name], "patch", "pods", name="poisoned-*")

    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "poisoned", POISONED)
        await fixture.until_idle(1)
        store(fixture.api, "good", GOOD)
        await fixture.until_idle(5)
        assert len(placed(fixture, "good")) == GOOD
        assert len(set(rule.hits)) == POISONED
        fixture.api.faults.rules.clear()
        await fixture.until_idle(DEADLINE + 15)
        assert len(fixture.api.placed()) == POISONED + GOOD

    simulate(story, partial(large, rule), slow)


@pytest.mark.parametrize("name", ["the server is overloaded", "there is never an answer", "the server is not ready"])
def test_conditions_are_written_beside_those_of_pods_that_fail(name: str) -> None:
    rule = Rule(FAULTS[name], "patch", "pods", "status", name="poisoned-*")

    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "poisoned", 40, cpu="999")
        await fixture.until_idle(1)
        store(fixture.api, "large", 40, cpu="999")
        await fixture.until_idle(30)
        assert {name for name, _, _ in fixture.api.conditions} == {f"large-{number:03}" for number in range(40)}

    simulate(story, partial(large, rule))


def test_what_is_written_to_one_pod_keeps_its_order() -> None:
    """The first answer is late; what is reported meanwhile is written after it, and stays."""
    rule = Rule(Fault(delay=9), "patch", "pods", "status", times=1)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", cpu="9"))
        await fixture.until_idle(1)
        fixture.api.store(make_node("b", cpu="1"))
        await fixture.until_idle(20)
        assert [message.partition(" ")[0] for _, _, message in fixture.api.conditions] == ["0/1", "0/2"]

    simulate(story, partial(with_rules, rule))


def with_rules(*rules: Rule) -> SchedulerApi:
    api = one_node()
    api.faults.rules += rules
    return api


def test_victims_are_evicted_beside_those_that_cannot_be() -> None:
    """Twenty nodes whose victims hang, and one pod that needs a place on another."""
    rule = Rule(FAULTS["there is never an answer"], "delete", "pods", name="stuck-*")

    def api() -> SchedulerApi:
        api = SchedulerApi()
        for number in range(20):
            api.store(make_node(f"stuck-{number}", labels={"rank": "5"}))
            api.store(make_pod(f"stuck-{number}", cpu="4", priority=1, node=f"stuck-{number}"))
        api.store(make_node("good"))
        api.store(make_pod("victim", cpu="4", priority=5, node="good"))
        api.faults.rules.append(rule)
        return api

    async def story(fixture: RunningScheduler) -> None:
        for number in range(20):
            fixture.api.store(make_pod(f"high-{number}", cpu="4", priority=10, labels={"only": f"stuck-{number}"}))
        await fixture.until_idle(1)
        fixture.api.store(make_pod("higher", cpu="4", priority=10, labels={"only": "good"}))
        await fixture.until_idle(12)
        assert fixture.api.placed()["higher"] == "good"
        assert len(rule.hits) >= 20
        fixture.api.faults.rules.clear()
        await fixture.until_idle(70)
        await fixture.until_idle(70)

    simulate(story, api, partial(make_profile, preempts=True))


faults = st.one_of(st.none(), st.sampled_from(sorted(FAULTS)))


@settings(max_examples=examples(25))
@given(st.lists(faults, min_size=1, max_size=6), st.lists(st.floats(0, 20), min_size=1, max_size=6))
def test_any_mixture_of_faults_ends_well(names: list[str | None], times: list[float]) -> None:
    """No pod is bound twice and no node holds too much, which ``simulate`` checks, and all are bound in the end."""

    async def story(fixture: RunningScheduler) -> None:
        for number, (name, seconds) in enumerate(zip(names * 3, times * 3, strict=False)):
            if name is not None:
                fixture.api.faults.rules.append(bindings(FAULTS[name], times=2))
            fixture.api.store(make_pod(f"p{number}", cpu="1" if number % 3 else "2"))
            await fixture.until_idle(seconds)
        fixture.api.faults.rules.clear()
        fixture.api.store(make_node("c", cpu="64", memory="64Gi"))
        await fixture.until_idle(DEADLINE)
        await fixture.until_idle(12)
        assert len(fixture.api.placed()) == len(fixture.api.objects("pods"))

    simulate(story, two_nodes)
