"""A DrainNode and a DrainNodeGroup on a real API server: koord-scheduler, once the original's and once ours, finds the
places, and our koord-descheduler does the rest."""

from __future__ import annotations

from pathlib import Path

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane
from tests.real.migration_programs import (
    budget,
    cluster_of_moving_pods,
    created,
    deployment,
    descheduler,
    is_ready,
    items,
)
from tests.real.polling import until
from tests.real.programs import RealPrograms

_DRAINS = "/apis/scheduling.koordinator.sh/v1alpha1/drainnodes"
_RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
_GROUPS = "/apis/scheduling.koordinator.sh/v1alpha1/drainnodegroups"
_NODE = "large-0"
_DRAINING = ["--feature-gates=NodeDrain=true"]
_REPLICAS = 6
_ARGS = {
    "evictQPS": 100,
    "evictBurst": 100,
    "objectLimiters": {"workload": {"duration": "0s"}},
    "maxMigratingPerWorkload": 2,
    "maxUnavailablePerWorkload": 2,
}


def test_a_node_is_drained_and_given_back(real_programs: RealPrograms, tmp_path: Path) -> None:
    with cluster_of_moving_pods(real_programs, tmp_path) as plane:
        created(plane, "/apis/apps/v1/namespaces/default/deployments", deployment(_REPLICAS))
        until(lambda: sum(map(is_ready, _pods(plane))) == _REPLICAS, 60, "pods")
        with descheduler(real_programs, plane.kubeconfig, tmp_path, _ARGS, ours=True, flags=_DRAINING):
            before = {pod["metadata"]["name"] for pod in _on_node(plane)}
            assert before
            created(plane, _DRAINS, _drain())
            until(lambda: _status(plane).get("phase") == "Complete", 120, "the drain to be complete")
            assert not _on_node(plane)
            entries = {entry["podName"]: entry["phase"] for entry in _status(plane)["podMigrations"]}
            assert entries == dict.fromkeys(before, "Succeed")
            assert _node(plane)["spec"]["unschedulable"] is True
            until(lambda: sum(map(is_ready, _pods(plane))) == _REPLICAS, 60, "all pods to be ready again")
            _give_back(plane)


def test_a_group_drains_one_node_and_then_the_rest_within_the_budget(
    real_programs: RealPrograms, tmp_path: Path
) -> None:
    with cluster_of_moving_pods(real_programs, tmp_path, our_scheduler=True) as plane:
        created(plane, "/apis/apps/v1/namespaces/default/deployments", deployment(_REPLICAS))
        created(plane, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget(maxUnavailable=1))
        until(lambda: sum(map(is_ready, _pods(plane))) == _REPLICAS, 60, "pods")
        nodes = [node["metadata"]["name"] for node in items(plane, "/api/v1/nodes")]
        chosen = sorted(sorted(nodes, key=lambda node: -len(_on(plane, node)))[:2])
        readiness = Readiness(plane)
        with descheduler(real_programs, plane.kubeconfig, tmp_path, _ARGS, ours=True, flags=_DRAINING):
            created(plane, _GROUPS, _group(chosen))
            until(lambda: readiness.look() and _counts(plane) == ("Waiting", 1, 1), 90, "the first node to be drained")
            assert _on(plane, chosen[0]) == set()
            assert _on(plane, chosen[1])
            plane.request("PATCH", f"{_GROUPS}/group", {"spec": {"executionPolicy": {"partition": 2}}})
            until(lambda: readiness.look() and _counts(plane) == ("Succeeded", 0, 2), 90, "all nodes to be drained")
            assert not _on(plane, *chosen)
            assert readiness.fewest >= _REPLICAS - 1
            _clean(plane, chosen)


class Readiness:
    """The fewest ready pods that were seen."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.fewest = _REPLICAS

    def look(self) -> bool:
        staying = [pod for pod in _pods(self._plane) if "deletionTimestamp" not in pod["metadata"]]
        self.fewest = min(self.fewest, sum(map(is_ready, staying)))
        return True


def _clean(plane: ControlPlane, nodes: list[str]) -> None:
    """Have the drained nodes take pods again, and the group go with all that belongs to it."""
    label = {"drain.descheduler.koordinator.sh/clean-taint": "true"}
    plane.request("PATCH", f"{_GROUPS}/group", {"metadata": {"labels": label}})
    until(lambda: not _unschedulable(plane) & set(nodes), 60, "the nodes to be schedulable")
    plane.request("DELETE", f"{_GROUPS}/group")
    until(
        lambda: not items(plane, _GROUPS) and not items(plane, _DRAINS), 60, "the group and its DrainNodes to be gone"
    )


def _counts(plane: ControlPlane) -> tuple[str, int, int]:
    """The phase, how many nodes are available, and how many are drained."""
    status = plane.request("GET", f"{_GROUPS}/group")[1].get("status", {})
    return status.get("phase", ""), status.get("availableCount", 0), status.get("succeededCount", 0)


def _on(plane: ControlPlane, *nodes: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in _pods(plane) if pod["spec"].get("nodeName") in nodes}


def _unschedulable(plane: ControlPlane) -> set[str]:
    return {node["metadata"]["name"] for node in items(plane, "/api/v1/nodes") if node["spec"].get("unschedulable")}


def _group(nodes: list[str]) -> Document:
    requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "DrainNodeGroup",
        "metadata": {"name": "group"},
        "spec": {"nodeSelector": {"matchExpressions": [requirement]}, "executionPolicy": {"partition": 1}},
    }


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
