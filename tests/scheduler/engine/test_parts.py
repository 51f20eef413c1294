"""A plugin that is composed of parts takes part as if it were one class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from koordinator.api.kinds import POD_GROUPS, Kind
from koordinator.api.meta import Object
from koordinator.scheduler.configuration.third_party import implemented_points
from koordinator.scheduler.engine.binding_points import CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, Rows
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import (
    EventHandler,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.engine.extended import Shared, decide, engine_with, message_of, node_of
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import profile_with
from tests.scheduler.plugins.coscheduling.gang_fakes import pod_group
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


class Part(Plugin):
    name = "Composed"

    def class_key(self, pod: PodInfo) -> Hashable:
        return tuple(sorted(pod.pod.metadata.labels.items()))


class Reading(Part, PreFilterPlugin):
    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(state=pod.pod.metadata.labels.get("avoid", ""))


class Avoiding(Part, FilterPlugin):
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE,)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        assert state is not None, "PreFilter has run"
        return np.array([self.view.columns.names[row] in state for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) were avoided"),)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        return "stays" not in pod.pod.metadata.labels


class Preferring(Part, ScorePlugin):
    score_reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE,)

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array([100 * (self.view.columns.names[row] == "b") for row in rows.tolist()], dtype=np.int64)


class Refusing(Part, CyclePreFilterPlugin):
    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        return Reason("not now") if "refuse" in pod.pod.metadata.labels else None

    def waits_as(self, pod: PodInfo) -> Hashable:
        return "all alike"

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE})


class Composed(Plugin):
    name = "Composed"
    part_types = (Reading, Avoiding, Preferring, Refusing)


def test_it_implements_the_points_of_its_parts() -> None:
    assert implemented_points(Composed) == {"preFilter", "filter", "score"}


def test_the_state_of_one_part_reaches_another_under_the_name_of_the_plugin() -> None:
    engine, _, _ = engine_with(Composed, point="filter")
    assert node_of(decide(engine, labels={"avoid": "a"})) == "b"
    result = decide(engine, labels={"avoid": "ab"})
    assert isinstance(result, Rejection)
    assert result.plugins == {"Composed"}
    assert result.message == "0/2 nodes are available: 2 node(s) were avoided."


def test_it_is_called_where_it_is_listed_alone() -> None:
    engine, _, _ = engine_with(Composed, point="score")
    assert node_of(decide(engine, labels={"avoid": "b", "refuse": "yes"})) == "b"
    engine, _, _ = engine_with(Composed, point="pre_filter")
    assert message_of(decide(engine, labels={"refuse": "yes"})) == "0/2 nodes are available: not now."
    assert node_of(decide(engine, labels={"avoid": "a"})) == "a"


def test_the_parts_have_its_arguments_and_handle_and_find_each_other() -> None:
    engine, state, plugin = engine_with(Composed)
    for part in plugin.parts:
        assert (part.args, part.view, part.handle) == (plugin.args, state.view, engine.handle)
    assert engine.handle.plugin(Avoiding) is plugin.parts[1]
    assert engine.handle.plugin(Composed) is plugin


def test_pods_wait_as_the_part_says_that_has_rejected_them() -> None:
    engine, _, _ = engine_with(Composed, point="pre_filter")
    result = decide(engine, labels={"refuse": "yes"})
    assert isinstance(result, Rejection)
    assert result.waits_as == ("Composed", "all alike")
    assert {EventKind.NODE_ADD, EventKind.POD_DELETE} <= result.events_to_register


def test_an_event_may_help_when_a_part_that_registers_it_says_so() -> None:
    _, _, plugin = engine_with(Composed)
    moves, stays = describe(make_pod("p")), describe(make_pod("q", labels={"stays": "yes"}))
    added = ClusterEvent(EventKind.NODE_ADD, make_node("c"))
    assert plugin.queueing_hint(moves, added)
    assert not plugin.queueing_hint(stays, added)
    assert plugin.queueing_hint(stays, ClusterEvent(EventKind.POD_DELETE, moves))
    assert Shared(None, plugin.view).events_to_register() == frozenset()
    assert Shared(None, plugin.view).queueing_hint(stays, added)


class Seeing(Part, EventHandler):
    watches: ClassVar[tuple[Kind[Any], ...]] = (POD_GROUPS,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.seen: list[str] = []

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        self.seen.append(key)


class Watching(Plugin):
    name = "Composed"
    part_types = (Seeing,)


def test_what_a_part_watches_is_watched() -> None:
    def profile(view: ClusterView) -> Profile:
        return profile_with(view, Watching)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 1), POD_GROUPS)
        await fixture.until_idle()
        part = fixture.scheduler.engines["koord-scheduler"].profile.first(Seeing)
        assert part is not None
        assert part.seen == ["default/g"]

    simulate(story, SchedulerApi, profile)
