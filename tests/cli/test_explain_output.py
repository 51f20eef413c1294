"""What people read: the explanation of real situations on a terminal."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.explanations import PodExplanation
from koordinator.api.node_explanation import NodeExplanation
from koordinator.cli.explain_node import print_node
from koordinator.cli.explain_pod import print_pod
from koordinator.scheduler.engine.decision import Attempt
from tests.scheduler.explain.scene import NOW, Scene, make_node, make_pod, refused_by_its_quota, tainted


def pod_text(scene: Scene, name: str = "p") -> str:
    return said(scene.pod(name))


def said(document: dict[str, Any], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_pod(convert(document, PodExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def node_text(scene: Scene, name: str = "a") -> str:
    console = Console(file=io.StringIO(), width=200)
    print_node(convert(scene.node(name), NodeExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pending() -> Scene:
    scene = Scene(tainted(make_node("large", cpu="32"), "team", "data"), make_node("small", cpu="4"))
    scene.try_pod(make_pod("p", cpu="9"))
    return scene


def test_a_pending_pod_says_first_that_it_is_and_what_its_event_says() -> None:
    scene = pending()
    first, second, *_ = pod_text(scene).splitlines()
    assert first == "default/p  is pending: no node can take it (tried 1 time)"
    assert second == f"  {scene.pod('p')['message']}"


def test_what_would_help_comes_before_the_tables() -> None:
    text = pod_text(pending())
    assert 0 < text.index("What would help") < text.index("Why: the last attempt")


def test_who_rejected_how_many_nodes_is_a_table() -> None:
    assert "NodeResourcesFit │ Insufficient cpu" in pod_text(pending())


def test_the_closest_node_is_named_with_what_keeps_the_pod_off_it() -> None:
    text = pod_text(pending())
    assert "large │ taint team=data:NoSchedule is not tolerated" in text.replace("  ", " ").replace("  ", " ")


def test_nodes_that_would_take_it_by_now_are_named() -> None:
    scene = pending()
    scene.state.set_node(make_node("b", cpu="16"))
    assert "Right now one node would take it: b\n" in pod_text(scene)


def test_a_plugin_that_refuses_the_pod_on_every_node_is_named_beside_the_nodes_that_have_capacity() -> None:
    text = pod_text(refused_by_its_quota())
    assert "Right now one node has room for it (a); what holds it back is ElasticQuota.\n" in text


def test_a_pod_that_its_quota_holds_back_is_told_what_would_help_and_nothing_of_preemption() -> None:
    document = refused_by_its_quota().pod("p")
    text = said({**document, "message": f"{document['message']} preemption: 0/1 nodes are available: 1 No victims."})
    assert "The quota q has nothing in use, and the pod alone requests more" in " ".join(text.split())
    assert "preemption" not in text


def test_a_pod_says_which_reservation_it_uses() -> None:
    text = said({"pod": "default/p", "node": "a", "attempts": [], "reservation": "release"})
    assert "It uses the Reservation release: koord explain reservation release" in text


def test_a_placed_pod_shows_its_node_and_only_scores_that_differ_from_nothing() -> None:
    scene = Scene(make_node("a"), make_node("b", unschedulable=True))
    scene.try_pod(make_pod("p"))
    text = pod_text(scene)
    assert text.startswith("default/p  is on node a\n")
    assert "1 of 2 nodes were good enough" in text
    assert "Others were rejected by NodeUnschedulable." in text
    assert "InterPodAffinity" not in text


def test_devices_of_a_node_are_listed_with_what_is_free_of_each() -> None:
    free, total = ({"koordinator.sh/gpu-core": amount, "koordinator.sh/gpu-memory": "16Gi"} for amount in ("50", "100"))
    devices = [{"type": "gpu", "minor": 3, "total": total, "free": free}]
    document = {**Scene(make_node("a")).node("a"), "plugins": {"DeviceShare": {"devices": devices, "fault": "[oops]"}}}
    console = Console(file=io.StringIO(), width=200)
    print_node(convert(document, NodeExplanation), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "gpu 3  │ 50 of 100 gpu-core, 16Gi of 16Gi gpu-memory" in text
    assert "[oops]" in text


def test_pods_that_close_something_are_named_with_what_is_wrong_with_them() -> None:
    facts = {
        "cpusFreeToBind": 0,
        "cpusBound": 0,
        "closedBy": [{"pod": "default/p", "reason": "x: [bad] is not usable"}],
    }
    document = {**Scene(make_node("a")).node("a"), "plugins": {"NodeNUMAResource": facts}}
    console = Console(file=io.StringIO(), width=200)
    print_node(convert(document, NodeExplanation), console)
    assert isinstance(console.file, io.StringIO)
    assert "NodeNUMAResource: closed by pod default/p: x: [bad] is not usable" in console.file.getvalue()


def test_fields_of_a_report_that_are_not_usable_are_named() -> None:
    facts = {"reported": False, "expired": False, "faults": ["status.x: -3 is not usable: [0 to 5]"]}
    document = {**Scene(make_node("a")).node("a"), "plugins": {"LoadAwareScheduling": facts}}
    console = Console(file=io.StringIO(), width=200)
    print_node(convert(document, NodeExplanation), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "LoadAwareScheduling: NodeMetric a: status.x: -3 is not usable: [0 to 5]" in text
    assert "the node has not reported its usage" in text


def test_nodes_with_the_same_score_are_called_so() -> None:
    scene = Scene(*(make_node(f"n{number}") for number in range(14)))
    scene.try_pod(make_pod("p"))
    text = pod_text(scene)
    assert "n0 is one of 14 nodes with the same, highest score; it was chosen among them at random." in text


def test_a_node_with_the_highest_score_alone_is_called_so() -> None:
    scene = Scene(make_node("large", cpu="8"), make_node("small", cpu="4"))
    scene.try_pod(make_pod("p", cpu="2"))
    assert "large has the highest score; no other node has the same." in pod_text(scene)


def test_a_node_that_was_not_chosen_for_its_score_says_so() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    document = scene.pod("p")
    document["attempts"][-1]["nodesWithTheSameScore"] = 0
    assert "a was not chosen for its score: the pod was nominated to it, or a plugin names it." in said(document)


def test_an_older_scheduler_that_does_not_count_ties_is_not_spoken_for() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    document = scene.pod("p")
    del document["attempts"][-1]["nodesWithTheSameScore"]
    assert "score;" not in said(document)


def test_a_pod_that_another_process_has_placed_says_that_nothing_is_known_of_it() -> None:
    scene = Scene(make_node("a"))
    scene.place(make_pod("p", node="a"))
    assert "This process has not placed it" in pod_text(scene)


def test_a_pod_that_backs_off_says_for_how_long() -> None:
    scene = Scene(make_node("a"))
    scene.queue.retry(scene.take(make_pod("p")), "the API is away")
    scene.log.add("default/p", Attempt(NOW, 1, error="the API is away"))
    assert "It is tried again in 1 s." in pod_text(scene)


def test_several_attempts_are_a_table() -> None:
    scene = pending()
    scene.try_pod(make_pod("p", cpu="9"))
    text = pod_text(scene)
    assert "(tried 2 times)" in text
    assert "Last attempts" in text


def test_a_pod_for_which_others_leave_says_where_and_who() -> None:
    scene = Scene(make_node("a", cpu="2"))
    scene.place(make_pod("low", cpu="2", node="a"))
    scene.try_pod(make_pod("high", cpu="2", priority=9))
    assert "It is to have room on a, from where default/low must go." in pod_text(scene, "high")


def test_a_pod_whose_victims_are_evicted_says_so() -> None:
    scene = Scene(make_node("a"))
    scene.queue.await_victims(scene.take(make_pod("p")))
    first, *_ = pod_text(scene).splitlines()
    assert first == "default/p  is pending: pods are being evicted to make room for it (tried 1 time)"


def test_names_are_not_taken_for_markup() -> None:
    scene = Scene(make_node("[red]a"))
    scene.try_pod(make_pod("p"))
    assert "is on node [red]a" in pod_text(scene)


def test_a_node_says_first_how_many_of_the_pods_it_would_take() -> None:
    first, *_ = node_text(Scene(make_node("a"))).splitlines()
    assert first == "a  no pod waits or was placed elsewhere lately that could be evaluated"
    first, *_ = node_text(pending(), "small").splitlines()
    assert first == "small  would not take the one pod that waits or was placed elsewhere lately"


def test_a_node_that_would_take_some_of_them_says_how_many() -> None:
    scene = Scene(make_node("a", cpu="4"))
    for cpu in ("5", "6", "2"):
        scene.add(make_pod(f"p{cpu}", cpu=cpu))
    assert node_text(scene).startswith("a  would take 1 of the 3 pods that wait or were placed elsewhere lately\n")


def test_a_node_says_how_many_came_to_it() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(make_pod("p"))
    assert node_text(scene).startswith(
        "a  no pod waits or was placed elsewhere lately that could be evaluated; 1 came here lately"
    )


def test_what_keeps_pods_off_a_node_is_a_table() -> None:
    text = node_text(pending(), "small")
    lack = "cpu: short by 5 cores (needs 9 cores, free 4 cores; the node has 4 cores in all)"
    assert f"NodeResourcesFit │ {lack} │ default/p" in text


def test_cordon_and_taints_are_named() -> None:
    text = node_text(Scene(tainted(make_node("a", unschedulable=True), "team", "data")))
    assert "cordoned (spec.unschedulable)" in text
    assert "taint team=data:NoSchedule" in text


def test_load_is_a_table_against_thresholds() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.report("a", cpu="1", memory="2Gi")
    text = node_text(scene)
    assert "Load, as LoadAwareScheduling sees it, reported at 2025-12-31T23:59:59Z" in text
    assert "25 %  │ 65 %" in text


def test_a_report_that_is_too_old_says_so() -> None:
    scene = Scene(make_node("a"))
    scene.report("a", cpu="1", memory="2Gi", age=1e6)
    assert "too old to be believed" in node_text(scene)


def test_every_table_has_its_title_once() -> None:
    assert pod_text(pending()).count("Why: the last attempt, node by node") == 1
