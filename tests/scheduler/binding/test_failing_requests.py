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
from koordinator.scheduler.binding.binder import DEADLINE, binding_body
from koordinator.scheduler.engine.binding_points import ClusterWriter, PodChanges, PreBindPlugin
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.cycle_state import CycleState
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
        body = binding_body("default", "late", "uid-late", "a")
        await fixture.api.client().create(PODS, body, "default", name="late", subresource="binding")
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
    """The pod is read before its deletion is seen, or after: in no case does it hold anything for ever."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(bindings(FAULTS["the answer is lost"]))
        fixture.api.store(make_pod("p", cpu="4"))
        for _ in range(3):
            await fixture.clock.advance(0)
        fixture.api.drop("pods", "default/p")
        await fixture.until_idle(DEADLINE)
        fixture.api.faults.rules.clear()
        fixture.api.store(make_pod("next", cpu="4"))
        await fixture.until_idle(12)
        assert fixture.api.placed() == {"next": "a"}

    simulate(story, one_node)


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


def test_pods_are_prepared_beside_those_whose_patches_fail() -> None:
    rule = Rule(FAULTS["the server is overloaded"], "patch", "pods", name="poisoned-*")

    async def story(fixture: RunningScheduler) -> None:
        store(fixture.api, "poisoned", POISONED)
        await fixture.until_idle(1)
        store(fixture.api, "good", GOOD)
        await fixture.until_idle(5)
        assert len(placed(fixture, "good")) == GOOD
        assert len(set(rule.hits)) == POISONED
        fixture.api.faults.rules.clear()
        await fixture.until_idle(30)
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
