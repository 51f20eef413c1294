"""Preemption from decision to binding: who is evicted, what is written, and that promises are kept meanwhile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

import pytest
from aiohttp import web
from msgspec.structs import replace

from koordinator.api.kinds import PODS
from koordinator.api.labels import PREEMPTION_POLICY
from koordinator.api.modification import PREEMPTED
from koordinator.kube.errors import ApiStatusError
from koordinator.model.transformers import PREEMPTION_POLICY as PREEMPTION_POLICY_GATE
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.in_memory_api import ApiRequest, InMemoryResponse, Writer
from tests.real_world.faulty_api_server import FAULTS, Rule, bindings
from tests.scheduler.fakes import Fit, make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

preempting = partial(make_profile, preempts=True)


LEFT = datetime(2026, 1, 1, tzinfo=UTC)


def full_node(make: type[SchedulerApi] = SchedulerApi) -> SchedulerApi:
    api = make()
    api.store(make_node("a", cpu="2"))
    for name in ("low-1", "low-2"):
        api.store(make_pod(name, priority=1, node="a"))
    return api


def test_an_important_pod_gets_its_place() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()
        await fixture.until_idle(2)
        assert fixture.api.placed()["high"] == "a"
        assert len(fixture.api.placed()) == 2

    fixture = simulate(story, full_node, preempting)
    evicted = [note for note in fixture.events.notes if note[1] == "Preempted"]
    assert [text for _, _, text in evicted] == ["Preempted by pod uid-high on node a"]
    (record,) = fixture.events.records
    assert (record.action, record.actor, record.node) == (PREEMPTED, "Pod/default/high", "a")
    assert record.cause.code == "DefaultPreemption"


def test_victims_are_told_why() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()

    fixture = simulate(story, full_node, preempting)
    message = "koord-scheduler: preempting to accommodate a higher priority pod"
    assert [each[1:] for each in fixture.api.conditions if each[0] != "high"] == [("PreemptionByScheduler", message)]


def test_nobody_is_evicted_for_a_pod_whose_binding_would_be_refused() -> None:
    """By an admission webhook, say. Others may have the room, and it is tried again later."""

    async def story(fixture: RunningScheduler) -> None:
        rule = bindings(FAULTS["a webhook refuses"], "high")
        fixture.api.faults.rules.append(rule)
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle(60)
        assert 3 <= len(rule.hits) <= 12, "after its back-off"
        assert fixture.api.placed() == {"low-1": "a", "low-2": "a"}
        assert fixture.api.pod("high").status.nominated_node_name == ""
        fixture.api.faults.rules.clear()
        await fixture.until_idle(12)
        assert fixture.api.placed()["high"] == "a"

    fixture = simulate(story, full_node, preempting)
    why = {text for name, reason, text in fixture.events.notes if name == "high" and "nobody is evicted" in text}
    (text,) = why
    assert text.startswith("nobody is evicted for it: its Binding to a would fail: ")
    assert FAULTS["a webhook refuses"].message in text


def test_while_the_victim_leaves_the_place_is_kept() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()
        assert fixture.api.pod("high").status.nominated_node_name == "a"
        fixture.api.store(make_pod("rival", priority=10))
        leaving = [name for name in ("low-1", "low-2") if fixture.api.pod(name).metadata.deletion_timestamp]
        assert len(leaving) == 1
        fixture.api.drop("pods", f"default/{leaving[0]}")
        await fixture.until_idle(2)
        assert fixture.api.placed().get("high") == "a"
        assert "rival" not in fixture.api.placed()

    fixture = simulate(story, full_node, preempting)
    assert fixture.api.pod("rival").status.nominated_node_name == "a"


def test_nobody_is_evicted_twice_for_the_same_pod() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()
        for _ in range(3):
            fixture.api.store(make_node("b", cpu="0"))
            await fixture.until_idle(11)
            fixture.api.drop("nodes", "b")
        leaving = [name for name in ("low-1", "low-2") if fixture.api.pod(name).metadata.deletion_timestamp]
        assert len(leaving) == 1

    simulate(story, full_node, preempting)


def test_a_less_important_pod_loses_its_nomination() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(make_pod("middle", cpu="2", priority=5))
        await fixture.until_idle()
        assert fixture.api.pod("middle").status.nominated_node_name == "a"
        fixture.api.store(make_pod("high", cpu="2", priority=10))
        await fixture.until_idle()
        await fixture.until_idle(2)
        assert fixture.api.pod("middle").status.nominated_node_name == ""

    simulate(story, full_node, preempting)


def test_a_pod_that_may_not_preempt_waits() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("polite", priority=10, preemption_policy="Never"))
        await fixture.until_idle()
        assert len(fixture.api.placed()) == 2

    fixture = simulate(story, full_node, preempting)
    assert fixture.api.conditions[-1][2].endswith("not eligible due to preemptionPolicy=Never.")


def test_a_nomination_that_cannot_be_kept_any_more_frees_those_who_gave_way_to_it() -> None:
    def api() -> SchedulerApi:
        api = SchedulerApi()
        api.store(make_node("a", cpu="6"))
        leaving = make_pod("leaving", cpu="2", priority=1, node="a")
        metadata = replace(leaving.metadata, deletion_timestamp=LEFT)
        api.store(replace(leaving, metadata=metadata))
        vip = make_pod("vip", cpu="5", priority=10)
        api.store(replace(vip, status=replace(vip.status, nominated_node_name="a")))
        return api

    async def story(fixture: RunningScheduler) -> None:
        for _ in range(4):
            # Its pauses get longer than those of who comes later.
            fixture.api.store(make_node("b", cpu="0"))
            await fixture.until_idle(6)
            fixture.api.drop("nodes", "b")
        fixture.api.store(make_pod("larger", cpu="2", priority=20, node="a"))
        fixture.api.store(make_pod("patient", cpu="1"))
        await fixture.until_idle()
        assert fixture.api.pod("vip").status.nominated_node_name == "a"
        fixture.api.drop("pods", "default/leaving")
        await fixture.until_idle(2)
        await fixture.until_idle(20)
        assert fixture.api.placed().get("patient") == "a"

    simulate(story, api, preempting)


class PreciseFit(Fit):
    """As NodeResourcesFit has it: a pod is woken when it fits."""

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        about = event.new if event.new is not None else event.old
        assert isinstance(about, PodInfo)
        row = self.view.columns.row_of[about.pod.spec.node_name]
        return not self.filter_one(pod, None, row)


def precise(view: ClusterView) -> Profile:
    base = preempting(view)
    return Profile(base.scheduler_name, {**base.plugins, "Fit": PreciseFit(None, view)}, base.order)


def test_a_pod_whose_capacity_went_to_another_one_looks_for_other_capacity_when_its_victims_are_gone() -> None:
    def api() -> SchedulerApi:
        api = SchedulerApi()
        for node, priority in (("a", 1), ("b", 2)):
            api.store(make_node(node, cpu="2"))
            for number in range(2):
                api.store(make_pod(f"low-{node}{number}", priority=priority, node=node))
        return api

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(make_pod("high", cpu="2", priority=10))
        await fixture.until_idle()
        assert fixture.api.pod("high").status.nominated_node_name == "a"
        fixture.api.store(make_pod("vip", priority=20, node="a"))
        fixture.api.drop("pods", "default/low-a0")
        await fixture.until_idle(20)
        assert failures(fixture, "high") == 1, "the last victim is waited for"
        fixture.api.drop("pods", "default/low-a1")
        await fixture.until_idle(20)
        assert fixture.api.pod("high").status.nominated_node_name == "b"

    simulate(story, api, precise)


def failures(fixture: RunningScheduler, name: str) -> int:
    return sum(1 for note in fixture.events.notes if note[:2] == (name, "FailedScheduling"))


def test_no_attempt_is_made_in_vain_while_victims_are_evicted() -> None:
    def api() -> SchedulerApi:
        api = SchedulerApi()
        for node in "abcd":
            api.store(make_node(node, cpu="2"))
            for number in range(2):
                api.store(make_pod(f"low-{node}{number}", priority=1, node=node))
        return api

    async def story(fixture: RunningScheduler) -> None:
        for number in range(4):
            fixture.api.store(make_pod(f"high-{number}", cpu="2", priority=10))
        await fixture.until_idle()
        assert sorted(fixture.api.placed()) == [f"high-{number}" for number in range(4)]

    fixture = simulate(story, api, preempting)
    assert [failures(fixture, f"high-{number}") for number in range(4)] == [1, 1, 1, 1]


class TwoSteps(SchedulerApi):
    """As the real one deletes a pod without a period of grace: it is marked first, then gone."""

    async def respond(self, api_request: ApiRequest, request: web.BaseRequest, writer: Writer) -> InMemoryResponse:
        if api_request.verb != "delete":
            return await super().respond(api_request, request, writer)
        pod = self.pod(api_request.name)
        metadata = replace(pod.metadata, deletion_timestamp=LEFT, deletion_grace_period_seconds=0)
        self.store(replace(pod, metadata=metadata))
        return InMemoryResponse(200, {}, json.dumps(self.document(PODS, api_request.name, "default")).encode())


def test_a_victim_that_is_about_to_vanish_is_waited_for() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle(5)
        assert failures(fixture, "high") == 1
        (leaving,) = [key for key, pod in fixture.api.objects("pods").items() if pod.metadata.deletion_timestamp]
        fixture.api.drop("pods", leaving)
        await fixture.until_idle()
        assert fixture.api.placed()["high"] == "a"

    fixture = simulate(story, partial(full_node, TwoSteps), preempting)
    assert failures(fixture, "high") == 1


def test_a_victim_that_never_vanishes_does_not_keep_the_pod_waiting() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()
        fixture.api.store(make_node("b", cpu="1"))
        await fixture.until_idle(10)
        assert fixture.api.placed()["high"] == "b"

    simulate(story, partial(full_node, TwoSteps), preempting)


def test_nobody_else_is_evicted_for_a_pod_whose_victim_never_vanishes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        for _ in range(3):
            await fixture.until_idle(20)
            fixture.api.store(make_node("b", cpu="0"))
            await fixture.until_idle(20)
            fixture.api.drop("nodes", "b")
        assert failures(fixture, "high") > 1
        assert sum(pod.metadata.deletion_timestamp is not None for pod in fixture.api.objects("pods").values()) == 1

    simulate(story, partial(full_node, TwoSteps), preempting)


def test_a_victim_that_cannot_be_evicted_does_not_keep_the_pod_waiting() -> None:
    def refusing() -> SchedulerApi:
        api = full_node()
        conflict = ApiStatusError(409, "Conflict", "not now")
        api.fault = lambda api_request, done: conflict if api_request.verb == "delete" else None
        return api

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle()
        fixture.api.store(make_node("b", cpu="1"))
        await fixture.until_idle(2)
        assert fixture.api.placed()["high"] == "b"

    simulate(story, refusing, preempting)


@pytest.mark.parametrize("write", ["patch", "delete"])
def test_a_pod_whose_victim_may_not_be_evicted_says_so_and_is_tried_again_after_its_back_off(write: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        subresource = "status" if write == "patch" else ""
        rule = Rule(FAULTS["a webhook refuses"], write, "pods", subresource, "*", "low-*")
        fixture.api.faults.rules.append(rule)
        fixture.api.store(make_pod("high", priority=10))
        await fixture.until_idle(60)
        assert 3 <= len(rule.hits) <= 12, "after its back-off"
        assert fixture.api.pod("high").status.nominated_node_name == ""
        fixture.api.faults.rules.clear()
        await fixture.until_idle(12)
        assert fixture.api.placed()["high"] == "a"

    fixture = simulate(story, full_node, preempting)
    (text,) = {text for name, _, text in fixture.events.notes if name == "high" and "cannot be evicted" in text}
    assert text.startswith("pod default/low-")
    assert FAULTS["a webhook refuses"].message in text


def test_a_pod_that_is_deleted_while_its_victims_are_evicted_is_forgotten() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10))
        for _ in range(3):
            await fixture.clock.advance(0)
        fixture.api.drop("pods", "default/high")
        await fixture.until_idle()
        assert "uid-high" not in fixture.scheduler.queue

    simulate(story, full_node, preempting)


@pytest.mark.parametrize(
    ("policy", "gates", "evicts"),
    [
        ("Never", frozenset({PREEMPTION_POLICY_GATE}), False),
        ("PreemptLowerPriority", frozenset({PREEMPTION_POLICY_GATE}), True),
        ("Never", frozenset(), True),
    ],
)
def test_with_its_gate_a_pod_whose_label_forbids_it_evicts_nobody(
    policy: str, gates: frozenset[str], evicts: bool
) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("high", priority=10, labels={PREEMPTION_POLICY: policy}))
        await fixture.until_idle(20)
        assert ("high" in fixture.api.placed()) is evicts

    simulate(story, full_node, preempting, gates)
