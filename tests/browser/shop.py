"""A small cluster that has something to say in every place of the page, and hostile words wherever a user may write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordinator.api.kinds import (
    DEVICES,
    DRAIN_NODES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODE_METRICS,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    RESERVATIONS,
    Kind,
)

Document = Mapping[str, Any]
HOSTILE: Final = "</td><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
_NOW: Final = "2026-12-01T04:00:00Z"
_VICTIM: Final = {
    "indicator": "cpi",
    "value": 2.0,
    "normal": 1.0,
    "limit": 1.5,
    "since": _NOW,
    "suspects": [{"pod": "shop/spark", "qos": "BE", "correlation": 0.9, "confidence": 0.8, "advice": HOSTILE}],
}


def objects() -> Iterator[tuple[Kind[Any], Document]]:
    """In an order in which they can be created."""
    yield NAMESPACES, {"metadata": {"name": "shop"}}
    for number in (1, 2, 3):
        yield NODES, _node(f"node-{number}", ready=number != 3)
        yield NODE_METRICS, _metric(f"node-{number}")
    yield PODS, pod("web", "node-1", 9500, cpu="2", memory="2Gi")
    yield PODS, pod("spark", "node-1", 5500, **{"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"})
    yield PODS, pod("big", "", 9500, "0/3 nodes are available: 3 Insufficient cpu. preemption: none", cpu="99")
    yield PODS, pod("odd", "", 5500, f"0/3 nodes are available: {HOSTILE}", **{"kubernetes.io/batch-cpu": "1"})
    train = pod("train", "node-2", 9500, cpu="1")
    held = {"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]}
    train["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/device-allocated": json.dumps(held),
        "example.com/hostile": HOSTILE,
    }
    yield PODS, train
    for name, parent, least, most in (("company", "", "8", "16"), ("team", "company", "4", "8")):
        labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
        runtime = {"quota.scheduling.koordinator.sh/runtime": json.dumps({"cpu": "6"})}
        yield (
            ELASTIC_QUOTAS,
            {
                "metadata": {"name": name, "namespace": "shop", "labels": labels, "annotations": runtime},
                "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
                "status": {"used": {"cpu": "5"}},
            },
        )
    yield (
        RESERVATIONS,
        {
            "metadata": {"name": "seat"},
            "spec": {
                "owners": [{"object": {"name": "web", "namespace": "shop"}}],
                "template": {"spec": {"containers": [{"name": "a", "image": "x"}]}},
            },
            "status": {"phase": "Available", "nodeName": "node-2", "allocatable": {"cpu": "2"}},
        },
    )
    migration = {"podRef": {"namespace": "shop", "name": "web"}}
    yield (
        POD_MIGRATION_JOBS,
        {
            "metadata": {"name": "move"},
            "spec": migration,
            "status": {"phase": "Running", "reason": "WaitForPodBindReservation"},
        },
    )
    yield (
        DRAIN_NODES,
        {
            "metadata": {"name": "empty-node-3"},
            "spec": {"nodeName": "node-3"},
            "status": {"phase": "Running", "podMigrationSummary": {"Waiting": 2}},
        },
    )
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"}
    cards = [
        {"type": "gpu", "minor": each, "health": True, "id": f"G{each}", "resources": resources} for each in (0, 1)
    ]
    yield DEVICES, {"metadata": {"name": "node-2"}, "spec": {"devices": cards}}


def pod(name: str, on: str, priority: int, message: str = "", **requests: str) -> dict[str, Any]:
    """On a node, or waiting with a message."""
    resources = {"requests": requests, "limits": {key: value for key, value in requests.items() if "/" in key}}
    spec = {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "a", "image": "x", "resources": resources}],
        **({"nodeName": on} if on else {}),
    }
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [condition] if message else []}
    # An API server derives the priority from a PriorityClass, which would have to be there: the label says it as well.
    labels = {"koordinator.sh/priority-class": "koord-prod" if priority > 9000 else "koord-batch"}
    return {"metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": spec, "status": status}


def _node(name: str, *, ready: bool) -> Document:
    amounts = {
        "cpu": "16",
        "memory": "64Gi",
        "pods": "110",
        "kubernetes.io/batch-cpu": "8000",
        "kubernetes.io/batch-memory": "32Gi",
    }
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "x", "message": "x"}
    return {
        "metadata": {"name": name},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [condition]},
    }


def _metric(node: str) -> Document:
    pods = {"web": "500m", "spark": "1200m"} if node == "node-1" else {}
    usage = [
        {
            "name": name,
            "namespace": "shop",
            "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}},
            **({"extensions": {"Object": {"interference": [_VICTIM]}}} if name == "web" else {}),
        }
        for name, cpu in pods.items()
    ]
    whole = {"nodeUsage": {"resources": {"cpu": "3", "memory": "4Gi"}}}
    return {
        "metadata": {"name": node},
        "spec": {},
        "status": {"updateTime": _NOW, "nodeMetric": whole, "podsMetric": usage},
    }
