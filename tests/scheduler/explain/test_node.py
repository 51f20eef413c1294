"""What is said of a node: what it offers, its load against thresholds, who could come to it and who is kept off."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from koordinator.api.node import NodeCondition
from koordinator.api.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimVolumeSource,
    PodSchedulingGate,
    Volume,
)
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain import explain_node
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.taint_toleration import TaintToleration
from tests.scheduler.explain.scene import Scene, make_node, make_pod, tainted


def test_nothing_is_known_of_a_node_that_is_not_there() -> None:
    assert explain_node(Scene(make_node("a")).sources, "b") is None


def test_what_is_offered_requested_and_free_is_listed_by_resource() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.place(make_pod("p", cpu="1", node="a"))
    assert scene.node("a")["resources"][0] == {
        "name": "cpu",
        "allocatable": "4 cores",
        "requested": "1 core",
        "free": "3 cores",
        "requestedPercent": 25.0,
    }


def test_a_resource_that_the_node_has_no_more_has_no_share() -> None:
    scene = Scene(make_node("a", cpu="0"))
    scene.place(make_pod("p", cpu="1", node="a"))
    cpu = scene.node("a")["resources"][0]
    assert (cpu["free"], cpu.get("requestedPercent")) == ("-1 core", None)


def test_pods_are_counted_against_their_limit() -> None:
    scene = Scene(make_node("a", pods="7"))
    scene.place(make_pod("p", node="a"))
    assert scene.node("a")["pods"] == {"running": 1, "limit": 7}


def test_a_cordon_is_named() -> None:
    assert Scene(make_node("a", unschedulable=True)).node("a")["cordoned"] is True


def test_taints_are_as_kubectl_writes_them() -> None:
    node = tainted(tainted(make_node("a"), "team", "data"), "slow", effect="PreferNoSchedule")
    assert Scene(node).node("a")["taints"] == ["team=data:NoSchedule", "slow:PreferNoSchedule"]


def test_only_conditions_that_are_as_they_should_not_be_are_named() -> None:
    conditions = [
        NodeCondition(type="Ready", status="False", reason="KubeletNotReady", message="down"),
        NodeCondition(type="MemoryPressure", status="True", reason="Little"),
        NodeCondition(type="DiskPressure", status="False"),
    ]
    node = make_node("a")
    node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))
    assert Scene(node).node("a")["conditions"] == ["Ready=False: down", "MemoryPressure=True: Little"]


def test_a_node_names_its_nominated_pods() -> None:
    scene = Scene(make_node("a"))
    scene.view.nominations.set(scene.info(make_pod("p")), "a")
    assert scene.node("a")["nominatedPods"] == ["default/p"]


def test_load_is_shown_against_the_thresholds_in_force() -> None:
    scene = Scene(make_node("a", cpu="4", memory="8Gi"))
    scene.report("a", cpu="1", memory="2Gi")
    facts = scene.node("a")["plugins"]["LoadAwareScheduling"]
    assert (facts["reported"], facts["expired"], facts["reportedAt"]) == (True, False, "2025-12-31T23:59:59.000000Z")
    assert facts["usage"][0] == {
        "name": "cpu",
        "measured": "1 core",
        "notMeasuredYet": "0 cores",
        "expected": "1 core",
        "expectedPercent": 25.0,
        "prodPercent": 0.0,
        "threshold": 65,
        "prodThreshold": 0,
        "aggregatedThreshold": 0,
    }


def test_what_new_pods_are_expected_to_use_is_not_measured_yet() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.report("a", cpu="1", memory="2Gi")
    scene.try_pod(make_pod("p", cpu="1"))
    cpu = scene.node("a")["plugins"]["LoadAwareScheduling"]["usage"][0]
    assert (cpu["notMeasuredYet"], cpu["expected"]) == ("0.85 cores", "1.85 cores")


def test_thresholds_of_the_node_s_own_are_shown() -> None:
    node = make_node("a")
    annotation = {"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds":{"cpu":40}}'}
    scene = Scene(
        msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotation))
    )
    scene.report("a", cpu="1", memory="2Gi")
    assert scene.node("a")["plugins"]["LoadAwareScheduling"]["usage"][0]["threshold"] == 40


def test_a_report_that_is_too_old_is_expired() -> None:
    scene = Scene(make_node("a"))
    scene.report("a", cpu="1", memory="2Gi", age=1e6)
    assert scene.node("a")["plugins"]["LoadAwareScheduling"]["expired"] is True


def test_a_report_grows_old_while_nothing_is_decided() -> None:
    scene = Scene(make_node("a"))
    scene.report("a", cpu="1", memory="2Gi")
    scene.now += timedelta(hours=1)
    assert scene.node("a")["plugins"]["LoadAwareScheduling"]["expired"] is True


def test_a_node_without_a_report_says_so() -> None:
    scene = Scene(make_node("a"))
    scene.place(make_pod("p", node="a"))
    assert scene.node("a")["plugins"] == {"LoadAwareScheduling": {"reported": False, "expired": False}}


def test_pods_that_wait_are_queried_who_keeps_them_off() -> None:
    scene = Scene(make_node("a", cpu="1"))
    scene.try_pod(make_pod("p", cpu="2"))
    document = scene.node("a")
    assert document["evaluated"] == {"pods": 1, "kinds": 1, "wouldTake": 0}
    assert document["rejectedBy"] == [
        {
            "plugin": "NodeResourcesFit",
            "reasons": ["Insufficient cpu"],
            "pods": 1,
            "examples": ["default/p"],
            "details": ["cpu: short by 1 core (needs 2 cores, free 1 core; the node has 1 core in all)"],
        }
    ]


def test_pods_alike_are_queried_about_once_and_counted_all() -> None:
    scene = Scene(make_node("a", cpu="1"))
    for number in range(6):
        scene.try_pod(make_pod(f"p{number}", cpu="2"))
    document = scene.node("a")
    assert document["evaluated"] == {"pods": 6, "kinds": 1, "wouldTake": 0}
    assert document["rejectedBy"][0]["examples"] == ["default/p0", "default/p1", "default/p2"]


def test_pods_that_were_placed_last_are_queried_too() -> None:
    scene = Scene(make_node("a"), make_node("b", unschedulable=True))
    scene.try_pod(make_pod("p"))
    assert scene.node("b")["rejectedBy"][0]["plugin"] == "NodeUnschedulable"


def test_pods_that_came_to_the_node_are_counted_and_not_queried() -> None:
    scene = Scene(make_node("a", cpu="1"))
    scene.try_pod(make_pod("p", cpu="1"))
    document = scene.node("a")
    assert (document["evaluated"]["pods"], document["placedLately"]) == (0, 1)


def test_only_so_many_kinds_of_pods_are_queried_about() -> None:
    scene = Scene(make_node("a", cpu="1"))
    for number in range(30):
        scene.try_pod(make_pod(f"p{number}", cpu=str(2 + number)))
    assert scene.node("a")["evaluated"]["kinds"] == 20


def test_a_gated_pod_is_not_queried_about() -> None:
    scene = Scene(make_node("a"))
    pod = make_pod("p")
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=[PodSchedulingGate(name="x")])
    scene.add(msgspec.structs.replace(pod, spec=spec))
    assert scene.node("a")["evaluated"]["pods"] == 0


def test_a_pod_that_is_refused_before_any_node_is_looked_at_is_kept_off_by_that() -> None:
    scene = Scene(make_node("a"))
    pod = make_pod("p")
    volume = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="data"))
    scene.try_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=[volume])))
    (entry,) = scene.node("a")["rejectedBy"]
    assert entry["reasons"] == ['persistentvolumeclaim "data" not found']


def test_a_pod_that_may_only_go_elsewhere_says_so() -> None:
    scene = Scene(make_node("a", cpu="1"), make_node("b", cpu="1"))
    named = NodeSelectorRequirement(key="metadata.name", operator="In", values=["b"])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[named])])
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    pod = make_pod("p", cpu="2")
    scene.try_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity)))
    (entry,) = scene.node("a")["rejectedBy"]
    assert (entry["plugin"], entry["reasons"]) == ("NodeAffinity", ["the pod may only go to certain other nodes"])


def test_a_plugin_that_raises_is_named_and_the_others_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(make_node("a"))
    scene.add(make_pod("p"))

    def broken(plugin: TaintToleration, pod: PodInfo, state: object, rows: Rows) -> Ints:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(TaintToleration, "filter", broken)
    document = scene.node("a")
    assert document["rejectedBy"][0]["reasons"] == ["could not be evaluated: ZeroDivisionError: x"]
    assert document["pods"]["running"] == 0


def test_facts_that_a_plugin_fails_to_give_are_an_error_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plugin: LoadAwareScheduling, row: int) -> None:
        raise KeyError(row)

    monkeypatch.setattr(LoadAwareScheduling, "node_facts", broken)
    document = Scene(make_node("a")).node("a")
    assert document["plugins"] == {"LoadAwareScheduling": {"error": "KeyError: 0"}}


def test_a_plugin_that_cannot_tell_the_time_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(make_node("a"))

    def broken(plugin: LoadAwareScheduling, now: datetime) -> None:
        raise KeyError("x")

    monkeypatch.setattr(LoadAwareScheduling, "on_time", broken)
    document = scene.node("a")
    assert (document["notUpToDate"], document["node"]) == ("KeyError: 'x'", "a")
