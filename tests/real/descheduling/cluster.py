"""Small clusters that both deschedulers are let loose on, one after the other, on the same real API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.timestamps import format_time
from tests.real.control_plane import ControlPlane
from tests.real.installation import eventually

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
METRICS: Final = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class NodeCase:
    name: str
    cpu: str = "4"
    memory: str = "16Gi"
    system_cpu: str = "0"
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    metric_age: float = 0.0
    """Seconds since its last report; below 0, it has never reported."""


@dataclass(frozen=True, slots=True)
class PodCase:
    name: str
    node: str
    usage: str
    """Of CPU."""
    memory_usage: str = "0"
    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "100m"})
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    owned: bool = True
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


class Cluster:
    """Nodes, pods and reports that a test writes; nothing else runs there."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._priorities: set[int] = set()

    def install(self) -> None:
        """Make the custom resources known, as an installation does."""
        for definition in custom_resource_definitions():
            code, answer = self.plane.request("POST", DEFINITIONS, definition)
            assert code in (201, 409), answer.get("message")
        eventually(lambda: self.plane.request("GET", METRICS)[0] == 200, "NodeMetrics")

    def set_up(self, nodes: Sequence[NodeCase], pods: Sequence[PodCase]) -> None:
        """Exactly these, whatever was there before."""
        for path in (PODS, NODES, METRICS, BUDGETS):
            self.plane.request("DELETE", path)
        eventually(lambda: not self._names(PODS) and not self._names(NODES), "empty cluster")
        for node in nodes:
            self._create_node(node)
        for pod in pods:
            self._create_pod(pod)
        for node in nodes:
            self.report(node, [pod for pod in pods if pod.node == node.name])

    def report(self, node: NodeCase, pods: Sequence[PodCase]) -> None:
        """What the agent of the node would write."""
        if node.metric_age < 0:
            return
        self.plane.request("POST", METRICS, {"metadata": {"name": node.name}, "spec": {}, **_kind("NodeMetric")})
        status = {
            "updateTime": format_time(datetime.now(UTC) - timedelta(seconds=node.metric_age)),
            "nodeMetric": {"systemUsage": {"resources": {"cpu": node.system_cpu, "memory": "0"}}},
            "podsMetric": [
                {
                    "name": pod.name,
                    "namespace": "default",
                    "podUsage": {"resources": {"cpu": pod.usage, "memory": pod.memory_usage}},
                }
                for pod in pods
                if pod.usage
            ],
        }
        code, answer = self.plane.request("PATCH", f"{METRICS}/{node.name}/status", {"status": status})
        assert code == 200, answer.get("message")

    def pods(self) -> set[str]:
        """The names of those that are there and not leaving."""
        items = self.plane.request("GET", PODS)[1]["items"]
        return {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}

    def _names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.plane.request("GET", path)[1]["items"]]

    def _create_node(self, node: NodeCase) -> None:
        amounts = {"cpu": node.cpu, "memory": node.memory, "pods": "110"}
        document = {
            "metadata": {"name": node.name, "labels": dict(node.labels), "annotations": dict(node.annotations)},
            "spec": {"unschedulable": node.unschedulable, "taints": list(node.taints)},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        code, answer = self.plane.request("POST", NODES, document)
        assert code == 201, answer.get("message")

    def _create_pod(self, pod: PodCase) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0123", "controller": True}
        document = {
            "metadata": {
                "name": pod.name,
                "labels": {"app": "web", **pod.labels},
                "annotations": dict(pod.annotations),
                "ownerReferences": [owner] if pod.owned else [],
            },
            "spec": {
                "nodeName": pod.node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "web", "resources": {"requests": dict(pod.requests)}}],
                # Bound pods are created by a test, not by a scheduler: the taints that admission adds must not matter.
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
                **self._priority(pod),
                **pod.spec,
            },
        }
        code, answer = self.plane.request("POST", PODS, document)
        assert code == 201, answer.get("message")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **pod.status}
        code, answer = self.plane.request("PATCH", f"{PODS}/{pod.name}/status", {"status": status})
        assert code == 200, answer.get("message")

    def _priority(self, pod: PodCase) -> dict[str, Any]:
        """Admission takes priorities from classes only."""
        if pod.priority is None:
            return {}
        name = f"priority-{pod.priority}"
        if pod.priority not in self._priorities:
            self._priorities.add(pod.priority)
            document = {"metadata": {"name": name}, "value": pod.priority}
            code, answer = self.plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document)
            assert code in (201, 409), answer.get("message")
        return {"priorityClassName": name}


def _kind(name: str) -> dict[str, str]:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": name}
