"""koord-manager with the rights of config/rbac and no others: nothing is forbidden, and no right is idle.

The API server writes an audit log of who asked for what. A right that nobody uses would be one too many, one that is
missing would be seen as a refusal; so taking any of them away breaks something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.manifests.webhooks import webhook_configurations
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms

ROLES = Path(__file__).resolve().parents[2] / "config/rbac/koord-manager.yaml"
USER = f"system:serviceaccount:{NAMESPACE}:koord-manager"
TOKEN = "managertoken"
CORE = "/api/v1"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
QUOTA_PROFILES = "/apis/quota.koordinator.sh/v1alpha1/namespaces/default/elasticquotaprofiles"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
TOPOLOGY = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
QUOTA_PROFILE = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ServiceAccount": f"{CORE}/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
    "MutatingWebhookConfiguration": f"{REGISTRATION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{REGISTRATION}/validatingwebhookconfigurations",
}
NODE = f"{CORE}/nodes/n1"
QUOTA = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/pool"
BATCH_CPU = "kubernetes.io/batch-cpu"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
    "rules": [{"level": "Metadata", "users": [USER]}],
}
Right = tuple[str, str, str]


class Audited:
    """A control plane that keeps roles and books."""

    def __init__(self, plane: ControlPlane, log: Path) -> None:
        self.plane = plane
        self._log = log

    def create(self, path: str, document: dict[str, Any]) -> None:
        status, answer = self.plane.request("POST", path, document)
        assert status == 201, answer.get("message")

    def install(self) -> None:
        prepare(self.plane)
        for document in yaml.safe_load_all(ROLES.read_text()):
            self.create(PATHS[document["kind"]], document)
        for document in webhook_configurations():
            self.create(PATHS[document["kind"]], document)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def used(self) -> set[Right]:
        """(verb, group, resource) of what was asked for."""
        rights = set()
        for entry in self.entries():
            about = entry.get("objectRef")
            if about is not None:
                subresource = f"/{about['subresource']}" if "subresource" in about else ""
                rights.add((entry["verb"], about.get("apiGroup", ""), about["resource"] + subresource))
        return rights

    def refused(self) -> list[str]:
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in self.entries()
            if entry.get("responseStatus", {}).get("code") in (401, 403)
        ]


@pytest.fixture
def audited(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(yaml.safe_dump(POLICY))
    plane = ControlPlane(
        real_programs.kubernetes,
        tmp_path / "cluster",
        authorization_mode="RBAC",
        tokens={TOKEN: (USER, ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))},
        extra_arguments=(f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"),
    )
    plane.start()
    yield Audited(plane, log)
    plane.stop()


def granted() -> set[Right]:
    rights = set()
    for document in yaml.safe_load_all(ROLES.read_text()):
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                rights |= {(verb, group, resource) for verb in rule["verbs"] for resource in rule["resources"]}
    return rights


def give_it_work(audited: Audited) -> None:
    """Something for every right."""
    create = audited.create
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


def report(audited: Audited) -> None:
    usage = {"resources": {"cpu": "2", "memory": "4Gi"}}
    status = {
        "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    code, answer = audited.plane.request("PATCH", f"{SLO}/nodemetrics/n1/status", {"status": status})
    assert code == 200, answer


def change_everything(audited: Audited, running: ManagerProcess) -> None:
    """Once the first answers are there: what is patched and deleted."""
    exists = audited.plane.request
    running.wait(lambda: exists("GET", f"{SLO}/nodeslos/n1")[0] == 200, "NodeSLO")
    running.wait(lambda: exists("GET", f"{SLO}/nodemetrics/n1")[0] == 200, "NodeMetric")
    report(audited)
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


def until(what: str, holds: Callable[[], bool], running: ManagerProcess) -> None:
    running.wait(holds, what)


def missing(audited: Audited, lasting: set[Right]) -> set[Right]:
    """The rights that nobody has used yet."""
    return granted() - lasting - audited.used()


def test_every_right_is_used_and_none_is_missing(audited: Audited, tmp_path: Path) -> None:
    audited.install()
    give_it_work(audited)
    kubeconfig = audited.plane.kubeconfig_for(TOKEN)
    environment = {"WEBHOOK_CERT_WRITER": "secret"}
    with manager(OURS, kubeconfig, tmp_path / "manager", environment=environment) as running:
        running.wait_ready()
        change_everything(audited, running)
        secret = f"{CORE}/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
        broken = {"data": {"tls.crt": "YnJva2Vu", "cert.pem": "YnJva2Vu"}}
        assert audited.plane.request("PATCH", secret, broken)[0] == 200
        # Watches are in the log once they have ended: with the process.
        lasting = {right for right in granted() if right[0] == "watch"}
        until("use of every right", lambda: not missing(audited, lasting), running)
        assert running.stop() == 0
    assert audited.refused() == []
    assert audited.used() - granted() == set()
    assert granted() - audited.used() == set()
