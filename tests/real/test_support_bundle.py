"""``koord support-bundle`` on a real API server, by an administrator and by somebody who may view one namespace."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.support_bundle.test_archive import texts
from tests.real.control_plane import ControlPlane
from tests.real.installation import NAMESPACE
from tests.real.koord_command import run_koord
from tests.real.programs import RealPrograms

VIEWER: Final = "viewer-token"
SECRET: Final = "hunter2-Sw0rdfish"
_RBAC: Final = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    tokens = {VIEWER: ("viewer", ())}
    folder = tmp_path_factory.mktemp("cluster")
    with ControlPlane(real_programs.kubernetes, folder, authorization_mode="RBAC", tokens=tokens) as found:
        plant(found)
        yield found


def plant(plane: ControlPlane) -> None:
    """A pod that waits, a secret wherever one may be, and a viewer of the installation's namespace."""

    def create(path: str, body: dict[str, Any]) -> None:
        status, answer = plane.request("POST", path, body)
        assert status == 201, answer

    within = f"/api/v1/namespaces/{NAMESPACE}"
    create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    create(f"{within}/secrets", {"metadata": {"name": "planted"}, "stringData": {"password": SECRET}})
    data = {"colocation-config": json.dumps({"enable": True, "password": SECRET})}
    create(f"{within}/configmaps", {"metadata": {"name": "slo-controller-config"}, "data": data})
    create("/api/v1/nodes", {"metadata": {"name": "mine"}})
    container = {"name": "main", "image": "example", "args": [SECRET], "env": [{"name": "A", "value": SECRET}]}
    annotations = {"example.com/token": SECRET}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    create("/api/v1/namespaces/default/pods", {"metadata": {"name": "web", "annotations": annotations}, "spec": spec})
    # Not the role view, which is empty until a controller manager has put it together.
    rules = [{"apiGroups": [""], "resources": ["configmaps", "pods", "pods/log"], "verbs": ["get", "list"]}]
    create(f"/apis/{_RBAC}/v1/namespaces/{NAMESPACE}/roles", {"metadata": {"name": "see"}, "rules": rules})
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "see"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "viewer"}],
    }
    create(f"/apis/{_RBAC}/v1/namespaces/{NAMESPACE}/rolebindings", binding)


def bundle(kubeconfig: Path, file: Path, *arguments: str) -> tuple[dict[str, str], dict[str, str]]:
    """The files, and the reasons of what is left out."""
    done = run_koord("support-bundle", f"--kubeconfig={kubeconfig}", f"--file={file}", "-q", "-o=json", *arguments)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return texts(file), {each["path"]: each["reason"] for each in json.loads(done.stdout)["leftOut"]}


def test_an_administrator_gets_all_but_secrets(plane: ControlPlane, tmp_path: Path) -> None:
    files, _ = bundle(plane.kubeconfig, tmp_path / "a.tar.gz", "--pod=default/web", "--node=mine")
    assert [name for name, text in files.items() if SECRET in text] == []
    assert json.loads(files["pods/default/web/pod.json"])["metadata"]["name"] == "web"
    assert "colocation-config" in files["configuration/slo-controller-config.json"]
    assert json.loads(files["cluster/nodes.json"])["items"][0]["metadata"]["name"] == "mine"
    assert "ok" in files["cluster/ready.txt"]


def test_a_viewer_gets_what_they_may_see_and_is_told_what_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    files, left_out = bundle(plane.kubeconfig_for(VIEWER), file, "--pod=default/web", "--node=mine")
    assert [name for name, text in files.items() if SECRET in text] == []
    assert "colocation-config" in files["configuration/slo-controller-config.json"]
    assert left_out["cluster/nodes.json"] == "you lack the permission to list nodes in the whole cluster"
    assert left_out["pods/default/web/pod.json"] == "you lack the permission to get pods in the namespace default"
    assert "get leases.coordination.k8s.io" in left_out["programs/scheduler/metrics.txt"]
    index = files["index.md"]
    assert all(reason.replace("|", "\\|") in index for reason in left_out.values())
