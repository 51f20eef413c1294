"""Which pod is resized next, what undoes a resize, and what keeps pods as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.recommendation import APPLIED, Recommendation
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.options import ResizeOptions
from koordinator.manager.recommender.policy import Rules
from koordinator.manager.recommender.resize_decision import Decision, Evict, Resize, Undo, decide, record_of, restored
from koordinator.manager.recommender.samples import Reading
from koordinator.model.container_sizes import describe
from koordinator.model.recommendations import recommended
from tests.manager.recommender.pods import START, Document, reading

NOW = START + timedelta(days=2)
MINUTE = timedelta(minutes=1)
AUTO = Rules(update_mode="Auto")
OR_RECREATE = Rules(update_mode="InPlaceOrRecreate")
LEAVING = {"deletionTimestamp": NOW.isoformat()}
READY = {"type": "Ready", "status": "True"}
REQUESTS = {"cpu": "1", "memory": "1Gi"}


def recommendation(age: timedelta = timedelta(), **amounts: str) -> Recommendation:
    containers = [{"containerName": "main", "resources": amounts or {"cpu": "400m"}}]
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "status": {"updateTime": (NOW - age).isoformat(), "podStatus": {"containerStatuses": containers}},
    }
    return convert(document, Recommendation)


def pod(
    name: str = "web-0", record: Document | None = None, status: Document | None = None, **more: Any
) -> ObservedPod:
    """Ready, a day old, with one core and 1 GiB."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}
    metadata: Document = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": (NOW - timedelta(days=1)).isoformat(),
        "ownerReferences": [owner],
        **more.pop("metadata", {}),
    }
    if record is not None:
        text = json.dumps({"by": "resize", "recommendation": "web", **record})
        metadata["annotations"] = {APPLIED: text, **metadata.get("annotations", {})}
    resources = more.pop("resources", {"requests": REQUESTS})
    spec: Document = {"containers": [{"name": "main", "resources": resources, **more.pop("container", {})}]}
    if "whole" in more:
        spec["resources"] = more["whole"]
    return convert(
        {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": [READY], **(status or {})}},
        ObservedPod,
    )


def resized(ago: timedelta, before: str = "1", after: str = "750m", **more: Any) -> Document:
    changed = {"requests": {"cpu": {"before": before, "after": after}}, "limits": {}}
    if more.pop("limited", False):
        changed["limits"] = changed["requests"]
    return {"at": (NOW - ago).isoformat(), "containers": {"main": changed}, "restarts": {"main": 1}, **more}


def decided(
    *pods: ObservedPod,
    found: Recommendation | None = None,
    rules: Rules = AUTO,
    readings: Mapping[tuple[str, str], Reading] | None = None,
    held: Mapping[str, str] | None = None,
) -> Decision:
    source = recommended(found if found is not None else recommendation())
    return decide(source, rules, pods, readings or {}, held or {}, {}, ResizeOptions(), NOW)


def text_of(decision: Decision) -> str:
    action = decision.action
    match action:
        case Resize():
            return f"{action.pod.metadata.name}: {describe(action.changes)}"
        case Undo() | Evict():
            return f"{type(action).__name__} {action.pod.metadata.name}: {action.reason}"
        case None:
            return "; ".join(f"{name}: {why}" for name, why in decision.waiting.items())


def test_one_pod_at_a_time_is_resized_by_a_bounded_step() -> None:
    assert text_of(decided(pod("web-1"), pod("web-0"))) == "web-0: main: cpu 1 -> 750m"


def test_the_next_pod_follows_when_the_last_one_was_watched() -> None:
    lowered: Document = {"resources": {"requests": {"cpu": "400m"}}}
    watched = pod("web-0", resized(2 * MINUTE), **lowered)
    well = pod("web-0", resized(6 * MINUTE), **lowered)

    assert text_of(decided(watched, pod("web-1"))) == ": pod web-0 was resized 2m0s ago and is watched"
    assert text_of(decided(well, pod("web-1"))) == "web-1: main: cpu 1 -> 750m"


def test_the_same_pod_follows_when_it_has_been_well_for_longer() -> None:
    lowered: Document = {"resources": {"requests": {"cpu": "750m"}}}

    assert text_of(decided(pod(record=resized(10 * MINUTE), **lowered))) == "web-0: it was resized less than 30m0s ago"
    assert text_of(decided(pod(record=resized(31 * MINUTE), **lowered))) == "web-0: main: cpu 750m -> 563m"


@pytest.mark.parametrize(
    ("found", "rules", "why"),
    [
        (pod(), Rules(update_mode="Initial"), ""),
        (pod(metadata={"creationTimestamp": NOW.isoformat()}), AUTO, "web-0: it was created less than 30m0s ago"),
        (pod(status={"conditions": []}), AUTO, "web-0: it is not ready"),
        (pod(resources={"requests": {"cpu": "410m"}}), AUTO, ""),
    ],
)
def test_a_pod_stays_as_it_is(found: ObservedPod, rules: Rules, why: str) -> None:
    assert text_of(decided(found, rules=rules)) == why


def test_a_recommendation_that_must_not_be_used_is_not() -> None:
    stale = decided(pod(), found=recommendation(timedelta(hours=25)))

    assert text_of(stale) == ": Recommendation default/web is stale: it was written 25 hours ago"


def test_a_pod_that_was_refused_waits_and_the_next_one_is_tried() -> None:
    found = decided(pod("web-0"), pod("web-1"), held={"uid-web-0": "no room in the quota"})

    assert text_of(found).startswith("web-1: ")
    assert found.waiting == {"web-0": "no room in the quota"}


CANNOT: list[tuple[ObservedPod, str]] = [
    (
        pod(resources={"requests": {"kubernetes.io/batch-cpu": "1k"}}),
        "only cpu and memory can be, and it requests kubernetes.io/batch-cpu",
    ),
    (
        pod(metadata={"labels": {"koordinator.sh/qosClass": "LSR"}}, resources={"requests": {"cpu": "4"}}),
        "the CPUs of LSR pods are chosen when they are placed",
    ),
    (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), "it is a static pod"),
    (
        pod(whole={"requests": {"cpu": "2"}}),
        "it has requests or limits of its own (spec.resources)",
    ),
    (
        pod(status={"conditions": [READY, {"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}),
        "an earlier resize is not done (Deferred)",
    ),
    (pod(resources={}), "its class of quality of service would change from BestEffort to Burstable"),
]


@pytest.mark.parametrize(("found", "why"), CANNOT)
def test_what_would_be_refused_is_not_tried_and_named(found: ObservedPod, why: str) -> None:
    assert text_of(decided(found)) == f"web-0: it cannot be resized in place: {why}"


def test_what_cannot_be_resized_is_evicted_only_where_that_is_asked_for() -> None:
    batch: Document = {"resources": {"requests": {"kubernetes.io/batch-cpu": "1k"}}}
    young = {"creationTimestamp": (NOW - timedelta(hours=11)).isoformat()}

    assert isinstance(decided(pod(**batch), rules=OR_RECREATE).action, Evict)
    assert decided(pod(**batch)).action is None
    assert decided(pod(**batch, metadata=young), rules=OR_RECREATE).action is None
    assert decided(pod(**batch, metadata={"ownerReferences": []}), rules=OR_RECREATE).action is None


def test_the_next_pod_is_evicted_when_the_last_one_has_been_replaced() -> None:
    batch: Document = {"resources": {"requests": {"kubernetes.io/batch-cpu": "1k"}}}
    fresh = {"creationTimestamp": (NOW - 4 * MINUTE).isoformat()}
    source = recommended(recommendation())

    def may_go(*pods: ObservedPod, may_evict: bool = True) -> bool:
        found = decide(source, OR_RECREATE, pods, {}, {}, {}, ResizeOptions(), NOW, may_evict=may_evict)
        return isinstance(found.action, Evict)

    assert may_go(pod("web-0", **batch), pod("web-1"))
    assert not may_go(pod("web-0", **batch), may_evict=False)
    assert not may_go(pod("web-0", **batch), pod("web-1", metadata=fresh))
    assert not may_go(pod("web-0", **batch), pod("web-1", status={"conditions": []}))
    assert not may_go(pod("web-0", **batch), pod("web-1", metadata=LEAVING))


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "night", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    "of", [{"whole": {"requests": {"kubernetes.io/batch-cpu": "1k"}}}, {"metadata": {"ownerReferences": [JOB]}}]
)
def test_a_pod_whose_successor_would_be_no_better_is_not_evicted(of: Document) -> None:
    found = decided(pod(resources={"requests": {"kubernetes.io/batch-cpu": "1k"}}, **of), rules=OR_RECREATE)

    assert found.action is None
    assert found.waiting["web-0"].startswith("it cannot be resized in place")


def test_containers_that_are_restarted_for_it_are_named() -> None:
    policy = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
    action = decided(pod(container=policy)).action
    other = decided(pod(container=policy), found=recommendation(memory="100Mi")).action

    assert isinstance(action, Resize)
    assert isinstance(other, Resize)
    assert (action.restarted, other.restarted) == (("main",), ())


def status_of(*conditions: Document, restarts: int = 1, ready: bool = True, ended: str = "") -> Document:
    state = {"terminated": {"reason": ended}} if ended else {}
    container = {"name": "main", "restartCount": restarts, "lastState": state}
    return {"conditions": [*conditions, *([READY] if ready else [])], "containerStatuses": [container]}


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "too much"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "full"}
RUNNING = {"type": "PodResizeInProgress", "status": "True", "message": "memory in use"}


@pytest.mark.parametrize(
    ("ago", "status", "why"),
    [
        (1, status_of(), ""),
        (1, status_of(restarts=2), "the container main was restarted after its resources were lowered"),
        (
            1,
            status_of(restarts=2, ended="OOMKilled"),
            "the container main has ended (OOMKilled) after its resources were lowered",
        ),
        (40, status_of(restarts=2), ""),
        (1, status_of(INFEASIBLE), "the node can never give it that: too much"),
        (1, status_of(DEFERRED), ""),
        (6, status_of(DEFERRED), "the node has had no room for it in 5m0s: full"),
        (6, status_of(RUNNING), "the node has not done it in 5m0s: memory in use"),
        (1, status_of(ready=False), ""),
        (6, status_of(ready=False), "the pod is not ready 5m0s after it was resized"),
    ],
)
def test_a_resize_after_which_the_pod_is_worse_is_undone(ago: int, status: Document, why: str) -> None:
    found = decided(pod(record=resized(ago * MINUTE), resources={"requests": {"cpu": "750m"}}, status=status))

    assert (text_of(found) if isinstance(found.action, Undo) else "") == (f"Undo web-0: {why}" if why else "")


def test_a_restart_after_a_raise_is_not_the_fault_of_the_resize() -> None:
    raised = pod(record=resized(MINUTE, "500m", "1"), status=status_of(restarts=2))

    assert decided(raised).action is None


def test_nothing_is_undone_of_a_pod_that_is_on_its_way_out() -> None:
    worse = resized(MINUTE), {"cpu": "750m"}, status_of(INFEASIBLE)
    found = pod(record=worse[0], resources={"requests": worse[1]}, status=worse[2], metadata=LEAVING)

    assert decided(found).action is None


@pytest.mark.parametrize(("used", "is_lowered"), [("720m", False), ("500m", True)])
def test_a_limit_is_not_lowered_to_what_the_container_uses_now(used: str, is_lowered: bool) -> None:
    amounts = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    found = decided(
        pod(resources=amounts), readings={("default", "web-0"): reading(NOW - MINUTE, {"main": {"cpu": used}})}
    )

    assert isinstance(found.action, Resize) == is_lowered
    assert found.waiting == (
        {} if is_lowered else {"web-0": "it uses more than that now: main: cpu 1 -> 750m, cpu limit 1 -> 750m"}
    )


@pytest.mark.parametrize(("used", "is_undone"), [("740m", True), ("500m", False)])
def test_a_container_that_uses_all_that_its_limit_was_lowered_to_gets_it_back(used: str, is_undone: bool) -> None:
    amounts = {"requests": {"cpu": "750m"}, "limits": {"cpu": "750m"}}
    found = pod(record=resized(2 * MINUTE, limited=True), resources=amounts)
    since = {("default", "web-0"): reading(NOW - MINUTE, {"main": {"cpu": used}})}
    earlier = {("default", "web-0"): reading(NOW - 3 * MINUTE, {"main": {"cpu": used}})}

    assert isinstance(decided(found, readings=since).action, Undo) == is_undone
    assert decided(found, readings=earlier).action is None


def test_after_an_undo_the_workload_is_left_alone_for_longer_and_longer() -> None:
    first = pod(record=resized(59 * MINUTE, undone="it was killed", undos=1))
    second = pod(record=resized(61 * MINUTE, undone="it was killed", undos=2))
    over = pod(record=resized(61 * MINUTE, undone="it was killed", undos=1))

    assert text_of(decided(first, pod("web-1"))) == (
        ": the resize of pod web-0 was undone: it was killed; next attempt in 1m0s"
    )
    assert decided(second).action is None
    assert isinstance(decided(over).action, Resize)


def test_an_undo_gives_back_what_nobody_has_changed_since() -> None:
    record = {
        "at": NOW.isoformat(),
        "containers": {
            "main": {
                "requests": {
                    "cpu": {"before": "1", "after": "750m"},
                    "memory": {"before": "1Gi", "after": "2Gi"},
                    "other": {"after": "1"},
                    "more": {"before": "1"},
                }
            }
        },
    }
    found = pod(record=record, resources={"requests": {"cpu": "750m", "memory": "3Gi", "other": "1"}})
    read = record_of(found, NOW)

    assert read is not None
    assert describe(restored(found, read)) == "main: cpu 750m -> 1"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"by": "admission", "at": "2026-01-01T00:00:00Z"}',
        '{"by": "resize"}',
        '{"by": "resize", "at": "2026-01-03T00:02:00Z"}',
    ],
)
def test_an_annotation_that_is_no_record_of_a_resize_is_none(text: str) -> None:
    assert record_of(pod(metadata={"annotations": {APPLIED: text}}), NOW) is None
