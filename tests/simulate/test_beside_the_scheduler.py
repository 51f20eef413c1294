"""What others than the scheduler do: quotas of namespaces, volume controllers, disruption budgets, reports of nodes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from koordinator.api.kinds import (
    CSI_NODES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    STORAGE_CLASSES,
)
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.scheduler.configuration import load_configuration
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.simulate.change import ChangeError
from koordinator.simulate.node_changes import Drain
from koordinator.simulate.object_changes import Apply, Scale
from koordinator.simulate.simulated_cluster import SimulationOptions
from koordinator.simulate.snapshot_kinds import RESOURCE_QUOTAS
from koordinator.simulate.workloads import parse_workload
from tests.simulate.clusters import WEB_OWNER, Document, cluster, deployment, node, outcome_of, places, pod, put


def _quota(cpu: str) -> Document:
    metadata = {"name": "compute", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"requests.cpu": cpu}}}


def test_a_quota_of_the_namespace_lets_only_some_pods_be_made() -> None:
    api = put(cluster([node("a", "16")], [pod("there", "a", "1")]), RESOURCE_QUOTAS, _quota("4"))
    outcome = outcome_of(api, Apply([deployment("web", 5)]))
    assert places(outcome) == {"a": 3}
    assert outcome["pending"] == []
    assert outcome["blocked"] == [
        "deployment default/web: 2 of its pods are not created: exceeded quota: compute, requested: requests.cpu=1, "
        "used: requests.cpu=4, limited: requests.cpu=4"
    ]
    with pytest.raises(ChangeError, match=r"an API server would refuse it: .*exceeded quota: compute"):
        outcome_of(api, Apply([pod("x", cpu="9")]))


def test_a_quota_that_is_raised_lets_more_of_them_be_made() -> None:
    api = put(cluster([node("a", "16")]), RESOURCE_QUOTAS, _quota("2"))
    workload = parse_workload("deployment/web", "default")
    outcome = outcome_of(api, Apply([deployment("web", 2)]), Apply([_quota("4")]), Scale(workload, 6))
    assert places(outcome) == {"a": 4}
    assert outcome["blocked"][0].startswith("deployment default/web: 2 of its pods are not created")


def test_who_replaces_a_pod_takes_its_part_of_the_quota() -> None:
    pods = [pod("web-1", "a", "2", WEB_OWNER), pod("web-2", "a", "2", WEB_OWNER)]
    api = put(cluster([node("a"), node("b")], pods), RESOURCE_QUOTAS, _quota("4"))
    outcome = outcome_of(api, Drain(["a"]))
    assert places(outcome) == {"b": 2}


def _stateful_set(storage_class: str) -> Document:
    found = deployment("db", 2)
    template = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    found |= {"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}}
    found["spec"] |= {"serviceName": "db", "volumeClaimTemplates": [template]}
    return found


def _storage_class(mode: str, provisioner: str = "csi.example.com") -> Document:
    return {"metadata": {"name": "disks"}, "provisioner": provisioner, "volumeBindingMode": mode}


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_claims_of_new_pods_get_volumes(mode: str) -> None:
    api = put(cluster([node("a"), node("b")]), STORAGE_CLASSES, _storage_class(mode))
    outcome = outcome_of(api, Apply([_stateful_set("disks")]))
    assert sorted(each["pod"] for each in outcome["placed"]) == ["default/db-0", "default/db-1"]
    assert outcome["settled"]


def test_a_volume_keeps_its_pod_in_its_zone() -> None:
    """The pod is made again after its node is drained, and its volume can be used in the same zone alone, although the
    other zone has a larger node."""
    zone = "topology.example.com/zone"
    sizes = (("a", "64", "one"), ("b", "8", "two"), ("c", "8", "two"))
    nodes = [node(name, cpu, **{zone: where}) for name, cpu, where in sizes]
    api = put(cluster(nodes), STORAGE_CLASSES, _storage_class("WaitForFirstConsumer"))
    for each in "abc":
        drivers = [{"name": "csi.example.com", "nodeID": each, "topologyKeys": [zone]}]
        put(api, CSI_NODES, {"metadata": {"name": each}, "spec": {"drivers": drivers}})
    stateful = _stateful_set("disks")
    stateful["spec"]["replicas"] = 1
    _prefer(stateful, {"kubernetes.io/hostname": "b"})
    assert places(outcome_of(api, Apply([stateful]))) == {"b": 1}
    outcome = outcome_of(api, Apply([stateful]), Drain(["b"]))
    placed = {each["pod"]: each["node"] for each in outcome["placed"]}
    assert placed["default/db-0"] == "c"


def _prefer(workload: Document, labels: dict[str, str]) -> None:
    """Its pods go to nodes with these labels where they can."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    term = {"weight": 100, "preference": {"matchExpressions": expressions}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    workload["spec"]["template"]["spec"]["affinity"] = affinity


def test_volumes_that_are_there_are_given_to_claims() -> None:
    volume = {
        "metadata": {"name": "local-a"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "volumeMode": "Filesystem",
            "local": {"path": "/data"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}
                    ]
                }
            },
        },
        "status": {"phase": "Available"},
    }
    by_hand = _storage_class("WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    api = put(cluster([node("a"), node("b")]), STORAGE_CLASSES, by_hand)
    put(api, PERSISTENT_VOLUMES, volume)
    outcome = outcome_of(api, Apply([_stateful_set("disks")]))
    assert {each["pod"]: each["node"] for each in outcome["placed"]} == {"default/db-0": "a"}
    (group,) = outcome["pending"]
    assert "didn't find available persistent volumes to bind" in group["message"]


def test_a_claim_that_was_waiting_for_its_provisioner_goes_on_waiting() -> None:
    """Nobody knows why it did; nothing here should say that it would work."""
    api = put(cluster([node("a")]), STORAGE_CLASSES, _storage_class("Immediate"))
    spec = {
        "storageClassName": "disks",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    put(api, PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "old", "namespace": "default"}, "spec": spec})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "old"}}]
    outcome = outcome_of(api, Apply([pod("x", volumes=volumes)]))
    assert "unbound immediate PersistentVolumeClaims" in outcome["pending"][0]["message"]


def test_a_budget_that_is_applied_holds_for_a_drain_after_it() -> None:
    pods = [pod("web-1", "a", owner=WEB_OWNER), pod("web-2", "a", owner=WEB_OWNER)]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    outcome = outcome_of(cluster([node("a"), node("b")], pods), Apply([budget]), Drain(["a"]))
    assert outcome["departed"] == []
    assert len(outcome["blocked"]) == 2
    api = put(cluster([node("a"), node("b")], pods), POD_DISRUPTION_BUDGETS, {**budget, "status": {}})
    budget["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    outcome = outcome_of(api, Apply([budget]), Drain(["a"]))
    assert places(outcome) == {"b": 2}


def test_a_node_of_a_file_has_the_capacity_that_the_file_says() -> None:
    new = {"apiVersion": "v1", "kind": "Node", **node("b", "4")}
    outcome = outcome_of(cluster([node("a", "1")], [pod("waiting", cpu="3")]), Apply([new]))
    assert outcome["changes"] == ["Node b is created"]
    assert places(outcome) == {"b": 1}


def _metric(cpu: str) -> Document:
    usage = {"resources": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "a"},
        "spec": {},
        "status": {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": usage}},
    }


def test_another_load_of_a_node_is_a_change_like_any_other() -> None:
    configuration = load_configuration(shipped_file("scheduler.yaml"))
    api = put(cluster([node("a")], [pod("waiting")]), NODE_METRICS, _metric("7"))
    outcome = outcome_of(api, configuration=configuration)
    assert outcome["before"] == {"wouldBePlaced": 0, "pending": 1}
    outcome = outcome_of(api, Apply([_metric("1")]), configuration=configuration)
    assert places(outcome) == {"a": 1}


def _elastic_quota(name: str, most: str) -> Document:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": most}},
    }


def test_a_new_elastic_quota_holds_for_its_pods() -> None:
    configuration = load_configuration(shipped_file("scheduler.yaml"))
    limited: dict[str, Any] = deployment("web", 3, "2")
    limited["spec"]["template"]["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = "team"
    changes = Apply([_elastic_quota("team", "4"), limited])
    outcome = outcome_of(cluster([node("a", "16")]), changes, configuration=configuration)
    assert places(outcome) == {"a": 2}
    assert "Insufficient quotas, quotaName: team" in outcome["pending"][0]["message"]


def test_pods_that_a_lowered_quota_revokes_leave_when_one_looks_far_enough_ahead() -> None:
    document = yaml.safe_load(shipped_file("scheduler.yaml").read_text())
    for profile in document["profiles"]:
        args = {"monitorAllQuotas": True, "delayEvictTime": "2m", "revokePodInterval": "1s"}
        given = [each for each in profile.get("pluginConfig", []) if each["name"] != "ElasticQuota"]
        profile["pluginConfig"] = [*given, {"name": "ElasticQuota", "args": args}]
    configuration = parse_configuration(yaml.safe_dump(document), "revoking")
    pods = [pod(f"web-{number}", "a", "2", WEB_OWNER) for number in range(3)]
    for each in pods:
        each["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = "team"
    api = put(cluster([node("a", "16")], pods), ELASTIC_QUOTAS, _elastic_quota("team", "6"))
    change = Apply([_elastic_quota("team", "2")])
    at_once = outcome_of(api, change, configuration=configuration)
    assert at_once["departed"] == []
    later = outcome_of(api, change, configuration=configuration, options=SimulationOptions(look_ahead=300))
    assert [each["cause"] for each in later["departed"]] == ["evicted", "evicted"]
    assert all("quota" in each["message"].lower() for each in later["departed"])
    (group,) = later["pending"]
    assert len(group["pods"]) == 2
    assert "Insufficient quotas" in group["message"]
