"""What goes wrong around a scheduler, and that it ends well: no pod bound twice, no node over, nothing left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.kinds import NODE_METRICS, PODS
from koordinator.api.node import Node
from koordinator.kube.errors import ApiStatusError
from koordinator.scheduler.cycle.decision_limit import DecisionLimit, packages_of
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, Plugin, PluginError, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.queue.queued_pod import Pool
from tests.examples import examples
from tests.in_memory_api import NO_FAULT, ApiRequest
from tests.scheduler.fakes import describe, make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import (
    RunningScheduler,
    check,
    check_nothing_waits_for_nothing,
    simulate,
    two_nodes,
)
from tests.scheduler.scheduler_api import SchedulerApi, lost, unavailable


class Odd(FilterPlugin, EventHandler):
    """Misbehaves for pods and nodes that request it."""

    name = "Odd"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.labels.get("odd")

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        match pod.pod.metadata.labels.get("odd"):
            case "raise":
                raise ZeroDivisionError("division by zero")
            case "loop":
                while True:
                    pass
        return np.zeros(rows.shape[0], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> list[Reason]:
        return []

    def on_node(self, row: int, node: Node) -> None:
        if "odd" in node.metadata.labels:
            raise KeyError("odd")


def with_odd(view: ClusterView) -> Profile:
    base = make_profile(view)
    plugins: dict[str, Plugin] = {**base.plugins, "Odd": Odd(None, view)}
    order = base.order
    return Profile(base.scheduler_name, plugins, type(order)(**{**_fields(order), "filter": (*order.filter, "Odd")}))


def _fields(order: Any) -> dict[str, Any]:
    return {name: getattr(order, name) for name in order.__dataclass_fields__}


def end(story: Callable[[RunningScheduler], Any], api: Callable[[], SchedulerApi] = two_nodes) -> RunningScheduler:
    """Play the story and hold its end against everything that must be true then."""

    async def whole(fixture: RunningScheduler) -> None:
        await story(fixture)
        await fixture.until_idle(12)
        check_nothing_waits_for_nothing(fixture)

    return simulate(whole, api, with_odd)


def test_a_plugin_that_raises_costs_its_pod_an_attempt() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("odd", labels={"odd": "raise"}))
        fixture.api.store(make_pod("fine"))
        await fixture.until_idle()
        assert fixture.api.placed().keys() == {"fine"}
        assert fixture.scheduler.queue.size(Pool.BACKOFF) == 1
        fixture.api.store(make_pod("odd", labels={}))

    fixture = end(story)
    assert ("odd", "SchedulerError", "ZeroDivisionError: division by zero") in fixture.api.conditions
    assert fixture.api.placed().keys() == {"odd", "fine"}


def test_an_event_handler_that_raises_leaves_the_others_and_the_state_intact() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_node("c", labels={"odd": "", "rank": "9"}))
        fixture.api.store(make_pod("p"))
        await fixture.until_idle()
        labels = {"plugin": "Odd", "method": "on_node"}
        assert fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) == 1

    assert end(story).api.placed() == {"p": "c"}


def test_a_decision_that_never_ends_is_ended() -> None:
    fixture = RunningScheduler(two_nodes(), with_odd)
    engine, state = fixture.scheduler.engines["koord-scheduler"], fixture.scheduler.state
    state.set_node(make_node("a"))
    limit = DecisionLimit(0.05, packages_of([engine.profile]))
    with pytest.raises(PluginError, match=r"no decision within 0\.05 s; it was in .*Odd\.filter"), limit:
        engine.decide(describe(make_pod("p", labels={"odd": "loop"})), fixture.clock.now())
    with limit:
        assert engine.decide(describe(make_pod("q")), fixture.clock.now()) is not None


def test_the_wall_clock_may_jump() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("huge", cpu="9"))
        await fixture.until_idle()
        for days in (-400, 400):
            fixture.clock.set_wall(fixture.clock.now() + timedelta(days=days))
            fixture.api.store(make_pod(f"p{days}"))
            await fixture.until_idle()
            assert f"p{days}" in fixture.api.placed()

    end(story)


def test_thousands_of_pods_that_fit_nowhere_keep_nobody_waiting() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2000):
            fixture.api.store(make_pod(f"huge{number}", cpu="9"))
        await fixture.until_idle(30)
        assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 2000
        fixture.api.store(make_pod("small"))
        await fixture.until_idle()
        assert fixture.api.placed().keys() == {"small"}

    end(story)


def test_a_node_that_can_take_them_frees_all_who_waited_for_one() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(50):
            fixture.api.store(make_pod(f"huge{number}", cpu="9"))
        await fixture.until_idle()
        fixture.api.store(make_node("large", cpu="450", memory="50Gi"))
        await fixture.until_idle(12)
        assert len(fixture.api.placed()) == 50

    end(story)


def test_malformed_node_metrics_harm_nobody() -> None:
    async def story(fixture: RunningScheduler) -> None:
        odd, stray = (NODE_METRICS.type(metadata=make_node(name).metadata) for name in ("a", "of-nobody"))
        fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, None, odd)
        fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, None, stray)
        fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, stray, None)
        fixture.api.store(make_pod("p"))

    assert end(story).api.placed().keys() == {"p"}


def test_a_leader_that_dies_in_the_middle_of_bindings_leaves_nothing_twice() -> None:
    """Half of its requests arrive after the next leader has begun."""

    async def run() -> None:
        api = two_nodes()
        first = RunningScheduler(api, with_odd)
        late: list[ApiRequest] = []

        def delay(request: ApiRequest, done: bool) -> Exception | None:
            if request.subresource != "binding" or done or len(late) == 3:
                return None
            late.append(request)
            return lost()

        api.fault = delay
        for number in range(10):
            api.store(make_pod(f"p{number}"))
        with pytest.raises(ExceptionGroup):
            async with first.running():
                raise RuntimeError("killed")
        api.fault = NO_FAULT
        second = RunningScheduler(api, with_odd)
        async with second.running():
            for request in late:
                if not api.pod(request.name).spec.node_name:
                    await api.client().create(PODS, request.body, "default", name=request.name, subresource="binding")
            await second.until_idle(12)
            await second.until_idle(12)
            check_nothing_waits_for_nothing(second)
        check(second)
        assert len(api.placed()) == 8

    asyncio.run(run())


def nominated() -> SchedulerApi:
    """The one node is kept for an important pod, which waits until another one has left it."""
    api = SchedulerApi()
    api.store(make_node("a", cpu="4"))
    api.store(make_pod("leaving", priority=10, node="a"))
    vip = make_pod("vip", cpu="4", priority=10)
    api.store(replace(vip, status=replace(vip.status, nominated_node_name="a")))
    return api


def take_back(api: SchedulerApi) -> None:
    vip = api.pod("vip")
    api.store(replace(vip, status=replace(vip.status, nominated_node_name="")))


def begin_to_delete(api: SchedulerApi) -> None:
    vip = api.pod("vip")
    metadata = replace(vip.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    api.store(replace(vip, metadata=metadata))


def bind_elsewhere(api: SchedulerApi) -> None:
    vip = api.pod("vip")
    api.store(replace(vip, spec=replace(vip.spec, node_name="of-another-cluster")))


BROKEN_PROMISES: dict[str, Callable[[SchedulerApi], None]] = {
    "deleted": lambda api: api.drop("pods", "default/vip"),
    "being deleted": begin_to_delete,
    "bound to another node": bind_elsewhere,
    "no longer nominated": take_back,
}


@pytest.mark.parametrize("case", BROKEN_PROMISES)
def test_who_waited_for_the_capacity_of_a_nominated_pod_gets_it_when_that_pod_is(case: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle()
        fixture.api.store(make_pod("patient", cpu="2"))
        await fixture.until_idle(2)
        assert "patient" not in fixture.api.placed()
        BROKEN_PROMISES[case](fixture.api)
        await fixture.until_idle(12)
        assert fixture.api.placed()["patient"] == "a"

    end(story, nominated)


faults = st.sampled_from(["lost before", "lost after", "503 before", "503 after", "fine", "fine"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 14)),
        st.tuples(st.just("delete"), st.integers(0, 14)),
        st.tuples(st.just("node"), st.sampled_from("abc")),
        st.tuples(st.just("lose node"), st.sampled_from("abc")),
        st.tuples(st.just("time"), st.integers(0, 7)),
    ),
    max_size=40,
)


@settings(max_examples=examples(25))
@given(steps, st.lists(faults, min_size=1, max_size=8))
def test_any_mixture_of_faults_ends_well(story: list[tuple[str, Any]], responses: list[str]) -> None:
    async def play(fixture: RunningScheduler) -> None:
        count = 0

        def fault(name: str, done: bool) -> Exception | None:
            nonlocal count
            count += not done
            response = responses[count % len(responses)]
            if response.endswith("after" if done else "before"):
                return lost() if response.startswith("lost") else unavailable()
            return None

        fixture.api.binding_fault = fault
        for what, which in story:
            await act(fixture, what, which)
        fixture.api.binding_fault = lambda name, done: None
        await fixture.until_idle(30)

    end(play)


async def act(fixture: RunningScheduler, what: str, which: Any) -> None:
    pods, nodes = fixture.api.objects("pods"), fixture.api.objects("nodes")
    if what == "pod" and f"default/p{which}" not in pods:
        fixture.api.store(make_pod(f"p{which}", cpu=str(which % 3 + 1), uid=f"uid-{which}-{fixture.clock.monotonic()}"))
    elif what == "delete" and f"default/p{which}" in pods:
        fixture.api.drop("pods", f"default/p{which}")
    elif what == "node":
        fixture.api.store(make_node(which))
    elif what == "lose node" and which in nodes and which not in fixture.api.placed().values():
        fixture.api.drop("nodes", which)
    elif what == "time":
        await fixture.until_idle(float(which))


def test_that_pods_may_not_be_bound_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    forbidden = ApiStatusError(403, "Forbidden", 'User "eve" cannot create resource "pods/binding"')

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.binding_fault = lambda name, done: forbidden
        for number in range(3):
            fixture.api.store(make_pod(f"p{number}"))
        await fixture.until_idle(5)
        assert fixture.api.placed() == {}
        fixture.api.binding_fault = lambda name, done: None
        await fixture.until_idle(12)

    with caplog.at_level("INFO"):
        assert len(end(story).api.placed()) == 3
    said = [record.getMessage() for record in caplog.records if record.name == "koordinator.kube.lacks"]
    assert said == [
        'User "eve" cannot create resource "pods/binding": grant it with: koord manifests | kubectl apply -f -',
        "bindings: nothing is lacking any more",
    ]
