"""Koordinator's extension points on the way to a node, each with a small plugin that uses it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import (
    FilterTransformer,
    FindOneNodePlugin,
    PostFilterTransformer,
    PreferNodesPlugin,
    PreFilterTransformer,
    ResizePodPlugin,
    ScoreTransformer,
)
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.row_amounts import CPU
from tests.scheduler.engine.extended import NOW, Shared, decide, engine_with, message_of, node_of
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile


class Halving(PreFilterTransformer, Shared):
    name = "Halving"

    def before_pre_filter(self, pod: PodInfo) -> PodInfo | Reason | None:
        if pod.pod.metadata.labels.get("refuse"):
            return Reason("not today")
        return msgspec.structs.replace(
            pod, request=replace(pod.request, amounts={"cpu": pod.request.amounts["cpu"] // 2})
        )

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
        return {} if owner or kept not in rows else {kept: Adjustment({"cpu": 3000})}

    def class_key(self, pod: PodInfo) -> Hashable:
        return "owner" in pod.pod.metadata.labels


def test_before_filter_makes_nodes_look_fuller_for_some_pods() -> None:
    engine, state, _ = engine_with(Reserving, [make_node("a")], "filter")
    assert "Insufficient cpu" in message_of(decide(engine, cpu="2"))
    assert node_of(decide(engine, cpu="2", labels={"owner": "me"})) == "a"
    assert state.view.columns.requested[0, CPU] == 0


def test_before_filter_is_called_again_when_a_row_changes() -> None:
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
        return {row: Adjustment({"cpu": -2000})} if row in rows else {}


def test_before_score_changes_scores_and_not_results() -> None:
    engine, state, _ = engine_with(Preferring, point="score")
    plain, plain_state = Engine(make_profile(state.view), state, FirstChoice()), state
    for name in ("a", "b"):
        plain_state.set_pod(describe(make_pod(f"on-{name}", cpu="3")), name)
    before, after = plain.decide(describe(make_pod("p")), NOW), decide(engine)
    assert isinstance(before, Placement)
    assert isinstance(after, Placement)
    assert before.feasible == after.feasible == 2
    assert {each.node: each.score for each in before.top} != {each.node: each.score for each in after.top}
    assert node_of(after) == "b"


class Noting(PostFilterTransformer, Shared):
    name = "Noting"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.noted: list[str] = []

    def after_post_filter(self, pod: PodInfo, why: str) -> None:
        self.noted.append(f"{pod.key}: {why}")


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


def test_the_nodes_that_were_not_planned_are_named_in_the_failure() -> None:
    engine, _, _ = engine_with(Planning, [make_node("a"), make_node("b", cpu="1"), make_node("c")])
    text = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [Planning]."
    result = decide(engine, cpu="2", labels={"planned": "b"})
    assert message_of(result) == text
    assert isinstance(result, Rejection)
    assert result.plugins == {"Fit", "Planning"}


def test_a_planned_node_that_is_gone_leaves_none() -> None:
    engine, _, _ = engine_with(Planning)
    text = "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [Planning]."
    assert message_of(decide(engine, labels={"planned": "gone"})) == text


class Involving(Planning):
    def rejected_by(self, pod: PodInfo) -> Collection[str]:
        return ("Fit",)


def test_whoever_had_a_part_in_there_being_no_plan_may_wake_the_pod() -> None:
    engine, _, _ = engine_with(Involving)
    result = decide(engine, labels={"planned": "none"})
    assert isinstance(result, Rejection)
    assert result.plugins == {"Fit", "Planning"}
    assert EventKind.POD_DELETE in result.events_to_register


class Called(Planning, PostFilterPlugin):
    name = "Asked"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.seen: list[tuple[str, tuple[str, ...], int]] = []

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        self.seen += [
            (each.plugin, tuple(reason.text for reason in each.reasons), each.rows.size) for each in attempt.statuses
        ]
        return PostFilterResult("asked")


def test_preemption_is_called_when_there_is_no_plan() -> None:
    engine, _, plugin = engine_with(Called, point="post_filter")
    assert message_of(decide(engine, labels={"planned": "none"})) == "0/2 nodes are available: no planned pods. asked"
    assert plugin.seen == [("Asked", ("no planned pods",), 2)]


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
        return msgspec.structs.replace(pod, request=replace(pod.request, amounts={"cpu": 3000}))


def test_a_resized_pod_takes_what_it_really_needs() -> None:
    engine, state, _ = engine_with(Growing, [make_node("a")])
    result = decide(engine)
    assert isinstance(result, Placement)
    engine.assume(result)
    assert state.view.columns.requested[0, CPU] == 3000


def test_a_resize_may_fail_the_attempt() -> None:
    engine, _, _ = engine_with(Growing, [make_node("b")])
    assert message_of(decide(engine)) == "0/1 nodes are available: 1 no larger device."
