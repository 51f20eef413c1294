"""From the decision to the binding: waiting for permission, work before the binding, binders other than the API."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from koordinator.scheduler.engine.binding_points import (
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    PermitPlugin,
    PodChanges,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.extender import FailureHandler, NextPodPlugin, PodPatcher
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fake_api import FakeApi
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.world import World, simulate


class Recording(ReservePlugin, PermitPlugin, PreBindPlugin, BindPlugin, PostBindPlugin, PodPatcher, FailureHandler):
    """Does at each point what a label of that name asks for, and keeps a record."""

    name = "Recording"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.record: list[str] = []
        self.written: dict[str, PodChanges] = {}
        self.opened = False

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def reserve(self, pod: PodInfo, row: int) -> None:
        self.record.append("reserve")

    def unreserve(self, pod: PodInfo, row: int) -> None:
        self.record.append("unreserve")

    def permit(self, pod: PodInfo, row: int) -> Reason | Wait | None:
        match pod.pod.metadata.labels.get("permit"):
            case "wait":
                return Wait(30)
            case "refuse":
                return Reason("the gate is shut")
        return None

    def pre_binds(self, pod: PodInfo, node_name: str) -> bool:
        return "pre-bind" in pod.pod.metadata.labels

    async def pre_bind(self, pod: PodInfo, node_name: str, changes: PodChanges, writer: ClusterWriter) -> None:
        match pod.pod.metadata.labels["pre-bind"]:
            case "raise":
                raise RuntimeError("no such volume")
            case "hang":
                await asyncio.Event().wait()
            case "until":
                self.record.append(f"until {await writer.until(lambda: self.opened, 20)}")
        changes.annotations["chosen"] = node_name

    async def bind(self, pod: PodInfo, node_name: str, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.BOUND if pod.pod.metadata.labels.get("bind") == "mine" else BindOutcome.SKIPPED

    def post_bind(self, pod: PodInfo, node_name: str) -> None:
        self.record.append("bound")

    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        self.written[pod.pod.metadata.name] = changes
        return True

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        self.record.append(f"failed: {message}")
        return "swallow" in pod.pod.metadata.labels


def recording(view: ClusterView) -> Profile:
    base = make_profile(view)
    name = Recording.name
    plugins: dict[str, Plugin] = {**base.plugins, name: Recording(None, view)}
    here = (name,)
    order = replace(base.order, reserve=here, permit=here, pre_bind=here, bind=here, post_bind=here)
    return Profile(base.scheduler_name, plugins, order)


def plugin_of(world: World) -> Recording:
    plugin = world.scheduler.engines["koord-scheduler"].profile.plugins["Recording"]
    assert isinstance(plugin, Recording)
    return plugin


def one_node() -> FakeApi:
    api = FakeApi()
    api.put(make_node("a"))
    return api


def play(*seconds: float, **labels: str) -> World:
    """One pod with these labels, and then so many seconds, one after the other."""

    async def story(world: World) -> None:
        world.api.put(make_pod("p", labels={key.replace("_", "-"): value for key, value in labels.items()}))
        await world.settle()
        for each in seconds:
            await world.settle(each)

    return simulate(story, one_node, recording)


def test_a_pod_that_nobody_holds_back_is_bound() -> None:
    world = play()
    assert world.api.placed() == {"p": "a"}
    assert plugin_of(world).record == ["reserve", "bound"]


def test_a_waiting_pod_keeps_its_room_until_it_is_allowed() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", cpu="3", labels={"permit": "wait"}))
        world.api.put(make_pod("other", cpu="3"))
        await world.settle()
        assert world.api.placed() == {}
        waiting = world.scheduler.state.view.waiting.get("uid-p")
        assert waiting is not None
        waiting.allow("Recording")
        await world.settle()
        assert world.api.placed() == {"p": "a"}

    simulate(story, one_node, recording)


def test_a_rejected_pod_gives_its_room_back_and_says_why() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", cpu="3", labels={"permit": "wait"}))
        world.api.put(make_pod("other", cpu="3"))
        await world.settle()
        waiting = world.scheduler.state.view.waiting.get("uid-p")
        assert waiting is not None
        waiting.reject("Recording", "the gang has broken up")
        await world.settle(2)
        assert world.api.placed() == {"other": "a"}

    world = simulate(story, one_node, recording)
    assert ("p", "Unschedulable", "0/1 nodes are available: 1 the gang has broken up.") in world.api.conditions


def test_patience_ends() -> None:
    world = play(29.0, 1.5, permit="wait")
    assert "failed: 0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Recording." in (
        plugin_of(world).record
    )


def test_a_waiting_pod_that_is_deleted_gives_its_room_back() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", labels={"permit": "wait"}))
        await world.settle()
        world.api.remove("pods", "default/p")
        await world.settle()
        assert len(world.scheduler.state.view.waiting) == 0

    world = simulate(story, one_node, recording)
    assert "unreserve" in plugin_of(world).record


def test_a_waiting_pod_that_is_being_deleted_gives_its_room_back() -> None:
    """Something holds its end up, so that it stays for a while."""

    async def story(world: World) -> None:
        world.api.put(make_pod("p", cpu="3", labels={"permit": "wait"}))
        world.api.put(make_pod("other", cpu="3"))
        await world.settle()
        pod = world.api.pod("p")
        metadata = structs.replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
        world.api.put(structs.replace(pod, metadata=metadata))
        await world.settle(2)
        assert world.api.placed() == {"other": "a"}

    simulate(story, one_node, recording)


def test_a_refused_pod_waits_with_that_as_its_reason() -> None:
    world = play(permit="refuse")
    assert world.api.conditions == [("p", "Unschedulable", "0/1 nodes are available: 1 the gate is shut.")]
    assert world.scheduler.queue.size(Pool.UNSCHEDULABLE) == 1


def test_what_plugins_decide_is_written_before_the_binding() -> None:
    world = play(pre_bind="yes")
    assert plugin_of(world).written["p"].annotations == {"chosen": "a"}
    assert world.api.placed() == {"p": "a"}


def test_a_pod_whose_preparation_fails_is_tried_again() -> None:
    world = play(pre_bind="raise")
    assert world.api.placed() == {}
    assert world.api.conditions[0][1:] == ("SchedulerError", "binding rejected: no such volume")
    assert "unreserve" in plugin_of(world).record


def test_a_preparation_that_hangs_is_given_up_and_delays_nobody() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", labels={"pre-bind": "hang"}))
        world.api.put(make_pod("other"))
        await world.settle()
        assert world.api.placed() == {"other": "a"}
        await world.settle(61)
        world.api.remove("pods", "default/p")

    world = simulate(story, one_node, recording)
    message = "binding rejected: plugin Recording did not finish within 60 s"
    assert ("p", "SchedulerError", message) in world.api.conditions


@pytest.mark.parametrize("opened", [True, False])
def test_a_preparation_may_wait_for_what_others_do(opened: bool) -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", labels={"pre-bind": "until"}))
        await world.settle(5)
        plugin_of(world).opened = opened
        world.api.put(make_node("b"))
        await world.settle(16)
        await world.settle()

    world = simulate(story, one_node, recording)
    assert f"until {opened}" in plugin_of(world).record


def test_a_plugin_may_do_the_binding_itself() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", labels={"bind": "mine"}))
        await world.settle()
        assert world.api.bindings == []
        assert plugin_of(world).record == ["reserve", "bound"]
        world.api.put(make_pod("p", node="a"))

    simulate(story, one_node, recording)


def test_a_failure_handler_may_take_over() -> None:
    async def story(world: World) -> None:
        world.api.put(make_pod("p", cpu="9", labels={"swallow": ""}))
        await world.settle()
        assert world.api.conditions == []
        world.api.remove("pods", "default/p")

    world = simulate(story, one_node, recording)
    assert plugin_of(world).record == ["failed: 0/1 nodes are available: 1 Insufficient cpu."]


class OutOfTurn(NextPodPlugin):
    """Wants the pod ``wanted`` to be tried before all others, once it is there."""

    name = "OutOfTurn"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.wanted: str | None = None
        self.fails = False

    def next_pod(self) -> str | None:
        if self.fails:
            raise RuntimeError("no idea")
        return self.wanted


def out_of_turn(wanted: str | None, *, fails: bool = False) -> list[str]:
    """The order in which three pods are bound, of which the first has the highest priority."""

    def profile(view: ClusterView) -> Profile:
        base = make_profile(view)
        plugin = OutOfTurn(None, view)
        plugin.wanted, plugin.fails = wanted, fails
        return Profile(base.scheduler_name, {**base.plugins, plugin.name: plugin}, base.order)

    async def story(world: World) -> None:
        for number, name in enumerate("abc"):
            world.api.put(make_pod(name, priority=9 - number))
        world.api.put(make_node("n"))

    return [name for name, _ in simulate(story, profile=profile).api.bindings]


def test_a_plugin_may_name_the_next_pod() -> None:
    assert out_of_turn("uid-c") == ["c", "a", "b"]


@pytest.mark.parametrize("fails", [False, True])
def test_without_an_answer_the_queue_decides(fails: bool) -> None:
    assert out_of_turn("uid-unknown", fails=fails) == ["a", "b", "c"]
