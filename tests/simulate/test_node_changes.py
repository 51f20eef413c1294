"""Nodes are drained, removed and added."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.kinds import NODE_METRICS, POD_DISRUPTION_BUDGETS
from koordinator.api.timestamps import format_time
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.simulate.change import ChangeError
from koordinator.simulate.node_changes import AddNodes, Drain, RemoveNodes
from koordinator.simulate.pod_life import as_new
from tests.simulate.clusters import WEB_OWNER, Document, cluster, node, outcome_of, places, pod, put


def _of(kind: str, **more: Any) -> Document:
    return {**WEB_OWNER, "kind": kind, **more}


def test_the_pods_of_a_drained_node_move_to_where_there_is_capacity() -> None:
    api = cluster(
        [node("a"), node("b", "2"), node("c")],
        [pod("web-1", "a", "2", WEB_OWNER), pod("web-2", "a", "2", WEB_OWNER), pod("full", "b", "2")],
    )
    outcome = outcome_of(api, Drain(["a"]))
    assert outcome["changes"] == ["node a is drained"]
    assert places(outcome) == {"c": 2}
    assert {each["replaces"]["pod"] for each in outcome["placed"]} == {"default/web-1", "default/web-2"}
    assert [each["cause"] for each in outcome["departed"]] == ["drained", "drained"]
    assert outcome["pending"] == outcome["blocked"] == []
    assert outcome["settled"]


def test_a_pod_that_is_made_again_has_nothing_of_its_earlier_place() -> None:
    placed = pod("web-1", "a", owner=WEB_OWNER)
    placed["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}',
        "scheduling.koordinator.sh/reservation-allocated": '{"name":"r","uid":"u"}',
        "example.com/kept": "yes",
    }
    placed["spec"] |= {"priorityClassName": "system-node-critical", "priority": 2_000_001_000}
    new = as_new(placed)
    assert new["metadata"]["annotations"] == {"example.com/kept": "yes"}
    assert new["metadata"]["ownerReferences"] == [WEB_OWNER]
    assert new["metadata"]["generateName"] == "web-"
    assert {"nodeName", "priority"}.isdisjoint(new["spec"])
    assert places(outcome_of(cluster([node("a"), node("b")], [placed]), Drain(["a"]))) == {"b": 1}


def test_what_does_not_fit_elsewhere_stays_pending_and_it_is_said_why() -> None:
    api = cluster([node("a"), node("b", "1")], [pod("web-1", "a", "2", WEB_OWNER)])
    outcome = outcome_of(api, Drain(["a"]))
    (group,) = outcome["pending"]
    assert group["workload"] == "replicaset default/web"
    assert group["message"].startswith("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable")
    assert any("2 cores of cpu" in line for line in group["advice"])
    assert group["pods"][0]["replaces"] == {"pod": "default/web-1", "node": "a"}


def test_a_replacement_that_leaves_as_well_is_still_named() -> None:
    """It is drained to the only other node, which is removed then, and is replaced in turn."""
    api = cluster([node("a"), node("b")], [pod("web-1", "a", "2", WEB_OWNER)])
    outcome = outcome_of(api, Drain(["a"]), RemoveNodes(["b"]))
    drained, removed = outcome["departed"]
    assert (drained["pod"], drained["cause"], removed["cause"]) == ("default/web-1", "drained", "node removed")
    assert drained["replacement"] == {"pod": removed["pod"], "node": "b", "leaves": True}
    assert removed["replacement"]["node"] == ""
    assert "leaves" not in removed["replacement"]


def test_pods_without_a_controller_stay_unless_they_are_forced() -> None:
    api = cluster([node("a"), node("b")], [pod("alone", "a")])
    outcome = outcome_of(api, Drain(["a"]))
    assert outcome["departed"] == []
    assert outcome["blocked"] == [
        "default/alone stays on a: it has no controller that makes it again; --force evicts it all the same"
    ]
    outcome = outcome_of(api, Drain(["a"], force=True))
    assert outcome["blocked"] == outcome["placed"] == []
    assert outcome["departed"][0]["notReplaced"] == "no controller makes it again"


def test_pods_that_belong_to_their_node_stay_there() -> None:
    mirror = pod("static", "a")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    finished = pod("finished", "a", owner=_of("Job"))
    finished["status"] = {"phase": "Succeeded"}
    api = cluster([node("a"), node("b")], [pod("agent", "a", owner=_of("DaemonSet")), mirror, finished])
    outcome = outcome_of(api, Drain(["a"]))
    assert outcome["departed"] == outcome["placed"] == outcome["blocked"] == []
    assert outcome["notes"] == [
        "3 pods of DaemonSets, static pods and finished pods stay on the drained nodes, as with kubectl drain "
        "--ignore-daemonsets"
    ]


def _budget(**spec: Any) -> Document:
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {
            "observedGeneration": 1,
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "disruptionsAllowed": 1,
            "expectedPods": 2,
        },
    }


def test_a_drain_goes_on_as_soon_as_a_budget_lets_it() -> None:
    """One at a time: the second pod goes when the replacement of the first is ready."""
    pods = [pod("web-1", "a", owner=WEB_OWNER), pod("web-2", "a", owner=WEB_OWNER)]
    api = put(cluster([node("a"), node("b")], pods), POD_DISRUPTION_BUDGETS, _budget(minAvailable=1))
    outcome = outcome_of(api, Drain(["a"]))
    assert places(outcome) == {"b": 2}
    assert outcome["blocked"] == []


def test_a_budget_that_never_lets_go_blocks_the_drain() -> None:
    pods = [pod("web-1", "a", owner=WEB_OWNER), pod("web-2", "a", owner=WEB_OWNER)]
    api = cluster([node("a"), node("b")], pods)
    budget = _budget(minAvailable=2)
    # As it was before the budget was changed: what it allows now has not been counted yet.
    budget["status"]["observedGeneration"] = 0
    outcome = outcome_of(put(api, POD_DISRUPTION_BUDGETS, budget), Drain(["a"]))
    assert outcome["departed"] == []
    why = "stays on a: The disruption budget web needs 2 healthy pods and has 2 currently"
    assert outcome["blocked"] == [f"default/web-1 {why}", f"default/web-2 {why}"]


def test_a_budget_of_a_controller_that_is_not_known_counts_from_what_it_wanted() -> None:
    """A share of what some operator's resource wants cannot be computed here; without it nothing could be drained."""
    owner = {**WEB_OWNER, "apiVersion": "example.com/v1", "kind": "Fleet"}
    pods = [pod("web-1", "a", owner=owner), pod("web-2", "a", owner=owner)]
    api = put(cluster([node("a"), node("b")], pods), POD_DISRUPTION_BUDGETS, _budget(minAvailable="50%"))
    outcome = outcome_of(api, Drain(["a"]))
    assert places(outcome) == {"b": 2}
    assert outcome["blocked"] == []


def test_the_pods_of_a_node_that_is_gone_are_lost_whatever_budgets_say() -> None:
    api = cluster([node("a"), node("b")], [pod("web-1", "a", owner=WEB_OWNER), pod("alone", "a")])
    put(api, POD_DISRUPTION_BUDGETS, _budget(minAvailable=2))
    outcome = outcome_of(api, RemoveNodes(["a"]))
    assert places(outcome) == {"b": 1}
    assert {each["cause"] for each in outcome["departed"]} == {"node removed"}
    assert outcome["cluster"]["nodes"] == [2, 1]
    assert {each["node"]: each["state"] for each in outcome["nodes"]} == {"a": "removed", "b": "changed"}


def test_pending_pods_get_nodes_that_are_added() -> None:
    model = node("a", "4", zone="one")
    model["spec"] = {
        "unschedulable": True,
        "podCIDR": "10.0.0.0/24",
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    waiting = [pod(f"web-{number}", cpu="3", owner=WEB_OWNER, nodeSelector={"zone": "two"}) for number in range(3)]
    outcome = outcome_of(cluster([model], waiting), AddNodes("a", 2, (("zone", "two"),)))
    assert outcome["changes"] == ["nodes a-what-if-1, a-what-if-2 like a are added"]
    assert places(outcome) == {"a-what-if-1": 1, "a-what-if-2": 1}
    assert outcome["before"] == {"wouldBePlaced": 0, "pending": 3}
    assert outcome["after"] == {"pending": 1}
    assert outcome["cluster"]["nodes"] == [1, 3]


def test_daemon_sets_have_a_pod_on_each_node_that_is_added() -> None:
    agent = pod("agent-abcde", "a", "3", _of("DaemonSet"))
    match = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [match]}]}
    agent["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    outcome = outcome_of(
        cluster([node("a", "4")], [agent, pod("waiting-1", cpu="3"), pod("waiting-2", cpu="1")]), AddNodes("a")
    )
    # Of the 4 cores of the new node the agent has 3.
    assert {each["pod"]: each["node"] for each in outcome["placed"]} == {}
    assert outcome["before"] == {"wouldBePlaced": 1, "pending": 1}
    assert outcome["notes"] == ["a pod of a DaemonSet, as on a, on each new node"]
    (added,) = outcome["nodes"]
    assert added["resources"]["cpu"]["after"]["requested"] == "3 cores"


def test_a_node_that_is_added_reports_what_the_system_alone_uses() -> None:
    api = cluster([node("a")])
    usage = {"resources": {"cpu": "7", "memory": "20Gi"}}
    metric = {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
    status = {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": metric, "podsMetric": [{"name": "x"}]}
    put(api, NODE_METRICS, {"metadata": {"name": "a"}, "spec": {}, "status": status})
    outcome = outcome_of(api, AddNodes("a"))
    assert outcome["cluster"]["nodes"] == [1, 2]


def test_a_node_that_is_added_does_not_use_the_pool_of_huge_pages() -> None:
    """Of 64 GiB, 48 are huge pages, which the system's usage contains and that of a node does not."""
    model = node("a", "4")
    model["status"]["capacity"] = {**model["status"]["capacity"], "memory": "64Gi", "hugepages-1Gi": "48Gi"}
    model["status"]["allocatable"] = {**model["status"]["allocatable"], "memory": "16Gi"}
    api = cluster([model], [pod("full", "a", cpu="4"), pod("web")])
    metric = {
        "nodeUsage": {"resources": {"cpu": "1", "memory": "2Gi"}},
        "systemUsage": {"resources": {"cpu": "1", "memory": "50Gi"}},
    }
    status = {"updateTime": format_time(datetime.now(UTC)), "nodeMetric": metric}
    put(api, NODE_METRICS, {"metadata": {"name": "a"}, "spec": {}, "status": status})
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: LoadAwareScheduling}]
"""
    outcome = outcome_of(api, AddNodes("a"), configuration=parse_configuration(text, "by load"))
    assert places(outcome) == {"a-what-if-1": 1}


@pytest.mark.parametrize("change", [Drain(["x"]), RemoveNodes(["x"]), AddNodes("x")])
def test_a_node_that_is_not_there_is_refused(change: Any) -> None:
    with pytest.raises(ChangeError, match="there is no node 'x' in the snapshot; there are a, b"):
        outcome_of(cluster([node("a"), node("b")]), change)
