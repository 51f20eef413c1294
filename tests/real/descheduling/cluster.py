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
REPLICA_SETS: Final = "/apis/apps/v1/namespaces/default/replicasets"
JOBS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
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
    workload: str = "web"
    """The ReplicaSet that owns it. If the cluster has none of that name, nothing but its name and a UID exist."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    name: str
    matching: Mapping[str, str]
    allowed: int
    """How many of these pods may be disrupted."""


class Cluster:
    """Nodes, pods and reports that a test writes; nothing else runs there."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._priorities: set[int] = set()
        self._uids: dict[str, str] = {}
        """Of ReplicaSets."""

    def install(self) -> None:
        """Make the custom resources known, as an installation does."""
        for definition in custom_resource_definitions():
            code, response = self.plane.request("POST", DEFINITIONS, definition)
            assert code in (201, 409), response.get("message")
        eventually(lambda: self.plane.request("GET", METRICS)[0] == 200, "NodeMetrics")

    def set_up(
        self, nodes: Sequence[NodeCase], pods: Sequence[PodCase], workloads: Mapping[str, int] | None = None
    ) -> None:
        """Exactly these, whatever was there before; ``workloads`` are ReplicaSets with their numbers of replicas."""
        for path in (PODS, NODES, METRICS, BUDGETS, EVENTS, REPLICA_SETS, JOBS):
            self.plane.request("DELETE", path)
        eventually(lambda: not self._names(PODS) and not self._names(NODES), "empty cluster")
        self._uids = {name: self._create_replica_set(name, replicas) for name, replicas in (workloads or {}).items()}
        for node in nodes:
            self._create_node(node)
        for pod in pods:
            self._create_pod(pod)
        for node in nodes:
            self.report(node, [pod for pod in pods if pod.node == node.name])

    def guard(self, budget: Budget) -> None:
        """As Kubernetes' controller would, which does not run here."""
        spec: Mapping[str, Any] = {"selector": {"matchLabels": dict(budget.matching)}, "minAvailable": 0}
        code, response = self.plane.request("POST", BUDGETS, {"metadata": {"name": budget.name}, "spec": spec})
        assert code == 201, response.get("message")
        status = {
            "disruptionsAllowed": budget.allowed,
            "expectedPods": 100,
            "currentHealthy": 100,
            "desiredHealthy": 100 - budget.allowed,
            "observedGeneration": response["metadata"]["generation"],
        }
        code, response = self.plane.request("PATCH", f"{BUDGETS}/{budget.name}/status", {"status": status})
        assert code == 200, response.get("message")

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
        code, response = self.plane.request("PATCH", f"{METRICS}/{node.name}/status", {"status": status})
        assert code == 200, response.get("message")

    def pods(self) -> set[str]:
        """The names of those that are there and not leaving."""
        items = self.plane.request("GET", PODS)[1]["items"]
        return {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}

    def events(self) -> frozenset[tuple[str, str, str, str]]:
        """Those of pods: the name, the type, the reason and the note."""
        items = self.plane.request("GET", EVENTS)[1]["items"]
        return frozenset(
            (item["regarding"]["name"], item["type"], item["reason"], item.get("note", ""))
            for item in items
            if item["regarding"].get("kind") == "Pod"
        )

    def jobs(self) -> list[dict[str, Any]]:
        """The PodMigrationJobs."""
        items: list[dict[str, Any]] = self.plane.request("GET", JOBS)[1]["items"]
        return items

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
        code, response = self.plane.request("POST", NODES, document)
        assert code == 201, response.get("message")

    def _create_replica_set(self, name: str, replicas: int) -> str:
        """Its UID."""
        labels = {"workload": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        code, response = self.plane.request("POST", REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})
        assert code == 201, response.get("message")
        return str(response["metadata"]["uid"])

    def _create_pod(self, pod: PodCase) -> None:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": pod.workload,
            "uid": self._uids.get(pod.workload, f"uid-of-{pod.workload}"),
            "controller": True,
        }
        document = {
            "metadata": {
                "name": pod.name,
                "labels": {"app": "web", "workload": pod.workload, **pod.labels},
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
        eventually(lambda: self._is_admitted(document), f"pod {pod.name}")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **pod.status}
        code, response = self.plane.request("PATCH", f"{PODS}/{pod.name}/status", {"status": status})
        assert code == 200, response.get("message")

    def _is_admitted(self, document: Mapping[str, Any]) -> bool:
        code, response = self.plane.request("POST", PODS, document)
        message = response.get("message", "")
        # Admission learns of a new class by a watch.
        assert code == 201 or "no PriorityClass" in message, message
        return code == 201

    def _priority(self, pod: PodCase) -> dict[str, Any]:
        """Admission takes priorities from classes only."""
        if pod.priority is None:
            return {}
        name = f"priority-{pod.priority}"
        if pod.priority not in self._priorities:
            self._priorities.add(pod.priority)
            document = {"metadata": {"name": name}, "value": pod.priority}
            code, response = self.plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document)
            assert code in (201, 409), response.get("message")
        return {"priorityClassName": name}


def _kind(name: str) -> dict[str, str]:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": name}
