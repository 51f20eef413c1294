"""Objects are applied, workloads scaled, objects deleted; pods are counted that would fit."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    DEPLOYMENTS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
)
from koordinator.simulate.change import ChangeError
from koordinator.simulate.fit import Fit
from koordinator.simulate.object_changes import Apply, Delete, Scale
from koordinator.simulate.workloads import parse_workload
from tests.simulate.clusters import WEB_OWNER, Document, cluster, deployment, node, outcome_of, places, pod, put


def _priority_class(name: str, value: int) -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_a_new_deployment_gets_its_pods_and_these_get_nodes() -> None:
    outcome = outcome_of(cluster([node("a"), node("b")]), Apply([deployment("web", 4, "2")]))
    assert outcome["changes"] == ["deployment default/web with 4 pods is created"]
    assert places(outcome) == {"a": 2, "b": 2}
    assert {each["workload"] for each in outcome["placed"]} == {"deployment default/web"}
    assert outcome["departed"] == outcome["pending"] == []


def test_the_number_on_the_command_line_counts() -> None:
    outcome = outcome_of(cluster([node("a")]), Apply([deployment("web", 4)], replicas=1))
    assert places(outcome) == {"a": 1}
    given = pod("one")
    given["status"] = {}
    outcome = outcome_of(cluster([node("a")]), Apply([given], replicas=3))
    assert outcome["changes"] == ["3 pods like default/one are created"]
    assert places(outcome) == {"a": 3}


def test_more_important_pods_make_others_go_who_find_another_node() -> None:
    api = cluster(
        [node("a", "2", disk="fast"), node("b", "2")],
        [pod("low-1", "a", "2", WEB_OWNER), pod("other", "b", "0.1")],
    )
    wanted = pod("high", cpu="2", nodeSelector={"disk": "fast"}, priorityClassName="high")
    del wanted["spec"]["priority"]
    outcome = outcome_of(api, Apply([_priority_class("high", 1000), wanted]))
    (departure,) = outcome["departed"]
    assert departure["pod"] == "default/low-1"
    assert departure["cause"] == "preempted"
    assert departure["by"] == "default/high"
    # Its replacement needs 2 cores, and b has 1.9 free.
    assert departure["replacement"]["node"] == ""
    assert {each["pod"]: each["node"] for each in outcome["placed"]} == {"default/high": "a"}
    (group,) = outcome["pending"]
    assert group["pods"][0]["replaces"] == {"pod": "default/low-1", "node": "a"}


def test_a_workload_is_scaled_up_and_down() -> None:
    api = put(cluster([node("a", "2"), node("b", "2")]), DEPLOYMENTS, deployment("web", 1))
    workload = parse_workload("deploy/web", "default")
    outcome = outcome_of(api, Scale(workload, 5))
    assert outcome["changes"] == ["deployment default/web is scaled from 0 to 5 pods"]
    assert places(outcome) == {"a": 2, "b": 2}
    assert len(outcome["pending"][0]["pods"]) == 1
    outcome = outcome_of(api, Scale(workload, 3), Scale(workload, 1))
    assert len(outcome["placed"]) == 1
    assert outcome["departed"] == [] or all(each["cause"] == "scaled down" for each in outcome["departed"])


def test_pods_without_a_node_go_first_when_a_workload_shrinks() -> None:
    replica_set = {
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-of-web"},
        "spec": {**deployment("web", 2)["spec"]},
    }
    pods = [pod("web-1", "a", owner=WEB_OWNER), pod("web-2", cpu="9", owner=WEB_OWNER)]
    api = put(cluster([node("a")], pods), REPLICA_SETS, replica_set)
    outcome = outcome_of(api, Scale(parse_workload("replicaset/web", "default"), 1))
    assert [each["pod"] for each in outcome["departed"]] == ["default/web-2"]
    assert outcome["placed"] == outcome["pending"] == []


def _daemon_set(cpu: str, **spec: Any) -> Document:
    found = deployment("agent", 1, cpu, **spec)
    found["kind"] = "DaemonSet"
    del found["spec"]["replicas"]
    return found


def test_a_daemon_set_has_a_pod_on_each_node_that_it_is_meant_for() -> None:
    tainted = node("c")
    tainted["spec"]["taints"] = [{"key": "team", "value": "data", "effect": "NoSchedule"}]
    cordoned = node("d")
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    api = cluster([node("a"), node("b", "1"), tainted, cordoned, node("e", pool="gpu")])
    outcome = outcome_of(api, Apply([_daemon_set("2")]))
    assert outcome["changes"] == ["daemonset default/agent with 4 pods is created"]
    assert places(outcome) == {"a": 1, "d": 1, "e": 1}
    assert "1 Insufficient cpu" in outcome["pending"][0]["message"]
    outcome = outcome_of(api, Apply([_daemon_set("2", nodeSelector={"pool": "gpu"})]))
    assert places(outcome) == {"e": 1}


def test_a_daemon_set_that_changes_gets_new_pods_and_one_that_is_deleted_loses_them() -> None:
    api = cluster([node("a"), node("b")])
    outcome = outcome_of(api, Apply([_daemon_set("1")]), Apply([_daemon_set("3")]))
    assert {each["resources"]["cpu"]["after"]["requested"] for each in outcome["nodes"]} == {"3 cores"}
    outcome = outcome_of(api, Apply([_daemon_set("1")]), Delete("daemonset", "agent"))
    assert outcome["nodes"] == []


def test_what_is_deleted_makes_room() -> None:
    api = cluster([node("a", "2")], [pod("big", "a", "2"), pod("waiting", cpu="2")])
    outcome = outcome_of(api, Delete("pod", "big"))
    assert outcome["changes"] == ["Pod default/big is deleted"]
    assert {each["pod"]: each["node"] for each in outcome["placed"]} == {"default/waiting": "a"}


def test_new_pods_pass_the_profiles_of_koord_manager() -> None:
    profile = {
        "metadata": {"name": "batch"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
        },
    }
    batch = node("a")
    batch["status"]["allocatable"] = {**batch["status"]["allocatable"], "kubernetes.io/batch-cpu": "3000"}
    api = put(cluster([batch]), CLUSTER_COLOCATION_PROFILES, profile)
    put(api, PRIORITY_CLASSES, _priority_class("koord-batch", 5000))
    outcome = outcome_of(api, Apply([deployment("web", 4)]))
    assert places(outcome) == {"a": 3}
    assert "kubernetes.io/batch-cpu" in outcome["pending"][0]["message"]


def test_an_object_that_an_api_server_would_refuse_is_refused() -> None:
    broken = deployment("web", 1)
    broken["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1"
    with pytest.raises(ChangeError, match=r"an API server would refuse it: .*must be greater than or equal to 0"):
        outcome_of(cluster([node("a")]), Apply([broken]))
    with pytest.raises(ChangeError, match="no PriorityClass with name nothing was found"):
        outcome_of(cluster([node("a")]), Apply([pod("x", priorityClassName="nothing")]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Apply([{"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "x"}}]), "knows no such kind"),
        (Delete("deployment", "web"), "there is no Deployment 'web' in the namespace 'default'"),
        (Delete("fleet", "web"), "'fleet' is no kind that what-if knows"),
        (Delete("node", "z"), "there is no Node 'z' in the snapshot"),
    ],
)
def test_what_is_not_there_is_refused(change: Any, said: str) -> None:
    with pytest.raises(ChangeError, match=said):
        outcome_of(cluster([node("a")]), change)


@pytest.mark.parametrize("text", ["web", "pod/web", "deployment/", "a/b/c/d"])
def test_a_workload_is_named_by_kind_and_name(text: str) -> None:
    with pytest.raises(ChangeError, match="KIND/NAME is needed, and KIND is one of deployment, replicaset"):
        parse_workload(text, "default")


def test_how_many_more_fit_and_what_stops_the_next_one() -> None:
    api = cluster([node("a"), node("b", "3")], [pod("x", "a", "3")])
    outcome = outcome_of(api, Fit(deployment("web", 1, "2")))
    fit = outcome["fit"]
    assert fit["like"] == "deployment default/web"
    assert fit["replicas"] == 3
    assert not fit["atLeast"]
    assert fit["nodes"] == {"a": 2, "b": 1}
    assert fit["stoppedBy"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert outcome["departed"] == outcome["pending"] == []


def test_a_namespace_that_is_missing_is_made_for_what_shall_fit_as_for_what_is_applied() -> None:
    planned = pod("x")
    planned["metadata"]["namespace"] = "shop"

    outcome = outcome_of(cluster([node("a", "100")]), Fit(planned, at_most=3))

    assert outcome["fit"]["replicas"] == 3
    assert "the namespace shop is not in the snapshot; it is made" in outcome["notes"]


def test_counting_ends_at_the_number_that_was_given() -> None:
    outcome = outcome_of(cluster([node("a", "100")]), Fit(pod("x"), at_most=20))
    assert outcome["fit"]["replicas"] == 20
    assert outcome["fit"]["atLeast"]


def test_pods_that_are_counted_evict_others_only_where_they_may() -> None:
    api = put(cluster([node("a", "4")], [pod("low", "a", "2")]), PRIORITY_CLASSES, _priority_class("high", 9))
    wanted = pod("x", priorityClassName="high")
    outcome = outcome_of(api, Fit(wanted))
    assert outcome["fit"]["replicas"] == 2
    assert outcome["departed"] == []
    outcome = outcome_of(api, Fit(wanted, with_preemption=True))
    assert outcome["fit"]["replicas"] == 4
    assert [each["pod"] for each in outcome["departed"]] == ["default/low"]
