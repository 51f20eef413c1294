"""A koordlet on the real API server writes of its own node alone, by the policy of ``koord manifests``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from koordinator.api.manifests.installation import Installation, manifest_files
from tests.real.administrator import Administrator
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, prepare
from tests.real.polling import until
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.real

_SECONDS: Final = 60.0
_CORE: Final = "/api/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_PATHS: Final = {
    "ServiceAccount": f"{_CORE}/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{NAMESPACE}/rolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
_METRICS: Final = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
_TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
_DEVICES: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
_STATUS: Final = {"status": {"updateTime": "2026-01-01T00:00:00Z"}}


class Koordlets:
    """The account of koordlet, with the tokens that a kubelet gives to the pods of its nodes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.of_n1 = Administrator(plane.port, self._token("n1"))
        self.by_hand = Administrator(plane.port, self._token(""))

    def close(self) -> None:
        self.of_n1.close()
        self.by_hand.close()

    def _token(self, node: str) -> str:
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if node:
            containers = [{"name": "koordlet", "image": "i"}]
            running = {"nodeName": node, "serviceAccountName": "koordlet", "containers": containers}
            pod = {"metadata": {"name": f"koordlet-{node}"}, "spec": running}
            metadata = self._created(f"{_CORE}/namespaces/{NAMESPACE}/pods", pod)["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        path = f"{_CORE}/namespaces/{NAMESPACE}/serviceaccounts/koordlet/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token: str = self._created(path, body)["status"]["token"]
        return token

    def _created(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        status, made = self._plane.request("POST", path, document)
        assert status == 201, made.get("message")
        return made


@pytest.fixture(scope="module")
def koordlets(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Koordlets]:
    folder: Path = tmp_path_factory.mktemp("confined")
    with ControlPlane(real_programs.kubernetes, folder, authorization_mode="RBAC") as plane:
        prepare(plane)
        files = manifest_files(Installation(), ("rbac", "koordlet-confinement"))
        for name in ("rbac/koordlet.yaml", "rbac/koordlet-confinement.yaml"):
            for document in yaml.safe_load_all(files[name]):
                status, made = plane.request("POST", _PATHS[document["kind"]], document)
                assert status == 201, made.get("message")
        for node in ("n1", "n2"):
            assert plane.request("POST", f"{_CORE}/nodes", {"metadata": {"name": node}})[0] == 201
            metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}}
            assert plane.request("POST", _METRICS, {**metric, "spec": {}})[0] == 201
        made_koordlets = Koordlets(plane)
        # A policy is in force a moment after it was written.
        until(lambda: _report(made_koordlets.of_n1, "n2")[0] == 403, _SECONDS, "the policy")
        yield made_koordlets
        made_koordlets.close()


def _report(koordlet: Administrator, node: str) -> tuple[int, dict[str, Any]]:
    return koordlet.request("PATCH", f"{_METRICS}/{node}/status", _STATUS)


def test_it_reports_of_its_own_node(koordlets: Koordlets) -> None:
    assert _report(koordlets.of_n1, "n1")[0] == 200


def test_it_is_refused_to_report_of_another_and_told_why(koordlets: Koordlets) -> None:
    status, said = _report(koordlets.of_n1, "n2")
    assert status == 403
    assert "koordlet of node n1 writes of this node alone" in said["message"]


@pytest.mark.parametrize(
    ("path", "kind", "more"),
    [
        (_TOPOLOGIES, "NodeResourceTopology", {"topologyPolicies": ["None"], "zones": []}),
        (_DEVICES, "Device", {"spec": {"devices": []}}),
    ],
)
def test_what_a_node_has_is_told_by_its_own_koordlet(
    koordlets: Koordlets, path: str, kind: str, more: dict[str, Any]
) -> None:
    version = path.removeprefix("/apis/").rpartition("/")[0]
    for node, expected in (("n1", 201), ("n2", 403)):
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": node}, **more}
        assert koordlets.of_n1.request("POST", path, document)[0] == expected


def test_a_token_that_names_no_node_is_not_confined(koordlets: Koordlets) -> None:
    """As those of Kubernetes before 1.30 are."""
    assert _report(koordlets.by_hand, "n2")[0] == 200
