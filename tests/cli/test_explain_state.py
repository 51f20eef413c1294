"""Pods and nodes that the scheduler says nothing of are told apart by what the API has."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.cli.explain_state import PodFacts, State, node_state, pod_state, scheduler_of

SERVED = frozenset({"koord-scheduler", "default-scheduler"})


def pod(phase: str = "Pending", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "default"}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "koord-scheduler", **spec},
        "status": {"phase": phase, **(status or {})},
    }


def state(found: dict[str, Any] | None, **facts: Any) -> State:
    return pod_state(PodFacts("default", "web", "the cluster", found, **facts))


def test_a_pod_of_another_scheduler_that_has_tried_it() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "no room"}
    found = pod(schedulerName="my-scheduler", status={"conditions": [condition]})
    said = state(found, served=SERVED)
    assert said.kind == "otherScheduler"
    assert said.sentence == "pod default/web asks for the scheduler `my-scheduler`; koord-scheduler does not look at it"
    assert "koord-scheduler serves default-scheduler, koord-scheduler; only a new pod" in said.next


def test_an_event_shows_that_the_other_scheduler_runs() -> None:
    event = {"reportingComponent": "my-scheduler", "reason": "FailedScheduling"}
    assert state(pod(schedulerName="my-scheduler"), served=SERVED, events=[event]).kind == "otherScheduler"


def test_other_pods_show_that_the_other_scheduler_runs() -> None:
    said = state(pod(schedulerName="my-scheduler"), served=SERVED, has_placed_others=True)
    assert (said.kind, "has placed other pods" in said.next) == ("otherScheduler", True)


@pytest.mark.parametrize(("others", "claimed"), [(False, True), (None, False)])
def test_a_scheduler_of_which_nothing_is_seen_is_one_that_nobody_knows(others: bool | None, claimed: bool) -> None:
    said = state(pod(schedulerName="typo"), served=SERVED, has_placed_others=others)
    assert said.kind == "unknownScheduler"
    assert "nothing shows that another scheduler does" in said.sentence
    assert ("no other pod that it placed" in said.sentence) is claimed


def test_a_label_names_the_scheduler_before_the_spec_does() -> None:
    found = pod()
    found["metadata"]["labels"] = {"scheduling.koordinator.sh/scheduler-name": "other"}
    assert scheduler_of(found) == "other"
    assert "(by its label scheduling.koordinator.sh/scheduler-name)" in state(found, served=SERVED).sentence


def test_a_pod_without_a_scheduler_requests_the_default_one() -> None:
    assert scheduler_of({"metadata": {}, "spec": {}}) == "default-scheduler"


def test_a_finished_pod_says_how_it_ended() -> None:
    said = state(pod("Failed", status={"reason": "Evicted", "message": "low on memory"}, nodeName="a"))
    assert said.kind == "finished"
    assert "has finished (Failed, Evicted: low on memory) and is not scheduled again" in said.sentence


def test_a_pod_that_is_being_deleted_says_since_when() -> None:
    found = pod()
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    said = state(found)
    assert said.kind == "terminating"
    assert "2026-01-01T00:00:00Z), and no scheduler places it any more" in said.sentence


def test_finalizers_that_hold_a_pod_are_named() -> None:
    found = pod(nodeName="a")
    found["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/keep"]}
    assert "on node a; it waits for the finalizer example.com/keep" in state(found).sentence


def test_a_pod_that_runs_is_on_its_node() -> None:
    said = state(pod("Running", nodeName="a"))
    assert (said.kind, said.needs_saying) == ("running", False)


def test_a_pod_whose_containers_do_not_start_is_not_the_scheduler_s_matter() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    found = pod(nodeName="a", status={"containerStatuses": [{"name": "main", "state": waiting}]})
    said = state(found)
    assert said.kind == "bound"
    assert "its containers have not started: main waits (ImagePullBackOff, no such image)" in said.sentence


def test_a_gated_pod_names_its_gates() -> None:
    said = state(pod(schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}]), served=SERVED)
    assert said.kind == "gated"
    assert "the scheduling gates example.com/a, example.com/b; no scheduler tries it until they are" in said.sentence


def test_a_pod_of_another_scheduler_is_not_called_so_where_profiles_are_not_known() -> None:
    said = state(pod(schedulerName="my-scheduler"))
    assert (said.kind, "asks for the scheduler `my-scheduler`" in said.sentence) == ("pending", True)


def test_a_new_pod_is_not_known_yet() -> None:
    assert state(pod(), served=SERVED).sentence.endswith("is pending, and koord-scheduler does not know of it yet")


@pytest.mark.parametrize(
    ("facts", "sentence", "next_step"),
    [
        (
            {"elsewhere": ["shop"]},
            "there is no pod default/web in the cluster; there is one in namespace shop",
            "koord explain pod web -n shop",
        ),
        (
            {"elsewhere": ["a", "b", "c", "d"]},
            "there is no pod default/web in the cluster; there is one in namespaces a, b, c and 1 more",
            "koord explain pod web -n a",
        ),
        (
            {"namespace_is_there": False},
            "there is no pod default/web in the cluster, nor a namespace default",
            "kubectl get namespaces lists them; -n names another.",
        ),
        (
            {"similar": ["web-1"]},
            "there is no pod default/web in the cluster; there is web-1",
            "kubectl get pods -n default lists them; -n names another namespace.",
        ),
        (
            {"elsewhere_unknown": "you may not"},
            "there is no pod default/web in the cluster (other namespaces could not be looked at: you may not)",
            "kubectl get pods -n default lists them; -n names another namespace.",
        ),
    ],
)
def test_a_pod_that_is_not_there(facts: dict[str, Any], sentence: str, next_step: str) -> None:
    assert state(None, **facts) == State("notThere", sentence, next_step)


def node(**spec: Any) -> dict[str, Any]:
    return {"spec": spec, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_nodes_are_distinguished() -> None:
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped"}]}}
    found = [node_state("n", "the cluster", each, ()) for each in (node(), node(unschedulable=True), silent, {}, None)]
    assert [each.kind for each in found] == ["there", "cordoned", "notReady", "notReady", "notThere"]
    assert found[2].sentence == "node n is not ready: Kubelet stopped"


def test_a_node_that_is_nearly_named_so_is_named() -> None:
    assert node_state("n", "the cluster", None, ["n1"]).sentence == "there is no node n in the cluster; there is n1"
