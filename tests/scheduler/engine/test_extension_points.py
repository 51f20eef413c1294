"""Koordinator's extension points, each with a small plugin that uses it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.node import Node
from koordinator.scheduler.controllers import is_selected, make_controllers
from koordinator.scheduler.engine.adjustment import Adjustment
from koordinator.scheduler.engine.binding_points import ClusterWriter, PermitPlugin, Wait
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import CPU, Rows
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.extender import (
    Controller,
    ControllerProvider,
    FilterTransformer,
    FindOneNodePlugin,
    ForgetHandler,
    PostFilterTransformer,
    PreferNodesPlugin,
    PreFilterTransformer,
    ReservationFilterPlugin,
    ReservationNominator,
    ReservationRestorePlugin,
    ReservationScorePlugin,
    ResizePodPlugin,
    ScoreTransformer,
)
from koordinator.scheduler.engine.framework import Plugin, PluginError, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.reservation_points import (
    filter_reservation,
    restore_reservations,
    score_reservations,
)
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def engine_with(kind: type[Plugin], nodes: Sequence[Node] = (), point: str = "") -> tuple[Engine, ClusterState, Any]:
    """The usual small profile and one plugin more, listed at ``point``."""
    state = make_state(nodes or [make_node("a"), make_node("b")])
    base = make_profile(state.view)
    plugin = kind(None, state.view)
    order = base.order
    if point == "score":
        order = replace(order, score=(*order.score, (kind.name, 1)))
    elif point:
        order = replace(order, **{point: (*getattr(order, point), kind.name)})
    profile = Profile(base.scheduler_name, {**base.plugins, kind.name: plugin}, order)
    return Engine(profile, state, FirstChoice()), state, plugin


def decide(engine: Engine, **changes: Any) -> Placement | Rejection:
    return engine.decide(describe(make_pod("p", **changes)), NOW)


def node_of(result: Placement | Rejection) -> str:
    assert isinstance(result, Placement)
    return result.node_name


def message_of(result: Placement | Rejection) -> str:
    assert isinstance(result, Rejection)
    return result.message


class Shared(Plugin):
    """Treats all pods alike."""

    def class_key(self, pod: PodInfo) -> Hashable:
        return None


class Halving(PreFilterTransformer, Shared):
    name = "Halving"

    def before_pre_filter(self, pod: PodInfo) -> PodInfo | Reason | None:
        if pod.pod.metadata.labels.get("refuse"):
            return Reason("not today")
        return replace(pod, request=replace(pod.request, amounts={CPU: pod.request.amounts[CPU] // 2}))

    def after_pre_filter(self, pod: PodInfo, node_names: frozenset[str] | None) -> Reason | None:
        return Reason("only one node is not enough") if node_names is not None and len(node_names) == 1 else None

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.labels.get("refuse")


def test_before_pre_filter_may_replace_the_pod() -> None:
    engine, _, _ = engine_with(Halving, [make_node("a", cpu="2")], "pre_filter")
    assert node_of(decide(engine, cpu="4")) == "a"
    assert "Insufficient cpu" in message_of(decide(engine, cpu="5"))


def test_before_pre_filter_may_refuse() -> None:
    engine, _, _ = engine_with(Halving, point="pre_filter")
    assert message_of(decide(engine, labels={"refuse": "yes"})) == "0/2 nodes are available: not today."


def test_after_pre_filter_sees_the_nodes_that_are_left() -> None:
    engine, _, _ = engine_with(Halving, point="pre_filter")
    assert message_of(decide(engine, labels={"only": "a"})) == "0/2 nodes are available: only one node is not enough."


def test_a_transformer_that_is_not_listed_at_the_point_takes_no_part() -> None:
    engine, _, _ = engine_with(Halving, [make_node("a", cpu="2")])
    assert "Insufficient cpu" in message_of(decide(engine, cpu="4"))


class Reserving(FilterTransformer, Shared):
    """Three CPUs of node a are kept for pods with the label ``owner``."""

    name = "Reserving"

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        kept = self.view.columns.row_of["a"]
        owner = "owner" in pod.pod.metadata.labels
        return {} if owner or kept not in rows else {kept: Adjustment({CPU: 3000})}

    def class_key(self, pod: PodInfo) -> Hashable:
        return "owner" in pod.pod.metadata.labels


def test_before_filter_makes_nodes_look_fuller_for_some_pods() -> None:
    engine, state, _ = engine_with(Reserving, [make_node("a")], "filter")
    assert "Insufficient cpu" in message_of(decide(engine, cpu="2"))
    assert node_of(decide(engine, cpu="2", labels={"owner": "me"})) == "a"
    assert state.view.columns.requested[0, CPU] == 0


def test_before_filter_is_asked_again_when_a_row_changes() -> None:
    engine, _, _ = engine_with(Reserving, [make_node("a")], "filter")
    first = decide(engine, cpu="1")
    assert isinstance(first, Placement)
    engine.assume(first)
    assert "Insufficient cpu" in message_of(decide(engine, cpu="1"))


class Preferring(ScoreTransformer, Shared):
    """Node b looks empty however full it is: the fullest node wins among the fakes' scores otherwise."""

    name = "Preferring"

    def before_score(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        row = self.view.columns.row_of["b"]
        return {row: Adjustment({CPU: -2000})} if row in rows else {}


def test_before_score_changes_scores_and_not_verdicts() -> None:
    engine, state, _ = engine_with(Preferring, point="score")
    plain, plain_state = Engine(make_profile(state.view), state, FirstChoice()), state
    for name in ("a", "b"):
        plain_state.set_pod(describe(make_pod(f"on-{name}", cpu="3")), name)
    before, after = plain.decide(describe(make_pod("p")), NOW), decide(engine)
    assert isinstance(before, Placement)
    assert isinstance(after, Placement)
    assert before.feasible == after.feasible == 2
    assert {each.node: each.total for each in before.top} != {each.node: each.total for each in after.top}
    assert node_of(after) == "b"


class Noting(PostFilterTransformer, Shared):
    name = "Noting"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.noted: list[str] = []

    def after_post_filter(self, pod: PodInfo, rejection: Rejection) -> None:
        self.noted.append(f"{pod.key}: {rejection.message}")


def test_after_post_filter_is_told_of_every_failure() -> None:
    engine, _, plugin = engine_with(Noting, [make_node("a", cpu="1")], "post_filter")
    decide(engine, cpu="2")
    decide(engine, cpu="2")
    decide(engine, cpu="1")
    assert plugin.noted == ["default/p: 0/1 nodes are available: 1 Insufficient cpu."] * 2


class Planning(FindOneNodePlugin, Shared):
    name = "Planning"

    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        planned = pod.pod.metadata.labels.get("planned")
        return Reason("no planned pods") if planned == "none" else planned


def test_a_planned_node_is_the_only_one_considered() -> None:
    engine, _, _ = engine_with(Planning, [make_node("a"), make_node("b", cpu="1")])
    assert node_of(decide(engine, labels={"planned": "b"})) == "b"
    assert "1 Insufficient cpu" in message_of(decide(engine, cpu="2", labels={"planned": "b"}))


def test_a_pod_without_a_plan_waits() -> None:
    engine, _, _ = engine_with(Planning)
    assert message_of(decide(engine, labels={"planned": "none"})) == "0/2 nodes are available: no planned pods."


def test_no_opinion_leaves_all_nodes() -> None:
    engine, _, _ = engine_with(Planning)
    assert node_of(decide(engine)) == "a"


class Hinting(PreferNodesPlugin, Shared):
    name = "Hinting"

    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        return ("gone", "full", "b")


def test_the_first_preferred_node_that_passes_is_taken() -> None:
    nodes = [make_node("a", labels={"rank": "9"}), make_node("full", cpu="0"), make_node("b")]
    engine, _, _ = engine_with(Hinting, nodes)
    assert node_of(decide(engine)) == "b"


def test_without_a_preferred_node_scores_decide() -> None:
    engine, _, _ = engine_with(Hinting, [make_node("a"), make_node("c", labels={"rank": "9"})])
    assert node_of(decide(engine)) == "c"


class Growing(ResizePodPlugin, Shared):
    name = "Growing"

    def resize_pod(self, pod: PodInfo, row: int) -> PodInfo | Reason | None:
        if self.view.columns.names[row] == "b":
            return Reason("no larger device")
        return replace(pod, request=replace(pod.request, amounts={CPU: 3000}))


def test_a_resized_pod_takes_what_it_really_needs() -> None:
    engine, state, _ = engine_with(Growing, [make_node("a")])
    result = decide(engine)
    assert isinstance(result, Placement)
    engine.assume(result)
    assert state.view.columns.requested[0, CPU] == 3000


def test_a_resize_may_fail_the_attempt() -> None:
    engine, _, _ = engine_with(Growing, [make_node("b")])
    assert message_of(decide(engine)) == "0/1 nodes are available: 1 no larger device."


class Nominating(ReservationNominator, Shared):
    name = "Nominating"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.nominated: list[str] = []

    def nominate(self, pod: PodInfo, row: int) -> Reason | None:
        if "unlucky" in pod.pod.metadata.labels:
            return Reason("no nominated reservation")
        self.nominated.append(pod.key)
        return None

    def forget_nomination(self, pod: PodInfo) -> None:
        self.nominated.remove(pod.key)


def test_a_nominated_reservation_is_forgotten_once_it_is_taken() -> None:
    engine, _, plugin = engine_with(Nominating)
    result = decide(engine)
    assert plugin.nominated == ["default/p"]
    assert isinstance(result, Placement)
    engine.assume(result)
    assert plugin.nominated == []


def test_without_a_reservation_to_nominate_the_attempt_fails() -> None:
    engine, _, _ = engine_with(Nominating)
    assert message_of(decide(engine, labels={"unlucky": ""})).endswith("1 no nominated reservation.")


class Forgetting(ForgetHandler, Shared):
    name = "Forgetting"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.forgotten: list[str] = []

    def forget_pod(self, pod: PodInfo) -> None:
        self.forgotten.append(pod.key)


def test_forget_handlers_learn_that_a_pod_is_not_assumed_any_more() -> None:
    engine, _, plugin = engine_with(Forgetting)
    result = decide(engine)
    assert isinstance(result, Placement)
    engine.assume(result)
    engine.forget(result)
    assert plugin.forgotten == ["default/p"]


class Gate(PermitPlugin, Shared):
    name = "Gate"

    def permit(self, pod: PodInfo, row: int) -> Reason | Wait | None:
        match pod.pod.metadata.labels.get("gate"):
            case "wait":
                return Wait(30)
            case "refuse":
                return Reason("the gate is shut")
            case "raise":
                raise RuntimeError("the gate is broken")
        return None


def permitted(gate: str) -> Mapping[str, float] | Rejection:
    engine, _, _ = engine_with(Gate, point="permit")
    result = decide(engine, labels={"gate": gate})
    assert isinstance(result, Placement)
    engine.assume(result)
    return engine.permit(result)


def test_permit_lets_wait_and_refuses() -> None:
    assert permitted("open") == {}
    assert permitted("wait") == {"Gate": 30}
    refusal = permitted("refuse")
    assert isinstance(refusal, Rejection)
    assert refusal.message == "0/1 nodes are available: 1 the gate is shut."


def test_permit_that_raises_is_an_error_of_its_plugin() -> None:
    with pytest.raises(PluginError, match="the gate is broken"):
        permitted("raise")


class Reservations(ReservationRestorePlugin, ReservationFilterPlugin, ReservationScorePlugin, Shared):
    """Reservations are numbers here: even ones fit, larger ones are better."""

    name = "Reservations"

    def restore_reservations(self, pod: PodInfo, matched: Sequence[Any], unmatched: Sequence[Any], row: int) -> Any:
        return sum(matched) - sum(unmatched)

    def filter_reservation(self, pod: PodInfo, reservation: Any, row: int) -> Reason | None:
        return Reason(f"{reservation} is odd") if reservation % 2 else None

    def score_reservation(self, pod: PodInfo, reservation: Any, row: int) -> int:
        return int(reservation)


def test_reservation_points() -> None:
    engine, _, _ = engine_with(Reservations)
    pod = describe(make_pod("p"))
    assert restore_reservations(engine.profile, pod, [5, 2], [3], 0) == {"Reservations": 4}
    assert filter_reservation(engine.profile, pod, 2, 0) is None
    assert filter_reservation(engine.profile, pod, 3, 0) == Reason("3 is odd")
    assert score_reservations(engine.profile, pod, [0, 3, 7], 0) == [0, 42, 100]
    assert score_reservations(engine.profile, pod, [0, 0], 0) == [0, 0]
    with pytest.raises(PluginError, match="below 0"):
        score_reservations(engine.profile, pod, [-1], 0)


class Working:
    name = "work"

    async def run(self) -> None:
        return


class Providing(ControllerProvider, Shared):
    name = "Providing"

    def controllers(self, writer: ClusterWriter) -> Sequence[Controller]:
        return [Working()]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [(["*"], True), ([], False), (["Providing"], True), (["-Providing", "*"], False), (["*", "-Other"], True)],
)
def test_controllers_run_where_the_flag_says_so(selection: list[str], expected: bool) -> None:
    assert is_selected("Providing", selection) is expected


def test_one_instance_of_a_plugin_speaks_for_all_profiles() -> None:
    engine, _, _ = engine_with(Providing)
    writer: Any = None
    found = make_controllers([engine.profile, engine.profile], ["*"], writer)
    assert [(plugin, controller.name) for plugin, controller in found] == [("Providing", "work")]
