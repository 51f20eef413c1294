"""A DrainNode on a real API server: the original's koord-scheduler finds the places, our koord-descheduler the rest."""

from __future__ import annotations

from pathlib import Path

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane
from tests.real.migration_programs import cluster_of_moving_pods, created, descheduler, is_ready, items
from tests.real.polling import until
from tests.real.programs import RealPrograms

_DRAINS = "/apis/scheduling.koordinator.sh/v1alpha1/drainnodes"
_RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
_NODE = "large-0"
_ARGS = {
    "evictQPS": 100,
    "evictBurst": 100,
    "objectLimiters": {"workload": {"duration": "0s"}},
    "maxMigratingPerWorkload": 2,
    "maxUnavailablePerWorkload": 2,
}


def test_a_node_is_drained_and_given_back(real_programs: RealPrograms, tmp_path: Path) -> None:
    with cluster_of_moving_pods(real_programs, tmp_path) as plane:
        created(plane, "/apis/apps/v1/namespaces/default/deployments", _deployment())
        until(lambda: sum(map(is_ready, _pods(plane))) == 6, 60, "pods")
        with descheduler(
            real_programs, plane.kubeconfig, tmp_path, _ARGS, ours=True, flags=["--feature-gates=NodeDrain=true"]
        ):
            before = {pod["metadata"]["name"] for pod in _on_node(plane)}
            assert before
            created(plane, _DRAINS, _drain())
            until(lambda: _status(plane).get("phase") == "Complete", 120, "the drain to be complete")
            assert not _on_node(plane)
            entries = {entry["podName"]: entry["phase"] for entry in _status(plane)["podMigrations"]}
            assert entries == dict.fromkeys(before, "Succeed")
            assert _node(plane)["spec"]["unschedulable"] is True
            until(lambda: sum(map(is_ready, _pods(plane))) == 6, 60, "all pods to be ready again")
            _give_back(plane)


def _give_back(plane: ControlPlane) -> None:
    plane.request("PATCH", f"{_DRAINS}/drain", {"spec": {"confirmState": "Aborted"}})
    until(lambda: _status(plane).get("phase") == "Aborted", 60, "the drain to be rolled back")
    assert "unschedulable" not in _node(plane)["spec"]
    assert not [each for each in items(plane, _RESERVATIONS) if each["status"].get("phase") == "Available"]
    plane.request("DELETE", f"{_DRAINS}/drain")
    until(lambda: not items(plane, _DRAINS), 60, "the DrainNode to be gone")


def _pods(plane: ControlPlane) -> list[Document]:
    return items(plane, "/api/v1/namespaces/default/pods")


def _on_node(plane: ControlPlane) -> list[Document]:
    return [pod for pod in _pods(plane) if pod["spec"].get("nodeName") == _NODE]


def _node(plane: ControlPlane) -> Document:
    return plane.request("GET", f"/api/v1/nodes/{_NODE}")[1]


def _status(plane: ControlPlane) -> Document:
    found: Document = plane.request("GET", f"{_DRAINS}/drain")[1].get("status", {})
    return found


def _drain() -> Document:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "DrainNode",
        "metadata": {"name": "drain"},
        "spec": {"nodeName": _NODE},
    }


def _deployment() -> Document:
    labels = {"app": "web"}
    spec = {
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "image", "resources": {"requests": {"cpu": "100m"}}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": 6, "selector": {"matchLabels": labels}, "template": template},
    }
