"""Events in any order leave the columns with exactly what the API says, plus what is assumed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.node import Node
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU, PODS
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod, make_state


class Recorder(EventHandler):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_node(self, row: int, node: Node) -> None:
        self.calls.append(("node", row, node.metadata.name))

    def on_node_removed(self, row: int, name: str) -> None:
        self.calls.append(("node removed", row, name))

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        self.calls.append(("assigned", row, pod.uid, assumed))

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self.calls.append(("removed", row, pod.uid))

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        self.calls.append(("object", row, kind, obj is not None))


class ResizeRecorder(Recorder):
    def on_pod_resized(self, row: int, before: PodInfo, after: PodInfo) -> None:
        self.calls.append(("resized", row, before.request.amounts["cpu"], after.request.amounts["cpu"]))


class Choosy(Recorder):
    """Reads pods with the label ``read``; the label ``broken`` makes it fail to say so."""

    def reads_pod(self, pod: PodInfo) -> bool:
        labels = pod.pod.metadata.labels
        if "broken" in labels:
            raise RuntimeError("it cannot tell")
        return "read" in labels


def requested_cpu(state: ClusterState, node: str) -> int:
    columns = state.view.columns
    return int(columns.requested[columns.row_of[node], CPU])


def test_an_assumed_pod_counts_until_it_is_forgotten() -> None:
    state = make_state([make_node("a")])
    state.assume(describe(make_pod("p", cpu="1500m")), "a")
    assert requested_cpu(state, "a") == 1500
    assert state.forget("uid-p")
    assert requested_cpu(state, "a") == 0


@pytest.mark.parametrize(("labels", "is_read"), [({"read": ""}, True), ({}, False), ({"broken": ""}, True)])
def test_an_event_handler_is_not_notified_of_pods_that_it_does_not_read(labels: dict[str, str], is_read: bool) -> None:
    state, choosy, all_read = ClusterState(make_state().view), Choosy(), Recorder()
    state.add_event_handlers([choosy, all_read])
    state.set_node(make_node("a"))
    pod = describe(make_pod("p", labels=labels))
    state.assume(pod, "a")
    state.set_pod(msgspec.structs.replace(pod, pod=make_pod("p", labels=labels, node="a")), "a")
    state.remove_pod(pod.uid)
    assert [call[0] for call in all_read.calls] == ["node", "assigned", "assigned", "removed"]
    assert choosy.calls == (all_read.calls if is_read else all_read.calls[:1])


def test_an_event_handler_is_notified_of_a_pod_that_it_reads_since_a_change() -> None:
    state, choosy = ClusterState(make_state().view), Choosy()
    state.add_event_handlers([choosy])
    state.set_node(make_node("a"))
    state.assume(describe(make_pod("p")), "a")
    state.set_pod(describe(make_pod("p", labels={"read": ""}, node="a")), "a")
    assert choosy.calls[1:] == [("assigned", 0, "uid-p", False)]


def test_a_confirmed_pod_is_not_forgotten() -> None:
    state = make_state([make_node("a")])
    pod = describe(make_pod("p"))
    state.assume(pod, "a")
    state.set_pod(pod, "a")
    assert not state.forget("uid-p")
    assert requested_cpu(state, "a") == 1000


def test_a_pod_that_is_resized_on_its_node_is_removed_and_added_unless_a_plugin_does_otherwise() -> None:
    recorders = Recorder(), ResizeRecorder()
    state = make_state([make_node("a")])
    state.add_event_handlers(recorders)
    state.set_pod(describe(make_pod("p", cpu="1")), "a")
    for recorder in recorders:
        recorder.calls.clear()
    state.set_pod(describe(make_pod("p", cpu="2")), "a")
    assert requested_cpu(state, "a") == 2000
    assert recorders[0].calls == [("removed", 0, "uid-p"), ("assigned", 0, "uid-p", False)]
    assert recorders[1].calls == [("resized", 0, 1000, 2000)]


def test_a_pod_bound_elsewhere_than_assumed_is_moved() -> None:
    state = make_state([make_node("a"), make_node("b")])
    pod = describe(make_pod("p"))
    state.assume(pod, "a")
    state.set_pod(pod, "b")
    assert (requested_cpu(state, "a"), requested_cpu(state, "b")) == (0, 1000)
    assert state.node_of("uid-p") == "b"


def test_a_pod_that_is_there_before_its_node_counts_once_the_node_comes() -> None:
    state = make_state()
    state.set_pod(describe(make_pod("p")), "late")
    state.set_node(make_node("late"))
    assert requested_cpu(state, "late") == 1000


def test_pods_of_a_deleted_node_count_again_when_it_comes_back() -> None:
    state = make_state([make_node("a")])
    state.set_pod(describe(make_pod("p")), "a")
    state.remove_node("a")
    state.set_node(make_node("b"))
    assert requested_cpu(state, "b") == 0
    state.set_node(make_node("a"))
    assert requested_cpu(state, "a") == 1000


def test_a_pod_deleted_while_its_node_is_away_does_not_come_back() -> None:
    state = make_state([make_node("a")])
    state.set_pod(describe(make_pod("p")), "a")
    state.remove_node("a")
    state.remove_pod("uid-p")
    state.set_node(make_node("a"))
    assert requested_cpu(state, "a") == 0


def test_a_changed_request_is_counted_anew() -> None:
    state = make_state([make_node("a")])
    state.set_pod(describe(make_pod("p", cpu="1")), "a")
    state.set_pod(describe(make_pod("p", cpu="250m")), "a")
    assert requested_cpu(state, "a") == 250


def test_the_pod_itself_counts_against_the_limit_of_pods() -> None:
    state = make_state([make_node("a")])
    state.set_pod(describe(make_pod("p")), "a")
    assert state.view.columns.requested[state.view.columns.row_of["a"], PODS] == 1


def test_event_handlers_hear_of_a_known_object_and_waiting_pods_when_their_node_comes() -> None:
    state, recorder = make_state(), Recorder()
    state.add_event_handlers([recorder])
    state.set_node_object("NodeMetric", "a", Object(metadata=ObjectMeta(name="a")))
    state.set_pod(describe(make_pod("p")), "a")
    state.set_node(make_node("a"))
    assert recorder.calls == [("node", 0, "a"), ("object", 0, "NodeMetric", True), ("assigned", 0, "uid-p", False)]


def test_a_heartbeat_touches_no_row() -> None:
    state = make_state([make_node("a")])
    before = state.view.columns.version
    assert state.set_node(make_node("a")) == frozenset()
    assert state.view.columns.version == before


def test_changes_of_a_node_are_named_by_kind() -> None:
    state = make_state([make_node("a")])
    kinds = state.set_node(make_node("a", cpu="8", unschedulable=True, labels={"zone": "z"}))
    assert kinds == {EventKind.NODE_ALLOCATABLE, EventKind.NODE_TAINT, EventKind.NODE_LABEL}


def test_changes_since_names_rows_and_aspects() -> None:
    state = make_state([make_node("b"), make_node("a")])
    before = state.view.columns.version
    state.assume(describe(make_pod("p")), "b")
    assert state.view.columns.changes_since(before, 10) == {state.view.columns.row_of["b"]: 1 << Aspect.PODS}


def test_changes_too_long_ago_are_not_named() -> None:
    columns = make_state([make_node("a"), make_node("b")]).view.columns
    for number in range(20_000):
        columns.touch(number % 2, Aspect.LOAD)
    assert columns.changes_since(1, 1_000_000) is None
    assert columns.changes_since(columns.version - 1, 10) == {1: 1 << Aspect.LOAD}


def test_changes_of_one_row_in_a_row_are_one() -> None:
    columns = make_state([make_node("a"), make_node("b")]).view.columns
    before = columns.version
    columns.touch(0, Aspect.PODS)
    columns.touch(0, Aspect.LOAD)
    assert columns.count_since(before) == 1
    assert columns.changes_since(before, 1) == {0: 1 << Aspect.PODS | 1 << Aspect.LOAD}


NODES = ("a", "b", "c")
PODS_OF = ("p", "q", "r", "s")
STEPS = st.one_of(
    st.tuples(st.sampled_from(["set node", "remove node"]), st.sampled_from(NODES), st.just("")),
    st.tuples(st.sampled_from(["assume", "set pod"]), st.sampled_from(NODES), st.sampled_from(PODS_OF)),
    st.tuples(st.sampled_from(["forget", "remove pod"]), st.just(""), st.sampled_from(PODS_OF)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_any_order_of_events_leaves_what_a_simple_model_says(steps: list[tuple[str, str, str]]) -> None:
    state = make_state()
    nodes: set[str] = set()
    placed: dict[str, tuple[str, bool]] = {}
    for verb, node, pod in steps:
        match verb:
            case "set node":
                state.set_node(make_node(node))
                nodes.add(node)
            case "remove node":
                state.remove_node(node)
                nodes.discard(node)
            case "assume":
                state.assume(describe(make_pod(pod)), node)
                placed[pod] = (node, True)
            case "set pod":
                state.set_pod(describe(make_pod(pod)), node)
                placed[pod] = (node, False)
            case "forget":
                state.forget(f"uid-{pod}")
                if placed.get(pod, ("", False))[1]:
                    del placed[pod]
            case _:
                state.remove_pod(f"uid-{pod}")
                placed.pop(pod, None)
    expected = {node: 1000 * sum(1 for where, _ in placed.values() if where == node) for node in nodes}
    assert {node: requested_cpu(state, node) for node in nodes} == expected
    assert state.pod_count == len(placed)
    assert state.assumed_count == sum(assumed for _, assumed in placed.values())
