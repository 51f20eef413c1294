"""decide: the best node, or the reason in upstream's words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.node import Node
from koordinator.scheduler.engine.binding_points import CycleState, ReservePlugin
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import PluginError, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from tests.scheduler.fakes import FirstChoice, Fit, describe, make_node, make_pod, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_engine(nodes: Sequence[Node], *, preempts: bool = False) -> tuple[Engine, ClusterState]:
    state = make_state(nodes)
    return Engine(make_profile(state.view, preempts=preempts), state, FirstChoice()), state


def rejected(engine: Engine, **pod: Any) -> Rejection:
    result = engine.decide(describe(make_pod("p", **pod)), NOW)
    assert isinstance(result, Rejection)
    return result


def test_the_node_with_the_highest_score_is_chosen() -> None:
    engine, _ = make_engine([make_node("a", labels={"rank": "1"}), make_node("b", labels={"rank": "2"})])
    result = engine.decide(describe(make_pod("p")), NOW)
    assert isinstance(result, Placement)
    assert (result.node_name, result.feasible, result.evaluated) == ("b", 2, 2)
    assert [(node.node, node.score_by_plugin) for node in result.top] == [
        ("b", {"Fit": 100, "Rank": 200}),
        ("a", {"Fit": 100, "Rank": 100}),
    ]


def test_a_placement_names_the_plugins_that_kept_the_pod_off_other_nodes() -> None:
    nodes = [make_node("fits"), make_node("small", cpu="500m"), make_node("cordoned", cpu="500m", unschedulable=True)]
    engine, _ = make_engine(nodes)
    result = engine.decide(describe(make_pod("p")), NOW)
    assert isinstance(result, Placement)
    assert result.rejecting_plugins == ("Unschedulable", "Fit")


def test_pods_that_are_alike_share_one_evaluation() -> None:
    engine, state = make_engine([make_node(f"n{number}") for number in range(10)])
    for number in range(5):
        result = engine.decide(describe(make_pod(f"p{number}")), NOW)
        assert isinstance(result, Placement)
        engine.assume(result)
    fit = engine.profile.plugins["Fit"]
    assert isinstance(fit, Fit)
    assert fit.filtered_rows == 10 + 4
    assert state.assumed_count == 5


def test_no_nodes() -> None:
    engine, _ = make_engine([])
    rejection = rejected(engine)
    assert rejection.message == "no nodes available to schedule pods"
    assert rejection.events_to_register == {EventKind.NODE_ADD}


def test_reasons_are_counted_and_sorted_as_text() -> None:
    nodes = [make_node("a", cpu="0", memory="0"), make_node("b", cpu="0"), make_node("c", unschedulable=True)]
    engine, _ = make_engine(nodes)
    rejection = rejected(engine)
    assert rejection.message == (
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu."
    )
    assert rejection.plugins == {"Fit", "Unschedulable"}
    assert EventKind.POD_DELETE in rejection.events_to_register


def test_preemption_is_said_to_be_of_no_help_or_without_victims() -> None:
    engine, _ = make_engine([make_node("a", cpu="0"), make_node("b", unschedulable=True)], preempts=True)
    assert rejected(engine).message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_a_pod_that_may_not_preempt_is_told_so() -> None:
    engine, _ = make_engine([make_node("a", cpu="0")], preempts=True)
    message = rejected(engine, preemption_policy="Never").message
    assert message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    )


def test_nothing_is_said_about_preemption_where_there_are_victims() -> None:
    engine, state = make_engine([make_node("a", cpu="1")], preempts=True)
    state.set_pod(describe(make_pod("low", priority=1)), "a")
    assert rejected(engine, priority=2).message == "0/1 nodes are available: 1 Insufficient cpu."


def test_like_pods_of_other_priority_get_their_own_words() -> None:
    engine, state = make_engine([make_node("a", cpu="1")], preempts=True)
    state.set_pod(describe(make_pod("low", priority=1)), "a")
    assert "preemption" not in rejected(engine, priority=2).message
    assert "No preemption victims" in rejected(engine, priority=1).message


def test_the_reason_of_a_pre_filter_is_not_counted() -> None:
    engine, _ = make_engine([make_node("a"), make_node("b")])
    rejection = rejected(engine, labels={"never": "claim not found"})
    assert rejection.message == "0/2 nodes are available: claim not found."
    assert rejection.events_to_register == {EventKind.POD_UPDATE}


def test_nodes_left_out_by_a_pre_filter_are_named_by_its_plugin() -> None:
    engine, _ = make_engine([make_node("a", cpu="0"), make_node("b"), make_node("c")])
    rejection = rejected(engine, labels={"only": "a"})
    assert rejection.message == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [OnlyNodes]."
    )
    assert rejection.plugins == {"Fit", "OnlyNodes"}


def test_a_rejection_is_explained_anew_only_after_a_change() -> None:
    engine, state = make_engine([make_node("a", cpu="0")])
    first = rejected(engine)
    assert rejected(engine) is first
    state.set_node(make_node("b", cpu="0"))
    assert rejected(engine).message == "0/2 nodes are available: 2 Insufficient cpu."


def test_old_classes_make_room() -> None:
    state = make_state([make_node("a")])
    profile = make_profile(state.view)
    evaluation = Evaluation(profile, state.view, describe(make_pod("p")))
    width = 2 * (evaluation.width + len(evaluation.plan.filters) + len(evaluation.plan.scores))
    cells = width * 1024
    engine = Engine(profile, state, FirstChoice(), cells=cells)
    for number in range(20):
        engine.decide(describe(make_pod("p", cpu=f"{number}m")), NOW)
    assert len(engine._classes) >= 2
    assert engine._width + len(engine._shared) <= width


def test_classes_are_few_on_a_small_cluster_too() -> None:
    """What a class takes does not fall with the number of nodes: Jobs, each with labels of its own, are classes."""
    engine, _ = make_engine([make_node("a")])
    for number in range(4000):
        engine.decide(describe(make_pod("p", cpu=f"{number}m")), NOW)
    assert 500 < len(engine._classes) < 4000


class Broken(Fit):
    def filter(self, pod: PodInfo, state: Any, rows: Any) -> Any:
        raise ZeroDivisionError("by design")


def test_a_plugin_that_raises_ends_the_attempt_with_its_error() -> None:
    state = make_state([make_node("a")])
    profile = Profile("s", {"Fit": Broken(None, state.view)}, PluginOrder(filter=("Fit",)))
    with pytest.raises(PluginError, match="ZeroDivisionError: by design"):
        Engine(profile, state, FirstChoice()).decide(describe(make_pod("p")), NOW)


class Refusing(ReservePlugin):
    name = "Refusing"

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        raise PluginError("nothing left")

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        return


def test_a_refused_reservation_leaves_nothing_behind() -> None:
    state = make_state([make_node("a")])
    plugins = {"Fit": Fit(None, state.view), "Refusing": Refusing(None, state.view)}
    engine = Engine(Profile("s", plugins, PluginOrder(filter=("Fit",), reserve=("Refusing",))), state, FirstChoice())
    result = engine.decide(describe(make_pod("p")), NOW)
    assert isinstance(result, Placement)
    with pytest.raises(PluginError, match="nothing left"):
        engine.assume(result)
    assert state.pod_count == 0
