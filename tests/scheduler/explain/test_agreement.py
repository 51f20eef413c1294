"""Explanations agree with decisions, on any cluster, for any pod."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.node import Node
from koordinator.api.pod import Pod, Toleration
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.explain.pod import fitting
from koordinator.scheduler.explain.sources import filter_nodes
from tests.examples import examples
from tests.scheduler.explain.scene import Scene, make_node, make_pod, tainted

CPU = st.sampled_from(["0", "1", "2", "4"])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = draw(st.dictionaries(st.just("disk"), st.sampled_from(["ssd", "hdd"])))
    node = make_node(name, cpu=draw(CPU), pods=draw(st.sampled_from(["1", "9"])), labels=labels)
    node = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=draw(st.booleans())))
    return tainted(node, "team", draw(st.sampled_from("ab"))) if draw(st.booleans()) else node


@st.composite
def scenes(draw: st.DrawFn, *, nominations: bool = False) -> Scene:
    count = draw(st.integers(0, 6))
    scene = Scene(*(draw(nodes(f"n{number}")) for number in range(count)))
    for number in range(count):
        if draw(st.booleans()):
            scene.report(f"n{number}", cpu=draw(CPU), memory="1Gi", age=draw(st.sampled_from([1.0, 1e6])))
        if draw(st.booleans()):
            scene.place(make_pod(f"on-{number}", cpu=draw(CPU), node=f"n{number}", priority=9))
        if nominations and draw(st.booleans()):
            nominated = make_pod(f"nominated-{number}", cpu=draw(CPU), priority=draw(st.sampled_from([-1, 9])))
            scene.view.nominations.set(scene.info(nominated), f"n{number}")
    return scene


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    pod = make_pod("p", cpu=draw(CPU))
    tolerations = draw(st.lists(st.just(Toleration(key="team", operator="Exists")), max_size=1))
    selector = draw(st.dictionaries(st.just("disk"), st.just("ssd")))
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, tolerations=tolerations, node_selector=selector)
    )


@settings(max_examples=examples(30))
@given(scenes(nominations=True), pods())
def test_a_node_fits_by_explanation_if_and_only_if_a_decision_may_take_it(scene: Scene, pod: Pod) -> None:
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(pod))
    fits = fitting(filter_results, scene.view.columns)
    result = scene.try_pod(pod)
    assert (result.node_name in fits) if isinstance(result, Placement) else not fits


@settings(max_examples=examples(30))
@given(scenes(), pods())
def test_the_first_objection_to_each_node_is_what_the_rejection_counts(scene: Scene, pod: Pod) -> None:
    first, result = first_objections(scene, pod), scene.try_pod(pod)
    if not isinstance(result, Placement):
        assert counted(result) == first


def test_nodes_that_an_eviction_would_help_are_counted_apart_from_those_that_are_too_small() -> None:
    scene = Scene(make_node("full", cpu="1"), make_node("small", cpu="0"), make_node("smaller", cpu="0"))
    scene.place(make_pod("on-full", cpu="1", node="full", priority=9))
    pod = make_pod("p", cpu="1")
    first, result = first_objections(scene, pod), scene.try_pod(pod)
    assert isinstance(result, Rejection)
    reasons = ("Insufficient cpu",)
    assert counted(result) == {("NodeResourcesFit", reasons, False): 1, ("NodeResourcesFit", reasons, True): 2}
    assert first == counted(result)


def first_objections(scene: Scene, pod: Pod) -> Counter[tuple[str, tuple[str, ...], bool]]:
    """How many nodes a plugin is the first to reject, for which reasons, and whether evictions cannot help."""
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(pod))
    first = [each for index in range(filter_results.rows.size) for each in filter_results.objections(index)[:1]]
    return Counter(
        (
            objection.plugin,
            tuple(reason.text for reason in objection.reasons),
            any(reason.unresolvable for reason in objection.reasons),
        )
        for objection in first
    )


def counted(rejection: Rejection) -> dict[tuple[str, tuple[str, ...], bool], int]:
    """The same, as the rejection has it."""
    return {(each.plugin, each.reasons, each.unresolvable): each.count for each in rejection.rejected}


@settings(max_examples=examples(30))
@given(scenes(), pods())
def test_what_a_node_lacks_is_never_negative(scene: Scene, pod: Pod) -> None:
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(pod))
    rejected = (filter_results.codes != 0).any(axis=0).nonzero()[0].tolist()
    lacks = [lack for index in rejected for each in filter_results.objections(index) for lack in each.lacks]
    assert all(lack.shortfall > 0 and "short by -" not in lack.text for lack in lacks)


@settings(max_examples=examples(30))
@given(scenes(), pods())
def test_documents_are_json_and_leave_the_cluster_alone(scene: Scene, pod: Pod) -> None:
    scene.try_pod(pod)
    before = scene.view.columns.requested.copy()
    documents = [scene.pod("p"), *(scene.node(name) for name in scene.view.columns.row_of)]
    assert json.loads(json.dumps(documents)) == documents
    assert (scene.view.columns.requested == before).all()
