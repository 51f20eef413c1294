"""What is said of a pod, wherever it is: placed, unschedulable, gated, in flight, backing off, gone or never seen."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSchedulingGate,
)
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.decision import Attempt
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain import explain_pod
from koordinator.scheduler.plugins.taint_toleration import TaintToleration
from tests.scheduler.explain.scene import NOW, WITH_GANGS, Scene, make_node, make_pod, refused_by_its_quota, tainted


def unschedulable() -> Scene:
    scene = Scene(*(make_node(f"n{number}", cpu="1") for number in range(5)))
    scene.try_pod(make_pod("p", cpu="2"))
    return scene


def test_a_placed_pod_names_its_node_and_its_scheduler() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    document = scene.pod("p")
    assert (document["node"], document["scheduler"]) == ("a", "koord-scheduler")


def test_a_placed_pod_shows_its_best_nodes_with_the_scores_of_each_plugin() -> None:
    scene = Scene(make_node("large", cpu="8"), make_node("small", cpu="4"))
    scene.try_pod(make_pod("p", cpu="2"))
    best = scene.pod("p")["attempts"][-1]["topNodes"]
    assert [node["node"] for node in best] == ["large", "small"]
    assert all(node["score"] == sum(node["scoreByPlugin"].values()) for node in best)


def test_nodes_with_the_same_score_are_counted() -> None:
    scene = Scene(*(make_node(f"n{number}", cpu="4") for number in range(5)), make_node("small", cpu="3"))
    scene.try_pod(make_pod("p", cpu="2"))
    assert scene.pod("p")["attempts"][-1]["nodesWithTheSameScore"] == 5


def test_the_only_node_with_its_score_is_one() -> None:
    scene = Scene(make_node("large", cpu="8"), make_node("small", cpu="4"))
    scene.try_pod(make_pod("p", cpu="2"))
    assert scene.pod("p")["attempts"][-1]["nodesWithTheSameScore"] == 1


def test_a_node_that_was_nominated_was_not_chosen_for_its_score() -> None:
    scene = Scene(make_node("a", cpu="2"), make_node("b", cpu="1"))
    scene.place(make_pod("low", cpu="2", node="a", priority=0))
    scene.try_pod(make_pod("high", cpu="2", priority=100))
    scene.state.remove_pod("uid-low")
    scene.queue.remove("uid-high")
    scene.state.view.nominations.set(scene.info(make_pod("high", cpu="2", priority=100)), "a")
    scene.try_pod(make_pod("high", cpu="2", priority=100))
    assert scene.pod("high")["attempts"][-1]["nodesWithTheSameScore"] == 0


def test_a_placed_pod_says_which_plugins_rejected_other_nodes() -> None:
    scene = Scene(make_node("a"), make_node("b", unschedulable=True))
    scene.try_pod(make_pod("p"))
    last = scene.pod("p")["attempts"][-1]
    assert (last["evaluatedNodes"], last["feasibleNodes"]) == (2, 1)
    assert last["otherNodesRejectedBy"] == ["NodeUnschedulable"]


def test_a_pod_that_was_placed_before_this_process_started_is_found_on_its_node() -> None:
    scene = Scene(make_node("a"))
    scene.place(make_pod("p", node="a"))
    document = scene.pod("p")
    assert (document["node"], document["attempts"]) == ("a", [])


def test_a_pod_that_is_gone_shows_how_it_was_tried() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    scene.state.remove_pod("uid-p")
    document = scene.pod("p")
    assert "node" not in document
    assert document["attempts"][-1]["node"] == "a"


def test_nothing_is_known_of_a_pod_that_was_never_seen() -> None:
    assert explain_pod(Scene().sources, "default", "who") is None


def test_pods_of_other_namespaces_are_others() -> None:
    assert explain_pod(unschedulable().sources, "elsewhere", "p") is None


def test_a_unschedulable_pod_has_the_message_of_its_event() -> None:
    scene = Scene(make_node("a", cpu="1"))
    result = scene.try_pod(make_pod("p", cpu="2"))
    assert scene.pod("p")["message"] == getattr(result, "message", None)


def test_a_unschedulable_pod_shows_who_rejected_how_many_nodes() -> None:
    assert unschedulable().pod("p")["attempts"][-1]["rejected"] == [
        {
            "plugin": "NodeResourcesFit",
            "reasons": ["Insufficient cpu"],
            "nodes": 5,
            "examples": ["n0", "n1", "n2"],
            "evictingPodsMayHelp": False,
        }
    ]


def test_a_unschedulable_pod_names_the_events_that_would_free_it() -> None:
    queue = unschedulable().pod("p")["queue"]
    assert queue["pool"] == "unschedulable"
    assert queue["wakesOn"] == [
        "Node/Add",
        "Node/UpdateNodeAllocatable",
        "Pod/Delete",
        "Pod/UpdatePodScaleDown",
    ]
    assert queue["triedAgainWhen"] == [
        "a node is added",
        "a node offers more, or an annotation of it changes",
        "a pod on some node finishes or is deleted",
        "a pod on some node is resized to request less",
    ]


def test_what_the_pod_requests_is_in_the_units_of_people() -> None:
    scene = Scene(make_node("a", cpu="1"))
    scene.try_pod(make_pod("p", cpu="2500m", memory="512Mi"))
    assert scene.pod("p")["requests"] == {"cpu": "2.5 cores", "memory": "512Mi"}


def test_attempts_are_in_the_order_of_time() -> None:
    scene = unschedulable()
    scene.try_pod(make_pod("p", cpu="2"))
    assert [attempt["attempt"] for attempt in scene.pod("p")["attempts"]] == [1, 2]


def test_attempts_of_an_earlier_pod_of_the_same_name_are_not_its_own() -> None:
    scene = unschedulable()
    scene.try_pod(make_pod("p", cpu="2"))
    scene.queue.remove("uid-p")
    scene.try_pod(make_pod("p", cpu="3", uid="another"))
    assert [attempt["attempt"] for attempt in scene.pod("p")["attempts"]] == [1]


def test_a_new_pod_that_was_not_tried_has_no_attempts_of_an_earlier_one() -> None:
    scene = unschedulable()
    scene.queue.remove("uid-p")
    scene.add(make_pod("p", cpu="3", uid="another"))
    assert scene.pod("p")["attempts"] == []


def test_a_pod_on_a_node_has_no_attempts_of_an_earlier_one() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    scene.state.remove_pod("uid-p")
    scene.place(make_pod("p", node="a", uid="another"))
    assert scene.pod("p")["attempts"] == []


def test_a_pod_for_which_victims_leave_names_them_and_its_node() -> None:
    scene = Scene(make_node("a", cpu="2"))
    scene.place(make_pod("low", cpu="2", node="a", priority=0))
    scene.try_pod(make_pod("high", cpu="2", priority=100))
    last = scene.pod("high")["attempts"][-1]
    assert (last["nominatedNode"], last["evicts"]) == ("a", ["default/low"])


def test_a_gated_pod_says_what_holds_it_back() -> None:
    scene = Scene(make_node("a"))
    pod = make_pod("p")
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=[PodSchedulingGate(name="example.com/quota")])
    scene.add(msgspec.structs.replace(pod, spec=spec))
    document = scene.pod("p")
    assert document["queue"]["pool"] == "gated"
    assert document["message"] == "SchedulingGates: waiting for scheduling gates: [example.com/quota]"
    (advice,) = document["advice"]
    assert "until its scheduling gates are gone" in advice


def test_a_gang_is_counted_when_its_pod_is_explained_and_not_when_it_was_gated() -> None:
    scene = Scene(make_node("a"), configuration=WITH_GANGS)
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
    for name in ("p", "q"):
        info = scene.info(make_pod(name, labels=labels))
        scene.state.show_pod(info, "")
        scene.add(info.pod)
    document = scene.pod("p")
    assert "default/g has 2 of 3 pods" in document["message"]
    assert document["gang"] == "default/g"


def test_a_member_that_waits_for_its_gang_is_not_told_of_scheduling_gates() -> None:
    scene = Scene(make_node("a"), configuration=WITH_GANGS)
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
    info = scene.info(make_pod("p", labels=labels))
    scene.state.show_pod(info, "")
    scene.add(info.pod)
    (advice,) = scene.pod("p")["advice"]
    assert "scheduling gates" not in advice
    assert "koord explain gang default/g says which members it waits for" in advice


def test_a_pod_that_uses_a_reservation_names_it() -> None:
    scene = Scene(make_node("a"))
    annotations = {RESERVATION_ALLOCATED: '{"name":"release","uid":"1"}'}
    pod = make_pod("p", node="a")
    scene.place(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations)))
    assert scene.pod("p")["reservation"] == "release"


def test_a_pod_that_waits_for_its_turn_shows_where_it_would_fit() -> None:
    scene = Scene(make_node("a"))
    scene.add(make_pod("p"))
    document = scene.pod("p")
    assert document["queue"] == {"pool": "active", "attempts": 0}
    assert document["fittingNow"] == {"nodes": 1, "examples": ["a"]}


def test_a_pod_that_its_quota_refuses_says_that_nodes_are_not_what_holds_it_back() -> None:
    scene = refused_by_its_quota()
    assert scene.pod("p")["fittingNow"] == {"nodes": 1, "examples": ["a"], "heldBackBy": ["ElasticQuota"]}


def test_a_pod_in_flight_says_so() -> None:
    scene = Scene(make_node("a"))
    scene.take(make_pod("p"))
    assert scene.pod("p")["queue"] == {"pool": "in_flight", "attempts": 1}


def test_a_pod_that_backs_off_says_for_how_long_and_why() -> None:
    scene = Scene(make_node("a"))
    entry = scene.take(make_pod("p"))
    scene.queue.retry(entry, "the API is away")
    scene.log.add("default/p", Attempt(NOW, 1, error="the API is away"))
    document = scene.pod("p")
    assert document["queue"] == {
        "pool": "backoff",
        "attempts": 1,
        "reason": "the API is away",
        "triedAgainInSeconds": 1.0,
    }
    assert (document["message"], document["attempts"][-1]["result"]) == ("the API is away", "error")


def test_a_plugin_that_raises_leaves_the_rest_of_the_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = unschedulable()

    def broken(plugin: TaintToleration, pod: PodInfo, state: object, rows: Rows) -> Ints:
        raise ZeroDivisionError("no nodes")

    monkeypatch.setattr(TaintToleration, "filter", broken)
    document = scene.pod("p")
    assert document["notEvaluated"] == "ZeroDivisionError: no nodes"
    assert "closestNodes" not in document
    assert document["queue"]["pool"] == "unschedulable"
    assert len(document["advice"]) == 1


def test_a_plugin_that_raises_while_it_explains_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tainted(make_node("a"), "team"))
    scene.try_pod(make_pod("p"))

    def broken(plugin: TaintToleration, pod: PodInfo, state: object, code: int, row: int) -> None:
        raise KeyError("x")

    monkeypatch.setattr(TaintToleration, "lacks", broken)
    assert scene.pod("p")["notEvaluated"] == "KeyError: 'x'"


def test_explaining_changes_nothing_for_the_next_attempt() -> None:
    scene = unschedulable()
    before = scene.pod("p")
    assert scene.pod("p") == before
    assert scene.view.columns.requested.sum() == 0


def test_a_pod_that_may_only_go_to_named_nodes_is_evaluated_on_them_alone() -> None:
    scene = Scene(make_node("a", cpu="1"), make_node("b", cpu="1"))
    named = NodeSelectorRequirement(key="metadata.name", operator="In", values=["a"])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[named])])
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    pod = make_pod("p", cpu="2")
    scene.try_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity)))
    assert [node["node"] for node in scene.pod("p")["closestNodes"]] == ["a"]
