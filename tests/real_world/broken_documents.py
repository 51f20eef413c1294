"""How broken objects are written: one object of each kind, sound but for what is handed in."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kinds import Kind

BROKEN_NODE: Final = "broken"
BROKEN_NAMESPACE: Final = "broken"
REPORTED_AT: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class BrokenObject:
    """``what`` is wrong with the ``document`` of ``kind``, at ``field`` of it."""

    name: str
    what: str
    kind: Kind[Any]
    field: str
    document: Mapping[str, Any]

    def copy(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self.document))


def node_document(annotations: Mapping[str, str]) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    metadata = {"name": BROKEN_NODE, "annotations": dict(annotations)}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": dict(amounts), "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def metric_document(usage: Mapping[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": BROKEN_NODE},
        "spec": {},
        "status": {"updateTime": REPORTED_AT, "nodeMetric": {"nodeUsage": {"resources": dict(usage)}}, **status},
    }


def pod_document(annotations: Mapping[str, str]) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "broken",
            "namespace": BROKEN_NAMESPACE,
            "annotations": dict(annotations),
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }


def quota_document(minimum: str, maximum: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": "broken",
            "namespace": BROKEN_NAMESPACE,
            "annotations": dict(annotations or {}),
        },
        "spec": {"min": {"cpu": minimum}, "max": {"cpu": maximum}},
    }


def device_document(**device: Any) -> dict[str, Any]:
    one = {"type": "gpu", "id": "gpu-0", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": BROKEN_NODE},
        "spec": {"devices": [{**one, **device}]},
    }


def topology_document(
    amount: str, annotations: Mapping[str, str] | None = None, zones: Iterable[str] = ("node-0",)
) -> dict[str, Any]:
    cpu = {"name": "cpu", "capacity": amount, "allocatable": amount, "available": amount}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": BROKEN_NODE, "annotations": dict(annotations or {})},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [{"name": zone, "type": "Node", "resources": [cpu]} for zone in zones],
    }


def reservation_document(cpu: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "broken"},
        "spec": {"template": template, "owners": [{"object": {"name": "nobody"}}], "ttl": "1h", **spec},
    }


def pod_group_document(minimum: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "broken", "namespace": BROKEN_NAMESPACE},
        "spec": {"minMember": minimum, **spec},
    }
