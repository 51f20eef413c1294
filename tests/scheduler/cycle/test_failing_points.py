"""A plugin that raises, at each extension point: it costs its pod an attempt at most, and the scheduler nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

import pytest

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import (
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    CycleState,
    PermitPlugin,
    PodChanges,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import (
    EventHandler,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    FailureHandler,
    FindOneNodePlugin,
    ForgetHandler,
    NextPodPlugin,
    PodPatcher,
    PostFilterTransformer,
    PreferNodesPlugin,
    ResizePodPlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.recording import one_node
from tests.scheduler.running_scheduler import RunningScheduler, check, simulate


class Boom(Exception):
    """What the plugin raises."""


class _Before(
    ReservePlugin, PermitPlugin, PreBindPlugin, BindPlugin, PostBindPlugin, PodPatcher, FailureHandler, ForgetHandler
):
    """The points from Reserve on."""


class Breaking(
    _Before,
    PreEnqueuePlugin,
    PreFilterPlugin,
    FindOneNodePlugin,
    PreferNodesPlugin,
    NextPodPlugin,
    ResizePodPlugin,
    PostFilterTransformer,
    EventHandler,
):
    """Raises at the point that ``broken`` names, for the pod ``p``, and keeps books of what it has reserved."""

    name = "Breaking"
    broken: ClassVar[str] = ""

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.reserved: set[str] = set()
        self.forgotten: list[str] = []
        self.unreserved: list[str] = []
        self.raised = 0

    def at(self, point: str, pod: PodInfo | None = None) -> None:
        if point == self.broken and (pod is None or pod.pod.metadata.name == "p"):
            self.raised += 1
            raise Boom(point)

    def class_key(self, pod: PodInfo) -> Hashable:
        self.at("class_key", pod)
        return pod.pod.metadata.name

    def context_key(self, pod: PodInfo) -> Hashable:
        self.at("context_key", pod)
        return None

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        if pod.metadata.name == "p":
            self.at("pre_enqueue")
        return None

    def next_pod(self) -> str | None:
        self.at("next_pod")
        return ["not", "a", "uid"] if self.broken == "next_pod answers nonsense" else None  # type: ignore[return-value]

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        self.at("pre_filter", pod)
        return PreFilterResult(skip=True)

    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        self.at("find_one_node", pod)
        return None

    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        self.at("prefer_nodes", pod)
        return ()

    def resize_pod(self, pod: PodInfo, row: int) -> PodInfo | Reason | None:
        self.at("resize_pod", pod)
        return None

    def after_post_filter(self, pod: PodInfo, why: str) -> None:
        self.at("after_post_filter", pod)

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        self.reserved.add(pod.key)
        self.at("reserve", pod)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.unreserved.append(pod.key)
        self.reserved.discard(pod.key)
        self.at("unreserve", pod)

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        self.at("permit", pod)
        if pod.pod.metadata.name == "p":
            if self.broken == "permit answers nonsense":
                return Wait("long")  # type: ignore[arg-type]
            if self.broken in ("unreserve", "forget_pod", "before_failure", "after_failure"):
                return Reason("not yet")
            if self.broken.startswith("allowed:"):
                return Wait(5)
        return None

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        self.at("pre_binds", pod)
        self.at("allowed: pre_binds", pod)
        return pod.pod.metadata.name == "p"

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        self.at("pre_bind", pod)
        if self.broken == "pre_bind is cancelled":
            raise asyncio.CancelledError

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        self.at("bind", pod)
        return BindOutcome.SKIPPED

    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.at("post_bind", pod)

    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        return True

    def forget_pod(self, pod: PodInfo) -> None:
        self.forgotten.append(pod.key)
        self.at("forget_pod", pod)

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        self.at("before_failure", pod)
        return False

    def after_failure(self, pod: PodInfo, message: str) -> None:
        self.at("after_failure", pod)

    def on_node(self, row: int, node: Node) -> None:
        return

    def on_time(self, now: datetime) -> None:
        self.at("on_time")

    def next_time_event(self) -> float | None:
        self.at("next_time_event")
        return "soon" if self.broken == "next_time_event answers nonsense" else 0.0  # type: ignore[return-value]

    def time_events(self, now: datetime) -> Sequence[ClusterEvent]:
        self.at("time_events")
        return ()

    def events_to_register(self) -> frozenset[str]:
        self.at("events_to_register")
        return frozenset()


class Second(ReservePlugin, ForgetHandler):
    """Behind the broken one: what is to be done for it is done all the same."""

    name = "Second"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.reserved: set[str] = set()
        self.forgotten: list[str] = []

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        self.reserved.add(pod.key)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.reserved.discard(pod.key)

    def forget_pod(self, pod: PodInfo) -> None:
        self.forgotten.append(pod.key)


def breaking(view: ClusterView) -> Profile:
    base = make_profile(view)
    here = ("Second", "Breaking")
    order = replace(
        base.order,
        reserve=here,
        permit=here,
        pre_bind=here,
        bind=here,
        post_bind=here,
        pre_enqueue=("Breaking",),
        pre_filter=(*base.order.pre_filter, "Breaking"),
        post_filter=here,
    )
    plugins = {**base.plugins, "Breaking": Breaking(None, view), "Second": Second(None, view)}
    return Profile(base.scheduler_name, plugins, order)


def plugins_of(fixture: RunningScheduler) -> tuple[Breaking, Second]:
    plugins = fixture.scheduler.engines["koord-scheduler"].profile.plugins
    first, second = plugins["Breaking"], plugins["Second"]
    assert isinstance(first, Breaking)
    assert isinstance(second, Second)
    return first, second


FAILS_THE_ATTEMPT = (
    *("class_key", "context_key", "pre_filter", "find_one_node", "prefer_nodes", "resize_pod"),
    *("reserve", "permit", "permit answers nonsense", "pre_binds", "allowed: pre_binds", "pre_bind", "bind"),
    *("pre_bind is cancelled",),
)
IS_COUNTED = ("post_bind", "next_pod", "on_time", "next_time_event", "time_events")


@pytest.mark.parametrize("point", FAILS_THE_ATTEMPT)
def test_the_attempt_fails_and_is_made_again(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", point)
        fixture.api.store(make_pod("p"))
        fixture.api.store(make_pod("other"))
        await fixture.until_idle()
        if point.startswith("allowed:"):
            waiting = fixture.scheduler.state.view.waiting.get("uid-p")
            assert waiting is not None
            waiting.allow("Breaking")
            await fixture.until_idle()
        assert fixture.api.placed() == {"other": "a"}
        assert fixture.scheduler.queue.size(Pool.BACKOFF) == 1
        assert fixture.scheduler.state.assumed_count == 0
        first, second = plugins_of(fixture)
        assert first.reserved == second.reserved == {"default/other"}
        reached = "default/p" in first.unreserved
        assert second.forgotten.count("default/p") == reached
        monkeypatch.setattr(Breaking, "broken", "")
        await fixture.until_idle(2)

    fixture = simulate(story, one_node, breaking)
    assert fixture.api.placed() == {"p": "a", "other": "a"}
    assert [reason for name, reason, _ in fixture.api.conditions if name == "p"] == ["SchedulerError"]


@pytest.mark.parametrize("point", IS_COUNTED)
def test_the_error_is_counted_and_the_pod_placed(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", point)
        fixture.api.store(make_pod("p"))
        fixture.api.store(make_pod("other"))
        await fixture.until_idle()

    fixture = simulate(story, one_node, breaking)
    assert fixture.api.placed() == {"p": "a", "other": "a"}
    labels = {"plugin": "Breaking", "method": point}
    assert (fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) or 0) > 0


@pytest.mark.parametrize("point", ["unreserve", "forget_pod", "before_failure", "after_failure"])
def test_what_follows_a_refusal_is_done_all_the_same(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", point)
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        first, second = plugins_of(fixture)
        assert first.raised
        assert first.reserved == second.reserved == set()
        assert first.forgotten == second.forgotten == ["default/p"]
        assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 1
        monkeypatch.setattr(Breaking, "broken", "")
        fixture.api.store(make_pod("p", labels={"changed": ""}))
        await fixture.until_idle(2)

    fixture = simulate(story, one_node, breaking)
    assert fixture.api.placed() == {"p": "a"}
    assert fixture.api.conditions[0] == ("p", "Unschedulable", "0/1 nodes are available: 1 not yet.")
    labels = {"plugin": "Breaking", "method": point}
    assert fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) == 1


@pytest.mark.parametrize("point", ["after_post_filter", "events_to_register"])
def test_a_pod_that_fits_nowhere_is_tried_again(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", point)
        fixture.api.store(make_pod("p", cpu="9"))
        await fixture.until_idle()
        monkeypatch.setattr(Breaking, "broken", "")
        fixture.api.store(make_node("large", cpu="16"))
        await fixture.until_idle(2)

    assert simulate(story, one_node, breaking).api.placed() == {"p": "large"}


@pytest.mark.parametrize("nonsense", ["next_pod answers nonsense", "next_time_event answers nonsense"])
def test_a_response_that_means_nothing_is_passed_over(nonsense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", nonsense)
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()

    assert simulate(story, one_node, breaking).api.placed() == {"p": "a"}


def test_a_pod_that_cannot_be_let_into_the_queue_says_so_and_is_let_in_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fixture: RunningScheduler) -> None:
        monkeypatch.setattr(Breaking, "broken", "pre_enqueue")
        fixture.api.store(make_pod("p"))
        fixture.api.store(make_pod("other"))
        await fixture.until_idle()
        assert fixture.api.placed() == {"other": "a"}
        assert fixture.scheduler.queue.size(Pool.GATED) == 1
        monkeypatch.setattr(Breaking, "broken", "")
        await fixture.until_idle(2)

    fixture = simulate(story, one_node, breaking)
    message = "plugin Breaking failed in pre_enqueue: Boom: pre_enqueue"
    assert fixture.api.placed() == {"p": "a", "other": "a"}
    assert fixture.api.conditions == [("p", "SchedulerError", message)]
    assert ("p", "FailedScheduling", message) in fixture.events.notes


def test_who_waits_to_lead_says_nothing_about_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> RunningScheduler:
        monkeypatch.setattr(Breaking, "broken", "pre_enqueue")
        fixture = RunningScheduler(one_node(), breaking)
        watching = asyncio.create_task(fixture.scheduler.watch())
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        watching.cancel()
        return fixture

    fixture = asyncio.run(run())
    assert fixture.scheduler.queue.size(Pool.GATED) == 1
    assert fixture.events.notes == []


class Restless(ControllerProvider):
    """Its controller fails the first two times, and its sibling cannot even be made."""

    name = "Restless"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.runs = 0

    def controllers(self, writer: ClusterWriter) -> Sequence[Controller]:
        plugin = self

        class Once:
            name = "once"

            async def run(self) -> None:
                plugin.runs += 1
                if plugin.runs < 3:
                    raise Boom("controller")

        return (Once(),)


class Unmade(ControllerProvider):
    name = "Unmade"

    def controllers(self, writer: ClusterWriter) -> Sequence[Controller]:
        raise Boom("controllers")


def test_a_controller_that_fails_is_run_again() -> None:
    def restless(view: ClusterView) -> Profile:
        base = make_profile(view)
        plugins = {**base.plugins, "Unmade": Unmade(None, view), "Restless": Restless(None, view)}
        return Profile(base.scheduler_name, plugins, base.order)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        for _ in range(4):
            await fixture.until_idle(20)
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Restless"]
        assert isinstance(plugin, Restless)
        assert plugin.runs == 3

    fixture = simulate(story, one_node, restless)
    assert fixture.api.placed() == {"p": "a"}
    for plugin, method, count in (("Restless", "controller once", 2), ("Unmade", "controllers", 1)):
        labels = {"plugin": plugin, "method": method}
        assert fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) == count


def test_an_error_of_our_own_costs_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> RunningScheduler:
        fixture = RunningScheduler(one_node())
        broken = iter([True])
        decide = fixture.scheduler.engines["koord-scheduler"].decide

        def decide_badly(pod: PodInfo, now: datetime) -> Any:
            if next(broken, False):
                raise Boom("a defect")
            return decide(pod, now)

        monkeypatch.setattr(fixture.scheduler.engines["koord-scheduler"], "decide", decide_badly)
        async with fixture.running():
            fixture.api.store(make_pod("p"))
            await fixture.until_idle(2)
        check(fixture)
        return fixture

    fixture = asyncio.run(run())
    assert fixture.api.placed() == {"p": "a"}
    assert fixture.api.conditions == [("p", "SchedulerError", "Boom: a defect")]
