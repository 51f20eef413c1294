"""The objects of a small cluster, as documents of the API; each is drawn by a few small numbers."""

from __future__ import annotations

import json
from typing import Any, Final

from koordinator.api import annotations as keys
from koordinator.api.labels import OPERATING_MODE, POD_GROUP, QUOTA_NAME
from tests.model.quota_tree.quota_objects import quota_document

Document = dict[str, Any]
CORE: Final = "koordinator.sh/gpu-core"
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
MEMORY: Final = "koordinator.sh/gpu-memory"
BATCH: Final = "kubernetes.io/batch-cpu"
TEAM: Final = "team"
"""The quota that is a parent of the others."""
SHAPES: Final = (
    "plain", "small", "port", "sidecar", "batch", "quota", "child", "gpu", "half", "cpus", "gang", "owner", "elsewhere",
    "owner-gpu", "owner-cpus", "operating", "claim", "apart", "together", "spread",
)  # fmt: skip
"""``elsewhere``: another scheduler places it; ``operating``: once it runs, it is a Reservation."""
RESIZES: Final = ("unseen", "deferred", "infeasible", "allocated", "done")
_OWNERS: Final = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
GPUS: Final = ({CORE: "100", RATIO: "100"}, {CORE: "50", RATIO: "50"})


def node(name: str, size: int, *, cordoned: bool = False, tainted: bool = False) -> Document:
    amounts = {
        "cpu": str(4 + 4 * size),
        "memory": f"{8 + 8 * size}Gi",
        "pods": "110" if size else "4",
        BATCH: str(2000 * size),
        CORE: "200",
        RATIO: "200",
    }
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if tainted else []
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "ab"[size % 2]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned, "taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def device(name: str, count: int, *, healthy: bool = True) -> Document:
    """So many GPUs, of which the first may be ill."""
    devices = [
        {
            "type": "gpu",
            "id": f"{name}-gpu-{minor}",
            "minor": minor,
            "health": healthy or minor > 0,
            "resources": {CORE: "100", RATIO: "100", MEMORY: "16Gi"},
        }
        for minor in range(count)
    ]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def topology(name: str, cores: int) -> Document:
    """Two CPUs in each core, half of the cores in each of two NUMA nodes."""
    count = 2 * cores
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": 2 * cpu // count} for cpu in range(count)]
    cpu = {"name": "cpu", "capacity": str(cores), "allocatable": str(cores), "available": str(cores)}
    return {
        "metadata": {"name": name, "annotations": {keys.CPU_TOPOLOGY: json.dumps({"detail": detail})}},
        "topologyPolicies": ["None"],
        "zones": [{"name": f"node-{number}", "type": "Node", "resources": [cpu]} for number in (0, 1)],
    }


def metric(name: str, cpu: int, at: str) -> Document:
    usage = {"resources": {"cpu": str(cpu), "memory": f"{cpu}Gi"}}
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"updateTime": at, "nodeMetric": {"nodeUsage": usage}},
    }


def pod(name: str, shape: str, size: int = 0) -> Document:
    """One that waits."""
    amounts: dict[str, str] = {"cpu": f"{1 + size}", "memory": "1Gi"}
    app, _, wants = shape.partition("-")
    shape = wants or app
    labels, annotations, spec = {"app": app}, dict[str, str](), Document()
    container: Document = {"name": "main", "image": "pause"}
    if shape == "small":
        amounts = {"cpu": "100m"} if size else {}
    elif shape == "port":
        container["ports"] = [{"containerPort": 80, "hostPort": 8000 + size % 2}]
    elif shape == "sidecar":
        beside = {"requests": {"cpu": "500m", "memory": "256Mi"}}
        spec["initContainers"] = [{"name": "beside", "image": "pause", "restartPolicy": "Always", "resources": beside}]
    elif shape == "batch":
        amounts = {BATCH: str(500 * (1 + size)), "kubernetes.io/batch-memory": "0"}
        labels["koordinator.sh/qosClass"] = "BE"
    elif shape in ("quota", "child"):
        labels[QUOTA_NAME] = TEAM if shape == "quota" else f"child-{size % 2}"
    elif shape in ("gpu", "half"):
        amounts |= GPUS[shape == "half"]
    elif shape == "cpus":
        labels["koordinator.sh/qosClass"] = "LSR"
        amounts["cpu"] = str(2 * (1 + size))
    elif shape == "gang":
        labels[POD_GROUP] = "gang"
    elif shape == "operating":
        labels[OPERATING_MODE] = "Reservation"
        annotations[keys.RESERVATION_OWNERS] = json.dumps(_OWNERS)
    elif shape == "claim":
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{size % 2}"}}]
    elif shape in ("apart", "together"):
        kind = "podAntiAffinity" if shape == "apart" else "podAffinity"
        spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [_alike(shape)]}}
    elif shape == "spread":
        spec["topologySpreadConstraints"] = [{**_alike(shape), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    container["resources"] = {"requests": amounts, "limits": amounts}
    priority = 5500 if shape == "batch" else 9000 + 100 * size
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": {
            "schedulerName": "another" if shape == "elsewhere" else "koord-scheduler",
            "priorityClassName": "koord-batch" if shape == "batch" else "koord-prod",
            "priority": priority,
            "containers": [container],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def _alike(shape: str) -> Document:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": shape}}}


def records(shape: str, number: int, reservation: tuple[str, str] | None) -> dict[str, str]:
    """The annotations that whoever places a pod of this shape writes."""
    app, _, wants = shape.partition("-")
    found: dict[str, str] = {}
    if (wants or app) in ("gpu", "half"):
        held = [{"minor": number % 2, "resources": GPUS[app == "half"]}]
        found[keys.DEVICE_ALLOCATED] = json.dumps({"gpu": held})
    if (wants or app) == "cpus":
        first = 2 * (number % 3)
        found[keys.RESOURCE_STATUS] = json.dumps({"cpuset": f"{first}-{first + 1}"})
    if app == "owner" and reservation is not None:
        name, uid = reservation
        found[keys.RESERVATION_ALLOCATED] = json.dumps({"name": name, "uid": uid})
    return found


def unreadable_records(shape: str) -> dict[str, str]:
    key = {"gpu": keys.DEVICE_ALLOCATED, "half": keys.DEVICE_ALLOCATED, "cpus": keys.RESOURCE_STATUS}.get(shape)
    return {key or keys.RESERVATION_ALLOCATED: "{bad"}


def placed(document: Document, node_name: str, annotations: dict[str, str]) -> Document:
    metadata = document["metadata"]
    return {
        **document,
        "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}},
        "spec": {**document["spec"], "nodeName": node_name},
    }


def resized(document: Document, cpu: str, state: str) -> Document:
    """The pod with a request for so much CPU, and how far the kubelet has come with it."""
    container = document["spec"]["containers"][0]
    before = container["resources"]["requests"]
    after = {**before, "cpu": cpu}
    allocated = after if state in ("allocated", "done") else before
    runs = after if state == "done" else before
    pending = {"deferred": "Deferred", "infeasible": "Infeasible"}.get(state)
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    status = {
        **document.get("status", {}),
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [
            {"name": "main", "resources": {"requests": runs}, "allocatedResources": allocated},
        ],
    }
    changed = {**container, "resources": {"requests": after, "limits": after}}
    return {**document, "spec": {**document["spec"], "containers": [changed]}, "status": status}


def reservation(
    name: str, shape: str, size: int, *, once: bool, ttl: str = "24h", policy: str = "", takes_over: bool = False
) -> Document:
    """For pods of the shape ``owner-SHAPE``."""
    template = pod("template", shape, size)
    return {
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
            "owners": _OWNERS,
            "preAllocation": takes_over,
            "allocateOnce": once,
            "allocatePolicy": policy,
            "ttl": ttl,
        },
    }


def available(document: Document, node_name: str, annotations: dict[str, str]) -> Document:
    """The Reservation, on the node."""
    amounts = document["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    status = {"phase": "Available", "nodeName": node_name, "allocatable": amounts}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}, "status": status}


def quota(name: str, cpu: int, parent: str | None) -> Document:
    most = {"cpu": str(cpu), "memory": "64Gi", CORE: "400", RATIO: "400"}
    least = {"cpu": str(cpu // 2), "memory": "4Gi"}
    return quota_document(name, parent=parent, is_parent=name == TEAM, namespace="default", max=most, min=least)


def pod_group(minimum: int) -> Document:
    return {"metadata": {"name": "gang", "namespace": "default"}, "spec": {"minMember": minimum}}
