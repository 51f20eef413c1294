"""An evaluation that follows changes row by row always equals one that looks at everything anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.cached_results import SharedResults
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.profile import Profile
from tests.examples import examples
from tests.scheduler.fakes import Fit, describe, make_node, make_pod, make_profile, make_state


def totals(evaluation: Evaluation, state: ClusterState) -> dict[str, int]:
    evaluation.refresh()
    return {name: int(evaluation.totals[row]) for name, row in state.view.columns.row_of.items()}


def fit_of(profile: Profile) -> Fit:
    plugin = profile.plugins["Fit"]
    assert isinstance(plugin, Fit)
    return plugin


def test_only_the_changed_row_is_looked_at_again() -> None:
    state = make_state(make_node(f"n{number}") for number in range(50))
    profile = make_profile(state.view)
    evaluation = Evaluation(profile, state.view, describe(make_pod("p")))
    evaluation.refresh()
    state.assume(describe(make_pod("q")), "n7")
    evaluation.refresh()
    assert fit_of(profile).filtered_rows == 51


def test_a_change_that_no_plugin_reads_costs_nothing() -> None:
    state = make_state([make_node("a")])
    profile = make_profile(state.view)
    evaluation = Evaluation(profile, state.view, describe(make_pod("p")))
    evaluation.refresh()
    evaluation.refresh()
    assert fit_of(profile).filtered_rows == 1


def test_scaled_scores_follow_when_the_best_node_drops_out() -> None:
    state = make_state([make_node("a", labels={"rank": "50"}), make_node("b", cpu="2", labels={"rank": "100"})])
    evaluation = Evaluation(make_profile(state.view), state.view, describe(make_pod("p")))
    assert totals(evaluation, state) == {"a": 100 + 2 * 50, "b": 100 + 2 * 100}
    state.assume(describe(make_pod("q", cpu="2")), "b")
    assert totals(evaluation, state) == {"a": 100 + 2 * 100, "b": -1}


def test_a_removed_node_is_out_and_its_row_may_be_another_node() -> None:
    state = make_state([make_node("a"), make_node("b")])
    evaluation = Evaluation(make_profile(state.view), state.view, describe(make_pod("p")))
    evaluation.refresh()
    state.remove_node("a")
    assert totals(evaluation, state) == {"b": 100}
    state.set_node(make_node("c", unschedulable=True))
    assert totals(evaluation, state) == {"b": 100, "c": -1}


def test_a_restricted_class_never_takes_the_row_of_a_node_that_is_gone() -> None:
    state = make_state([make_node("a"), make_node("b")])
    pod = describe(make_pod("p", labels={"only": "a"}))
    evaluation = Evaluation(make_profile(state.view), state.view, pod)
    assert totals(evaluation, state) == {"a": 100, "b": -1}
    state.remove_node("a")
    state.set_node(make_node("c"))
    assert totals(evaluation, state) == {"b": -1, "c": -1}


def test_failures_name_the_first_plugin_in_the_order_of_the_profile() -> None:
    state = make_state([make_node("a", unschedulable=True, cpu="0"), make_node("b", cpu="0")])
    evaluation = Evaluation(make_profile(state.view), state.view, describe(make_pod("p")))
    evaluation.refresh()
    found = {failure.plugin.name: failure.rows.tolist() for failure in evaluation.failures()}
    assert found == {"Unschedulable": [0], "Fit": [1]}


def test_next_best_leaves_the_totals_as_they_were() -> None:
    state = make_state([make_node("a", cpu="4"), make_node("b", cpu="8"), make_node("c", cpu="16")])
    evaluation = Evaluation(make_profile(state.view), state.view, describe(make_pod("p")))
    state.assume(describe(make_pod("q")), "a")
    state.assume(describe(make_pod("r")), "b")
    before = totals(evaluation, state)
    assert evaluation.next_best(2, 5) == [1, 0]
    assert totals(evaluation, state) == before


NAMES = [f"n{number}" for number in range(6)]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("node"),
            st.sampled_from(NAMES),
            st.sampled_from(["1", "2", "4"]),
            st.booleans(),
            st.sampled_from(["0", "30", "70"]),
        ),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.just("assume"), st.sampled_from(NAMES), st.integers(0, 9)),
        st.tuples(st.just("forget"), st.integers(0, 9)),
        st.tuples(st.just("look"), st.integers(0, 3)),
        st.tuples(st.just("many"), st.integers(65, 80)),
        st.tuples(st.just("everywhere"), st.booleans()),
    ),
    max_size=40,
)


def apply_step(state: ClusterState, step: tuple[object, ...]) -> None:
    match step:
        case ("node", str(name), str(cpu), bool(unschedulable), str(rank)):
            state.set_node(make_node(name, cpu=cpu, unschedulable=unschedulable, labels={"rank": rank}))
        case ("remove", str(name)):
            state.remove_node(name)
        case ("assume", str(name), int(number)):
            state.assume(describe(make_pod(f"p{number}")), name)
        case ("forget", int(number)):
            state.forget(f"uid-p{number}")
        case ("everywhere", bool(comes)):
            for name in tuple(state.view.columns.row_of):
                if comes:
                    state.assume(describe(make_pod(f"on-{name}", cpu="3")), name)
                else:
                    state.forget(f"uid-on-{name}")
        case ("many", int(count)):
            for number in range(count):
                state.set_node(make_node(f"many-{number}", labels={"rank": str(number)}))


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_following_changes_equals_looking_anew(steps: list[tuple[Any, ...]]) -> None:
    state = make_state([make_node("n0")])
    profile = make_profile(state.view)
    columns = state.view.columns
    # The second and the third share what Fit finds out with the first, the third but for its restriction.
    wanted = [{}, {"other": "label"}, {"only": "n1"}]
    pods = [describe(make_pod("p", labels=labels)) for labels in wanted] + [describe(make_pod("big", cpu="3"))]
    shared = SharedResults()
    following = [Evaluation(profile, state.view, pod, shared=shared) for pod in pods]
    # Each looks at moments of its own, so that they find what they share at versions that others left it at.
    for step in (*steps, *(("look", number) for number in range(4))):
        apply_step(state, step)
        if step[0] == "look":
            evaluation, pod = following[step[1]], pods[step[1]]
            anew = Evaluation(profile, state.view, pod)
            assert totals(evaluation, state) == totals(anew, state)
            assert evaluation.best().first(99) == anew.best().first(99)
            assert evaluation.feasible_count == anew.feasible_count
            assert evaluation.first_rejecting_plugins() == anew.first_rejecting_plugins()
            dead = ~columns.alive[: columns.size]
            assert np.all(evaluation.totals[: columns.size][dead] == -1)


@pytest.mark.parametrize("count", [5, 40])
def test_many_nodes_fill_up_between_two_looks_and_are_freed_again(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    state = make_state(make_node(name, cpu="4") for name in names)
    profile, shared = make_profile(state.view), SharedResults()
    wanted: list[dict[str, str]] = [{}, {"other": "label"}]
    pods = [describe(make_pod("p", labels=labels)) for labels in wanted]
    often, seldom = (Evaluation(profile, state.view, pod, shared=shared) for pod in pods)
    for evaluation in (often, seldom):
        evaluation.refresh()
    for name in names:
        state.assume(describe(make_pod(f"on-{name}", cpu="4")), name)
    assert set(totals(often, state).values()) == {-1}
    for name in names[1:]:
        state.forget(f"uid-on-{name}")
    for evaluation in (often, seldom):
        assert [name for name, total in totals(evaluation, state).items() if total < 0] == ["n0"]


def test_classes_that_differ_elsewhere_share_what_a_plugin_finds_out() -> None:
    state = make_state(make_node(f"n{number}") for number in range(50))
    profile, shared = make_profile(state.view), SharedResults()
    pods = [describe(make_pod("p", cpu=cpu)) for cpu in ("1", "2", "1")]
    evaluations = [Evaluation(profile, state.view, pod, shared=shared) for pod in pods]
    for evaluation in evaluations:
        evaluation.refresh()
    assert fit_of(profile).filtered_rows == 100
    # Filter and Score of Fit for two sizes, the other two plugins for both.
    assert len(shared) == 6


def test_pre_score_does_not_run_again_for_scores_that_another_class_has(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state([make_node("a")])
    profile, shared, prepared = make_profile(state.view), SharedResults(), []
    monkeypatch.setattr(fit_of(profile), "pre_score", lambda pod: prepared.append(pod.key))
    pods = [describe(make_pod(name, cpu=cpu)) for name, cpu in (("p", "1"), ("q", "2"), ("r", "1"))]
    evaluations = [Evaluation(profile, state.view, pod, shared=shared) for pod in pods]
    assert len(evaluations) == 3
    assert prepared == [pods[0].key, pods[1].key]


def test_what_is_shared_goes_with_the_last_class_that_uses_it() -> None:
    state = make_state([make_node("a")])
    profile, shared = make_profile(state.view), SharedResults()
    evaluation = Evaluation(profile, state.view, describe(make_pod("p")), shared=shared)
    evaluation.refresh()
    del evaluation
    assert not len(shared)
