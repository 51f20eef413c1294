"""koord-manager with the rights of config/rbac and no others: nothing is forbidden, and no right is idle.

The API server writes an audit log of who requested what. A right that nobody uses would be one too many, one that is
missing would be seen as a refusal; so taking any of them away breaks something.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.manifests.webhooks import webhook_configurations
from tests.real.audited import Audited, Right, audited
from tests.real.manager_cluster import NAMESPACE, PROFILES, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms

CORE = "/api/v1"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
QUOTA_PROFILES = "/apis/quota.koordinator.sh/v1alpha1/namespaces/default/elasticquotaprofiles"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
TOPOLOGY = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
QUOTA_PROFILE = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
NODE = f"{CORE}/nodes/n1"
QUOTA = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/pool"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
QUOTA_KIND = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
PODS = f"{CORE}/namespaces/default/pods"
WAITING = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}}
MANAGED_PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "managed", "labels": {"config.koordinator.sh/controller-managed": "true"}},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "labels": {"reached": "yes"},
        # More of a pod than the manager watches: it has to be read.
        "patch": {"spec": {"activeDeadlineSeconds": 3600}},
    },
}
RECOMMENDER = "koord-manager-recommender"
ANY_SCALE: set[Right] = {("get", "*", "*/scale")}
UPDATES = "koord-manager-recommender-updates"
GATES = ("koord-manager-feature-gates", RECOMMENDER, UPDATES)
"""The ClusterRoles of feature gates that are off by default."""
ANALYSIS = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/default/recommendations"
TARGETS = {
    "Deployment": "",
    "StatefulSet": "",
    "DaemonSet": "",
    "ReplicaSet": "",
    "Job": "",
    "CronJob": "",
    "ReplicationController": "",
    "PodGroup": "scheduling.sigs.k8s.io/v1alpha1",
}
"""Kind of a workload -> its API version, where it has to be given."""
BATCH_CPU = "kubernetes.io/batch-cpu"


@pytest.fixture
def books(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path, "koord-manager", RECOMMENDER, GATES[0]) as made:
        yield made


def give_it_work(books: Audited) -> None:
    """Something for every right."""
    create = books.create
    amounts = {"cpu": "16", "memory": "64Gi"}
    create(f"{CORE}/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": amounts, "allocatable": amounts}})
    create(f"{CORE}/nodes", {"metadata": {"name": "n2"}})
    configuration = {
        "colocation-config": '{"enable": true}',
        "resource-amplification-config": '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}',
    }
    create(
        f"{CORE}/namespaces/{NAMESPACE}/configmaps",
        {"metadata": {"name": "slo-controller-config"}, "data": configuration},
    )
    zones = [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"}],
        }
    ]
    create(TOPOLOGIES, {**TOPOLOGY, "metadata": {"name": "n1"}, "topologyPolicies": ["None"], "zones": zones})
    good = {"quotaName": "pool", "nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux"}}}
    create(QUOTA_PROFILES, {**QUOTA_PROFILE, "metadata": {"name": "good"}, "spec": good})
    # What is wrong with it is told every ten seconds, as a series.
    bad = {"quotaName": "other", "resourceRatio": "2", "nodeSelector": {"matchLabels": {"a": "b"}}}
    create(QUOTA_PROFILES, {**QUOTA_PROFILE, "metadata": {"name": "bad"}, "spec": bad})


def report(books: Audited) -> None:
    usage = {"resources": {"cpu": "2", "memory": "4Gi"}}
    status = {
        "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    code, response = books.plane.request("PATCH", f"{SLO}/nodemetrics/n1/status", {"status": status})
    assert code == 200, response


def change_everything(books: Audited, running: ManagerProcess) -> None:
    """Once the first responses are there: what is patched and deleted."""
    exists = books.plane.request
    running.wait(lambda: exists("GET", f"{SLO}/nodeslos/n1")[0] == 200, "NodeSLO")
    running.wait(lambda: exists("GET", f"{SLO}/nodemetrics/n1")[0] == 200, "NodeMetric")
    report(books)
    running.wait(lambda: BATCH_CPU in exists("GET", NODE)[1]["status"]["allocatable"], "batch CPU")
    running.wait(lambda: exists("GET", QUOTA)[0] == 200, "quota")
    changed = {
        "colocation-config": '{"enable": true, "metricReportIntervalSeconds": 30}',
        "resource-threshold-config": '{"clusterStrategy": {"enable": true}}',
        # The status was written a moment ago: this is written by itself.
        "resource-amplification-config": '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.6}}',
    }
    configuration = f"{CORE}/namespaces/{NAMESPACE}/configmaps/slo-controller-config"
    assert exists("PATCH", configuration, {"data": changed})[0] == 200
    assert exists("DELETE", f"{CORE}/nodes/n2")[0] == 200
    assert exists("PATCH", NODE, {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})[0] == 200


def test_every_right_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    prepare(books.plane)
    books.install(*webhook_configurations())
    give_it_work(books)
    environment = {"WEBHOOK_CERT_WRITER": "secret"}
    with manager(OURS, books.kubeconfig, tmp_path / "manager", environment=environment) as running:
        running.wait_ready()
        change_everything(books, running)
        secret = f"{CORE}/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
        broken = {"data": {"tls.crt": "YnJva2Vu", "cert.pem": "YnJva2Vu"}}
        assert books.plane.request("PATCH", secret, broken)[0] == 200
        running.wait(lambda: not books.idle(but_for=GATES), "use of every right")
        assert running.stop() == 0
    assert books.refused() == []
    assert books.used() == books.granted(but_for=GATES)


def test_every_feature_gate_finds_its_rights_and_none_of_them_is_idle(books: Audited, tmp_path: Path) -> None:
    prepare(books.plane)
    # Before the webhooks are installed, to which nobody responds yet.
    books.create(PODS, {**WAITING, "metadata": {"name": "waiting", "labels": {"app": "web"}}})
    books.install(*webhook_configurations())
    arguments = [
        "--feature-gates=AllAlpha=true,AllBeta=true",
        "--quota-update-conflict-fresh-get=true",
        "--recommender-interval=2s",
        "--recommender-checkpoint-interval=2s",
        "--recommender-resize-hold=1s",
        "--recommender-resize-watch=1s",
        "--recommender-evict-after=1s",
    ]
    with manager(
        OURS, books.kubeconfig, tmp_path / "manager", arguments=arguments, environment={"WEBHOOK_CERT_WRITER": "secret"}
    ) as running:
        running.wait_ready()
        books.create(PROFILES, MANAGED_PROFILE)
        books.create(
            QUOTAS, {"metadata": {"name": "counted"}, "spec": {"max": {"cpu": "1000"}, "min": {}}, **QUOTA_KIND}
        )
        recommend(books, running)
        running.wait(lambda: count_against_a_quota_that_changes(books), "a conflict about a quota")
        running.wait(lambda: not books.idle() & of_gates(books) - ANY_SCALE, "use of the rights of feature gates")
        assert running.stop() == 0
    assert books.refused() == []
    assert of_gates(books) - ANY_SCALE <= books.used()
    assert ("get", "scheduling.sigs.k8s.io", "podgroups/scale") in books.used()


def recommend(books: Audited, running: ManagerProcess) -> None:
    """Recommendations for workloads of every kind, and one with a pod whose usage is reported. Another pod is to be
    resized, and one that cannot be is to be evicted."""
    for kind, version in TARGETS.items():
        workload = {"kind": kind, "name": "web"} | ({"apiVersion": version} if version else {})
        books.create(ANALYSIS, recommendation(kind.lower(), {"type": "workload", "workload": workload}))
    selector = {"matchLabels": {"app": "measured"}}
    books.create(ANALYSIS, recommendation("measured", {"type": "podSelector", "podSelector": selector}))
    books.create(f"{CORE}/nodes", {"metadata": {"name": "n1"}})
    metadata = {"name": "measured", "labels": {"app": "measured"}}
    books.create(PODS, {"metadata": metadata, "spec": {**WAITING["spec"], "nodeName": "n1"}})
    request = books.plane.request
    running.wait(lambda: request("GET", f"{SLO}/nodemetrics/n1")[0] == 200, "NodeMetric")
    running.wait(lambda: usage_is_reported(books), "the recommendation")
    update(books, "resized", {"requests": {"cpu": "1"}})
    # Its class of quality of service would be another one.
    update(books, "evicted", {})


def update(books: Audited, name: str, resources: dict[str, Any]) -> None:
    """A ready pod that somebody controls and that is restarted for a resize, and a Recommendation by which it is
    updated."""
    policy: dict[str, Any] = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
    container = {"name": "c", "image": "i", "resources": resources, "resizePolicy": [policy]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    metadata = {"name": name, "labels": {"app": name}, "ownerReferences": [owner]}
    books.create(PODS, {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert books.plane.request("PATCH", f"{PODS}/{name}/status", {"status": ready})[0] == 200
    found = recommendation(name, {"type": "podSelector", "podSelector": {"matchLabels": {"app": name}}})
    mode = '{"updateMode": "InPlaceOrRecreate", "lowConfidence": true}'
    found["metadata"]["annotations"] = {"analysis.koordinator.sh/recommendation-policy": mode}
    books.create(ANALYSIS, found)
    status = {
        "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "podStatus": {"containerStatuses": [{"containerName": "c", "resources": {"cpu": "2"}}]},
    }
    assert books.plane.request("PATCH", f"{ANALYSIS}/{name}/status", {"status": status})[0] == 200


def recommendation(name: str, target: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "analysis.koordinator.sh/v1alpha1", "kind": "Recommendation"}
    return {**head, "metadata": {"name": name}, "spec": {"target": target}}


def usage_is_reported(books: Audited) -> bool:
    """Report the pod's usage once more. Whether it has become a recommendation."""
    usage = {"name": "measured", "namespace": "default", "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
    status = {"updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "podsMetric": [usage]}
    assert books.plane.request("PATCH", f"{SLO}/nodemetrics/n1/status", {"status": status})[0] == 200
    code, found = books.plane.request("GET", f"{ANALYSIS}/measured")
    return code == 200 and "podStatus" in found.get("status", {})


def of_gates(books: Audited) -> set[Right]:
    return books.granted() - books.granted(but_for=GATES)


def count_against_a_quota_that_changes(books: Audited) -> bool:
    """Twenty pods at a time, counted by a quota that somebody else writes all the while: sooner or later the manager
    writes what it knew, meets a conflict, and reads the quota anew. Whether it has."""

    def change(number: int) -> None:
        patch = {"metadata": {"annotations": {"changed": str(number)}}}
        assert books.plane.request("PATCH", f"{QUOTAS}/counted", patch)[0] == 200

    def add_pod(number: int) -> None:
        labels = {"quota.scheduling.koordinator.sh/name": "counted"}
        books.plane.request("POST", PODS, {**WAITING, "metadata": {"generateName": "p", "labels": labels}})

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, number) for number in range(20) for work in (change, add_pod)]
    for each in done:
        each.result()
    return ("get", "scheduling.sigs.k8s.io", "elasticquotas") in books.used()
