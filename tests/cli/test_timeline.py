"""What happened to a pod, in the order of time."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from koordinator.api.audit_answer import KeptRecord
from koordinator.api.explanations import AttemptRecord, Moment, ScoredNode
from koordinator.api.modification import EVICTED, MOVED, Cause, Modification, Subject
from koordinator.cli.timeline import Traces, moment_of_record, timeline_of

UID = "uid-1"
CREATED = "2026-01-01T00:00:00Z"


def at(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:09.6f}Z" if seconds % 1 else f"2026-01-01T00:00:{int(seconds):02}Z"


def pod(labels: dict[str, str] | None = None, *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": UID, "creationTimestamp": CREATED, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "koord-scheduler", **spec}, "status": status or {}}


def lines(moments: list[Moment]) -> list[str]:
    return [f"{each.program}: {each.what}" for each in moments]


def profile(name: str, created: str = "2025-12-31T00:00:00Z", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


def job(name: str, reference: dict[str, Any], *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    spec = {"podRef": reference, "mode": "ReservationFirst"}
    metadata = {"name": name, "creationTimestamp": at(20)}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **status}}


PLACED = AttemptRecord(
    time=at(2.5),
    attempt=2,
    result="placed",
    node="n1",
    evaluated_nodes=3,
    feasible_nodes=2,
    top_nodes=[ScoredNode(node="n1", score=300)],
)
REJECTED = AttemptRecord(
    time=at(1.5), attempt=1, result="unschedulable", message="0/3 nodes are available: 3 full. preemption: none."
)


def test_all_programs_are_in_one_line_of_time() -> None:
    state = {"running": {"startedAt": at(4)}}
    status = {
        "containerStatuses": [{"name": "main", "state": state}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(5)}],
    }
    held = {"cpus": 2, "since": at(10), "why": "65 % of 8 CPUs"}
    measured = {"name": "web", "namespace": "shop", "extensions": {"Object": {"suppression": held}}}
    traces = Traces(
        profiles=[profile("batch", selector={"matchLabels": {"app": "web"}}, qosClass="BE")],
        namespace_labels={},
        jobs=[job("move", {"uid": UID}, {"type": "Eviction", "status": "True", "lastTransitionTime": at(30)})],
        metric={"status": {"podsMetric": [measured]}},
    )
    web = pod({"app": "web", "koordinator.sh/qosClass": "BE"}, status=status, nodeName="n1")
    found = timeline_of(web, [], [REJECTED, PLACED], traces)
    assert lines(found) == [
        "API server: is created",
        "koord-manager: admits it, with the label koordinator.sh/qosClass=BE",
        "koord-scheduler: finds no node",
        "koord-scheduler: puts it on n1",
        "kubelet: the container main runs",
        "kubelet: it is ready",
        "koordlet: holds it down: 2 CPUs for all best-effort pods of the node",
        "koord-descheduler: is to move it: PodMigrationJob move",
        "koord-descheduler: Eviction",
    ]
    assert found[2].why == "0/3 nodes are available: 3 full."
    assert found[3].why == "2 of 3 nodes were good enough, score 300"
    assert found[6].why == "65 % of 8 CPUs"


def test_an_event_that_an_attempt_says_better_is_left_out() -> None:
    told = {"reason": "Scheduled", "reportingComponent": "koord-scheduler", "eventTime": at(3), "message": "m"}
    other = {"reason": "Killing", "source": {"component": "kubelet"}, "lastTimestamp": at(3), "count": 4}
    web = pod(nodeName="n1")
    assert lines(timeline_of(web, [told, other], [PLACED], Traces())) == [
        "API server: is created",
        "koord-scheduler: puts it on n1",
        "kubelet: Killing (4 times)",
    ]
    assert "koord-scheduler: Scheduled" in lines(timeline_of(web, [told], [], Traces()))


def test_a_pod_that_was_placed_long_ago_has_the_time_of_its_condition() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(7)}
    found = timeline_of(pod(nodeName="n1", status={"conditions": [scheduled]}), [], [], Traces())
    assert [(each.time, each.what) for each in found][1:] == [(at(7), "puts it on n1")]


def test_a_profile_counts_if_it_is_older_selects_the_pod_and_left_something() -> None:
    web = pod({"app": "web", "koordinator.sh/qosClass": "BE"})
    selector = {"matchLabels": {"app": "web"}}
    profiles = [
        profile("younger", at(30), selector=selector, qosClass="BE"),
        profile("other", selector={"matchLabels": {"app": "db"}}, qosClass="BE"),
        profile("elsewhere", namespaceSelector={"matchLabels": {"team": "a"}}, qosClass="BE"),
        profile("unlucky", selector=selector, qosClass="LS"),
        profile("broken", selector={"matchExpressions": [{"key": "a", "operator": "Near"}]}, qosClass="BE"),
    ]
    assert lines(timeline_of(web, [], [], Traces(profiles, {"team": "b"}))) == ["API server: is created"]


@pytest.mark.parametrize(
    ("applied", "what", "why"),
    [
        (
            {"containers": {"main": {"requests": {"cpu": {"before": "1", "after": "250m"}}}}},
            "admits it, with main: cpu 1 -> 250m",
            "Recommendation web is about it",
        ),
        ({"skipped": "it is stale"}, "admits it with the requests that it came with", "it is stale"),
    ],
)
def test_what_admission_made_of_a_recommendation_is_told(applied: dict[str, Any], what: str, why: str) -> None:
    found = pod()
    text = json.dumps({"recommendation": "web", "by": "admission", **applied})
    found["metadata"]["annotations"] = {"analysis.koordinator.sh/recommendation-applied": text}
    moments = timeline_of(found, [], [], Traces())

    assert [(each.what, each.why) for each in moments if each.program == "koord-manager"] == [(what, why)]


def test_a_resize_by_hand_is_told_by_its_record() -> None:
    found = pod()
    change = {"main": {"requests": {"cpu": {"before": "1", "after": "250m"}}}}
    record = {"recommendation": "web", "by": "resize", "at": at(9), "containers": change}
    found["metadata"]["annotations"] = {"analysis.koordinator.sh/recommendation-applied": json.dumps(record)}
    event = {"reason": "RecommendationApplied", "lastTimestamp": at(9), "message": "m", "reportingComponent": "r"}

    alone, with_event = (timeline_of(found, events, [], Traces()) for events in ([], [event]))

    assert [(each.what, each.why) for each in alone if each.program == "koord-manager"] == [
        ("resizes its containers in place", "Recommendation web: main: cpu 1 -> 250m")
    ]
    assert [each.program for each in with_event] == ["API server", "r"]


def test_a_pod_in_the_place_of_another_says_whose() -> None:
    moved = job(
        "move",
        {"namespace": "shop", "name": "old", "uid": "uid-0"},
        {"type": "BoundPodReady", "status": "True", "lastTransitionTime": at(40)},
        podRef={"namespace": "shop", "name": "web"},
    )
    *_, last = timeline_of(pod(), [], [], Traces(jobs=[moved]))
    assert (last.time, last.what) == (at(40), "has moved shop/old, in whose place it is")


def test_a_container_that_was_killed_says_why() -> None:
    last = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": at(9)}}
    status = {"containerStatuses": [{"name": "main", "lastState": last, "state": {}}]}
    *_, ended = timeline_of(pod(status=status), [], [], Traces())
    assert (ended.what, ended.why) == ("the container main has ended", "OOMKilled, exit code 137")


def record(actor: str, event: str, seconds: float) -> KeptRecord:
    about = Subject(kind="Pod", namespace="shop", name="web", uid=UID)
    given = Modification(
        program="koordlet",
        action=EVICTED,
        node="n1",
        actor=actor,
        object=about,
        time=datetime.fromisoformat(at(seconds)),
        cause=Cause(code="MemoryEvict", text="too little memory"),
    )
    return KeptRecord(event=event, record=given)


def test_a_record_takes_the_place_of_its_event_and_a_job_that_of_its_records() -> None:
    evicted = {
        "metadata": {"namespace": "shop", "name": "web.1"},
        "reason": "evictPodSuccess",
        "eventTime": at(30),
        "reportingComponent": "koordlet",
    }
    kept = [record("MemoryEvict", "shop/web.1", 30), record("PodMigrationJob/move", "shop/web.2", 31)]
    moving = job("move", {"namespace": "shop", "name": "web", "uid": UID})
    found = timeline_of(pod(), [evicted], (), Traces(jobs=[moving], records=kept))
    assert lines(found) == [
        "API server: is created",
        "koord-descheduler: is to move it: PodMigrationJob move",
        "koordlet: evicts it on n1",
    ]
    assert found[-1].why == "too little memory"
    assert lines(timeline_of(pod(), [], (), Traces(records=kept)))[-1] == "koordlet: evicts it on n1"


def test_records_of_an_earlier_pod_of_that_name_are_not_its_own() -> None:
    later = {**pod(), "metadata": {**pod()["metadata"], "creationTimestamp": at(40)}}
    traces = Traces(records=[record("x", "shop/web.1", 30)])
    assert lines(timeline_of(later, [], (), traces)) == ["API server: is created"]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"target": "shop/new", "pods": ["shop/new"], "node": "n2"}, "has moved it: shop/new is in its place on n2"),
        # Those of a job with the mode EvictDirectly, and of one whose replacement nobody waits for.
        ({}, "has moved it"),
        ({"target": "n2", "node": "n2"}, "has moved it to n2"),
    ],
)
def test_a_move_names_the_successor_as_far_as_it_is_known(fields: dict[str, Any], what: str) -> None:
    record = Modification(action=MOVED, object=Subject(kind="Pod", namespace="shop", name="web"), **fields)
    assert moment_of_record(record, "shop/web").what == what
