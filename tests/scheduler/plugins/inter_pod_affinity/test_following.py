"""Classes that follow events end where looking at everything anew does, and where the plain version does."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.plugins.inter_pod_affinity import term_counters
from tests.examples import examples
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.fixtures import (
    NODE_NAMES,
    ClusterFixture,
    make_node,
    make_pod,
    must,
    node_labels,
    pods,
    renamed,
    step,
    strict_pods,
    term,
)
from tests.scheduler.plugins.inter_pod_affinity.readings import found_results, found_scores, wanted_results
from tests.scheduler.simulating import simulating


@pytest.mark.parametrize("many_rows", [1, 100])
@settings(max_examples=examples(80))
@given(data=st.data())
def test_classes_that_follow_events(many_rows: int, data: st.DataObject) -> None:
    """Whether they ask what there is on changed rows, or where there is anything."""
    fixture = ClusterFixture()
    for name in NODE_NAMES[:3]:
        fixture.set_node(make_node(name, **data.draw(node_labels)))
    # Few kinds of pods, so that the same terms come and go again and classes live on.
    kinds = [data.draw(strict_pods("kind0")), data.draw(strict_pods("kind1")), data.draw(pods("kind2"))]
    incoming = [fixture.info(renamed(pod, f"incoming{number}")) for number, pod in enumerate(kinds)]
    classes: dict[Hashable, Evaluation] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(term_counters, "_MANY_ROWS", many_rows)
        for _ in range(10):
            step(fixture, data.draw, st.sampled_from(kinds))
            # Classes that are not looked at now have more to catch up with later.
            for pod in incoming:
                if not data.draw(st.booleans()):
                    continue
                key = fixture.profile.class_key(pod)
                if key not in classes:
                    classes[key] = fixture.evaluation(pod)
                assert found_results(fixture, classes[key]) == wanted_results(fixture, pod.pod)
                assert found_scores(fixture, classes[key]) == reference.scores(pod.pod, fixture.picture)


@settings(max_examples=examples(60))
@given(st.data())
def test_a_state_that_was_prepared_earlier(data: st.DataObject) -> None:
    fixture = ClusterFixture()
    for name in NODE_NAMES:
        fixture.set_node(make_node(name, **data.draw(node_labels)))
    pod = fixture.info(data.draw(pods("incoming")))
    key, evaluation = fixture.profile.class_key(pod), fixture.evaluation(pod)
    for _ in range(data.draw(st.integers(1, 6))):
        step(fixture, data.draw)
    if fixture.profile.class_key(pod) == key:
        assert found_results(fixture, evaluation) == wanted_results(fixture, pod.pod)


@settings(max_examples=examples(60))
@given(st.data())
def test_simulations_leave_no_trace(data: st.DataObject) -> None:
    """Preemption asks what would be without some pods; classes follow there and back."""
    fixture = ClusterFixture()
    for name in NODE_NAMES:
        fixture.set_node(make_node(name, **data.draw(node_labels)))
    for _ in range(data.draw(st.integers(1, 8))):
        step(fixture, data.draw)
    pod = fixture.info(data.draw(pods("incoming")))
    evaluation = fixture.evaluation(pod)
    evaluation.refresh()
    for name, row in sorted(fixture.view.columns.row_of.items()):
        there = list(fixture.view.pods_on[row].values())
        if not there:
            continue
        gone = data.draw(st.lists(st.sampled_from(there), unique_by=lambda each: each.uid))
        with simulating(fixture.state, row, gone, ()):
            without = {uid: fixture.picture.pods.pop(uid) for uid in (each.uid for each in gone)}
            assert found_results(fixture, evaluation)[name] == wanted_results(fixture, pod.pod)[name]
            fixture.picture.pods.update(without)
        assert found_results(fixture, evaluation) == wanted_results(fixture, pod.pod)


def attracting_fixture() -> tuple[ClusterFixture, Evaluation]:
    """A pod on n0 that attracts what looks like it by zone, and the class of such pods."""
    fixture = ClusterFixture()
    fixture.set_node(make_node("n0"))
    fixture.set_node(make_node("n1", zone="z0"))
    fixture.set_node(make_node("n2", zone="z0"))
    fixture.place(make_pod("p", {"app": "b"}, near=must(term("zone", app="a"))), "n0")
    return fixture, fixture.evaluation(make_pod("x", {"app": "a"}))


def test_scores_follow_a_node_that_leaves_its_domain() -> None:
    fixture, evaluation = attracting_fixture()
    assert found_scores(fixture, evaluation) == {"n0": 0, "n1": 0, "n2": 0}
    fixture.set_node(make_node("n0", zone="z0"))
    assert found_scores(fixture, evaluation) == {"n0": 0, "n1": 0, "n2": 0}
    fixture.set_node(make_node("n1"))
    assert found_scores(fixture, evaluation) == {"n0": 100, "n1": 0, "n2": 100}


def test_scores_follow_a_node_that_takes_its_pods_to_another_domain() -> None:
    fixture, evaluation = attracting_fixture()
    fixture.set_node(make_node("n0", zone="z0"))
    fixture.set_node(make_node("n2", zone="z1"))
    assert found_scores(fixture, evaluation) == {"n0": 100, "n1": 100, "n2": 0}
    fixture.set_node(make_node("n0", zone="z1"))
    assert found_scores(fixture, evaluation) == {"n0": 100, "n1": 0, "n2": 100}
