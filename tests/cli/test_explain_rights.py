"""``koord explain`` for people without an administrator's rights: what they may not read is left out, with the
permission that is missing, and the rest is explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODES, POD_GROUPS, PODS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.api.meta import Object
from koordinator.cli.explain_failure import NOT_ALLOWED, missing_permission
from koordinator.cli.main import main
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.identity import authenticated
from koordinator.cluster.server import ServerOptions
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

RBAC = "rbac.authorization.k8s.io"
KINDS: dict[str, Kind[Any]] = {
    kind.name: kind
    for kind in (
        Kind(RBAC, "v1", "roles", "Role", Object),
        Kind(RBAC, "v1", "rolebindings", "RoleBinding", Object),
        Kind(RBAC, "v1", "clusterroles", "ClusterRole", Object, namespaced=False),
        Kind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Object, namespaced=False),
    )
}
LEASES_MISSING = "you lack the permission to get leases.coordination.k8s.io in the namespace koordinator-system"
PEOPLE = ("nobody", "viewer", "explainer", "halfway", "blind")


def _bind(cluster: ExplainedCluster, user: str, role: str, namespace: str = "", *, cluster_role: bool = True) -> None:
    kind = KINDS["RoleBinding" if namespace else "ClusterRoleBinding"]
    reference = {"apiGroup": RBAC, "kind": "ClusterRole" if cluster_role else "Role", "name": role}
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    body = {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": subjects}
    cluster.create(kind, body, namespace)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    users = {f"{name}-token": authenticated(name, ()) for name in PEOPLE}
    options = ServerOptions(authorization_mode=AuthorizationMode.RBAC, users=users)
    with explained_cluster(tmp_path_factory.mktemp("explained"), options) as found:
        text = manifest_files(Installation(), ("rbac",))["rbac/koord-explain.yaml"]
        for document in yaml.safe_load_all(text):
            if document["kind"] in KINDS:
                found.create(KINDS[document["kind"]], document, document["metadata"].get("namespace", ""))
        (definition,) = [each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "PodGroup"]
        found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        spec = {"containers": [{"name": "main", "image": "example"}], "schedulerName": "koord-scheduler"}
        found.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        found.create(NODES, {"metadata": {"name": "n1"}})
        found.create(POD_GROUPS, {"metadata": {"name": "training"}, "spec": {"minMember": 3}}, "default")
        pods_alone = {
            "metadata": {"name": "pods"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        }
        found.create(KINDS["Role"], pods_alone, "default")
        _bind(found, "viewer", "view", "default")
        _bind(found, "explainer", "view", "default")
        _bind(found, "explainer", "koord-explain")
        _bind(found, "explainer", "koord-explain", NAMESPACE, cluster_role=False)
        _bind(found, "halfway", "koord-explain")
        _bind(found, "blind", "pods", "default", cluster_role=False)
        yield found


def _arguments(cluster: ExplainedCluster, user: str, tmp_path: Path) -> list[str]:
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"]["token"] = f"{user}-token"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return [f"--kubeconfig={path}", f"--port={cluster.port}"]


def _explained(
    cluster: ExplainedCluster, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *what: str
) -> dict[str, Any]:
    assert main(["explain", *what, "-o", "json", *_arguments(cluster, user, tmp_path)]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_who_may_view_pods_is_told_of_them_and_what_is_missing(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _explained(cluster, "viewer", tmp_path, capsys, "pod", "web")
    assert document["api"]["state"] == "pending"
    assert document["leftOut"] == [f"what koord-scheduler knows is left out: {LEASES_MISSING}"]


def test_the_sentence_is_printed_and_the_command_succeeds(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "pod", "web", *_arguments(cluster, "viewer", tmp_path)]) == 0
    printed = capsys.readouterr()
    text = " ".join(printed.out.split())
    assert "pod default/web is pending" in text
    assert f"What koord-scheduler knows is left out: {LEASES_MISSING}." in text
    assert printed.err == ""


def test_who_has_the_roles_of_the_manifests_hears_the_scheduler(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.documents["default/web"] = {"pod": "default/web", "attempts": []}
    try:
        document = _explained(cluster, "explainer", tmp_path, capsys, "pod", "web")
    finally:
        del cluster.documents["default/web"]
    assert document["attempts"] == []
    assert "leftOut" not in document


def test_parts_of_the_api_are_left_out_one_by_one(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _explained(cluster, "blind", tmp_path, capsys, "pod", "web")
    assert document["api"]["state"] == "pending"
    assert document["leftOut"] == [
        "what events say is left out: you lack the permission to list events in the namespace default",
        f"what koord-scheduler knows is left out: {LEASES_MISSING}",
    ]


def test_a_node_is_explained_from_the_api_alone(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _explained(cluster, "halfway", tmp_path, capsys, "node", "n1")
    assert document["api"]["state"] == "notReady"
    assert document["leftOut"][-1] == f"what koord-scheduler knows is left out: {LEASES_MISSING}"


def test_a_gang_says_of_itself_what_it_declares(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _explained(cluster, "viewer", tmp_path, capsys, "gang", "training")
    assert document["api"]["facts"] == ["needs members: 3"]
    assert document["leftOut"] == [f"what koord-scheduler knows is left out: {LEASES_MISSING}"]


def test_who_may_read_nothing_is_told_so(
    cluster: ExplainedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "pod", "web", *_arguments(cluster, "nobody", tmp_path)]) == NOT_ALLOWED
    assert 'User "nobody" cannot get resource "pods"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "permission"),
    [
        (
            'pods "a:1" is forbidden: User "x" cannot get resource "pods/proxy" in API group "" in the namespace "n"',
            "get pods/proxy in the namespace n",
        ),
        (
            'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: a',
            "list nodes in the whole cluster",
        ),
        (
            'x.apps "a" is forbidden: User "x" cannot get resource "x/scale" in API group "apps" at the cluster scope',
            "get x.apps/scale in the whole cluster",
        ),
        ("no", ""),
    ],
)
def test_the_missing_permission_is_read_from_the_refusal(message: str, permission: str) -> None:
    assert missing_permission(message) == permission
