"""A node is deleted while the members of a gang are being bound: who is bound to another node stays, the rest is tried
again, and nobody waits for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import POD_GROUPS
from koordinator.scheduler.engine.binding_points import ClusterWriter, CycleState, PodChanges, PreBindPlugin
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.documents import explain_gang
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, pod_group
from tests.scheduler.plugins.coscheduling.test_plugin import gang_profile, nodes
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

MEMBERS: Final = ("a-0", "a-1", "a-2", "b-0")
"""Of the gangs ``a`` and ``b``, which are placed together."""
POLICIES: Final = ("once-satisfied", "waiting-and-running", "only-waiting")
MODES: Final = ("Strict", "NonStrict")


class Barrier(PreBindPlugin):
    """Holds each of the members back before its Binding until it is let through."""

    name = "Barrier"

    def __init__(self) -> None:
        self.args = None
        self._open = {name: asyncio.Event() for name in MEMBERS}

    def let_through(self, names: Iterable[str]) -> None:
        for name in names:
            self._open[name].set()

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        if pod.pod.metadata.name in self._open:
            await self._open[pod.pod.metadata.name].wait()


class Stage:
    """A group of gangs that has a node for every member, one each, of which none is bound yet."""

    def __init__(self, fixture: RunningScheduler, barrier: Barrier) -> None:
        self.fixture = fixture
        self._barrier = barrier
        self._view = fixture.scheduler.state.view

    def node_of(self, name: str) -> str:
        """Where the member is assumed, or bound."""
        rows = [row for row, pods in self._view.pods_on.items() if f"uid-{name}" in pods]
        return self._view.columns.names[rows[0]]

    async def bind(self, names: Iterable[str]) -> None:
        self._barrier.let_through(names)
        await self.fixture.until_idle()

    async def delete_node_of(self, name: str) -> None:
        self.fixture.api.drop("nodes", self.node_of(name))
        await self.fixture.until_idle()

    @property
    def placed(self) -> set[str]:
        return set(self.fixture.api.placed())

    def explained(self, gang: str) -> dict[str, Any]:
        cache: GangCache = self._view.shared["coscheduling"].cache
        document: dict[str, Any] = to_document(explain_gang(cache, cache.gangs[f"default/{gang}"], lambda member: ""))
        return document


def play(story: Callable[[Stage], Any], policy: str, mode: str) -> SchedulerApi:
    barriers: list[Barrier] = []

    def profile(view: ClusterView) -> Profile:
        base = gang_profile(view)
        barriers.append(Barrier())
        order = replace(base.order, pre_bind=(Barrier.name, *base.order.pre_bind))
        return Profile(base.scheduler_name, {**base.plugins, Barrier.name: barriers[0]}, order)

    def api() -> SchedulerApi:
        made = nodes(*(1 for _ in MEMBERS))
        together = '["default/a", "default/b"]'
        for gang, minimum in (("a", 3), ("b", 1)):
            group = pod_group(gang, minimum, mode=mode, match_policy=policy, groups=together)
            made.store(group, POD_GROUPS)
        for name in MEMBERS:
            gang, _, number = name.partition("-")
            made.store(labelled(gang, int(number)))
        return made

    async def reported(fixture: RunningScheduler) -> None:
        stage = Stage(fixture, barriers[0])
        assert fixture.scheduler.state.assumed_count == len(MEMBERS)
        await story(stage)

    return simulate(reported, api, profile).api


def more_capacity(stage: Stage) -> None:
    stage.fixture.api.store(make_node("later", cpu="1"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("bound", range(len(MEMBERS)))
@pytest.mark.parametrize("victim", MEMBERS)
def test_who_has_lost_the_node_is_bound_when_there_is_another(victim: str, bound: int, policy: str, mode: str) -> None:
    first = [name for name in MEMBERS if name != victim][:bound]

    async def story(stage: Stage) -> None:
        await stage.bind(first)
        await stage.delete_node_of(victim)
        await stage.bind(MEMBERS)
        assert stage.placed == {*MEMBERS} - {victim}
        more_capacity(stage)
        await stage.fixture.until_idle(12)

    assert play(story, policy, mode).placed().keys() == {*MEMBERS}


@pytest.mark.parametrize("policy", POLICIES)
def test_several_that_have_lost_their_nodes_are_bound_one_after_another(policy: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.bind(["a-1"])
        for victim in ("a-0", "b-0"):
            await stage.delete_node_of(victim)
        await stage.bind(MEMBERS)
        for number in range(2):
            stage.fixture.api.store(make_node(f"later-{number}", cpu="1"))
            await stage.fixture.until_idle(12)

    assert play(story, policy, "Strict").placed().keys() == {*MEMBERS}


def test_who_was_not_to_be_bound_with_the_others_waits_for_as_many_as_its_policy_requests() -> None:
    async def story(stage: Stage) -> None:
        await stage.bind(MEMBERS)
        more_capacity(stage)
        stage.fixture.api.store(labelled("a", 9))
        await stage.fixture.until_idle(12)

    assert play(story, "only-waiting", "Strict").placed().keys() == {*MEMBERS}


@pytest.mark.parametrize(("policy", "is_placed"), [(policy, policy != "only-waiting") for policy in POLICIES])
def test_who_replaces_a_member_that_has_gone_with_its_node_is_placed_as_the_policy_says(
    policy: str, is_placed: bool
) -> None:
    """As a Job does when the garbage collector of pods has deleted one whose node is gone."""

    async def story(stage: Stage) -> None:
        await stage.bind(MEMBERS)
        await stage.delete_node_of("a-0")
        stage.fixture.api.drop("pods", "default/a-0")
        stage.fixture.api.store(labelled("a", 9))
        more_capacity(stage)
        await stage.fixture.until_idle(12)

    assert ("a-9" in play(story, policy, "Strict").placed()) is is_placed


@pytest.mark.parametrize("policy", POLICIES)
def test_the_explanation_says_that_the_gang_is_bound_in_part_and_why(policy: str) -> None:
    async def story(stage: Stage) -> None:
        node = stage.node_of("a-0")
        await stage.delete_node_of("a-0")
        await stage.bind(MEMBERS)
        why = f"binding rejected: node {node} was deleted before the pod was bound to it"
        found = stage.explained("a")
        assert found["state"] == "is bound in part"
        assert found["waitsFor"][0] == (
            "Of those that were to be bound together 3 are bound, and default/a-0 was not, which is tried again: "
            f"{why}."
        )
        assert [each["reason"] for each in found["waiting"]] == [
            f"was not bound with the others: {why}; is tried again"
        ]

    play(story, policy, "Strict")


@pytest.mark.parametrize("policy", POLICIES)
def test_the_explanation_says_no_more_of_it_once_all_are_bound(policy: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.delete_node_of("a-0")
        await stage.bind(MEMBERS)
        more_capacity(stage)
        await stage.fixture.until_idle(12)
        found = stage.explained("a")
        assert (found["state"], found["waitsFor"]) == ("has a node for every member", [])

    play(story, policy, "Strict")
