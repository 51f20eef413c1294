"""One case: a node with everything that koord-manager looks at for it, as documents to be created."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys

Document = dict[str, Any]
Amounts = tuple[str, str]
"""CPU and memory."""
POD_NAMESPACE: Final = "workloads"
_NODE: Final[Amounts] = ("100", "120G")


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod, the phase that it is in, and what is said to be used by it (None: nothing is said)."""

    document: Document
    phase: str
    used: Document | None
    is_ending: bool = False
    """Whether it has been deleted and still runs."""
    status: Document = field(default_factory=dict)
    """What its status says beside the phase."""


@dataclass(frozen=True, slots=True)
class NodeCase:
    """``intended`` names the differences that there are to be; all else has to be the same."""

    name: str
    node: Document
    pods: tuple[PodOnNode, ...] = ()
    report: Document | None = None
    """The status of the NodeMetric without its time."""
    report_age: float | None = 0.0
    """In seconds; None: the report bears no time."""
    topology: Document | None = None
    device: Document | None = None
    intended: tuple[str, ...] = ()


def amounts(pair: Amounts) -> Document:
    return {"cpu": pair[0], "memory": pair[1]}


def pod(
    name: str,
    requests: Amounts | None = None,
    used: Amounts | None = None,
    *,
    quality: str = "",
    priority: str = "",
    phase: str = "Running",
    zones: Sequence[int] | str | None = None,
    spec: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
) -> PodOnNode:
    """``priority`` is the name of a PriorityClass. ``zones``: NUMA nodes that it is on, or the annotation as it is."""
    container: Document = {"name": "main", "image": "image"}
    if requests is not None:
        container["resources"] = {"requests": amounts(requests)}
    metadata: Document = {"name": name, "namespace": POD_NAMESPACE, "labels": dict(labels or {}), "annotations": {}}
    if quality:
        metadata["labels"][label_keys.QOS_CLASS] = quality
    if zones is not None:
        text = zones if isinstance(zones, str) else json.dumps({"numaNodeResources": [{"node": one} for one in zones]})
        metadata["annotations"][annotation_keys.RESOURCE_STATUS] = text
    document = {
        "metadata": metadata,
        "spec": {"containers": [container], **({"priorityClassName": priority} if priority else {}), **(spec or {})},
    }
    return PodOnNode(document, phase, amounts(used) if used is not None else None)


def report(
    *,
    system: Amounts | Document = ("7", "12G"),
    usage: Amounts | Document = ("30", "50G"),
    hosts: Sequence[tuple[str, Amounts]] = (),
    gone: Sequence[tuple[str, Amounts]] = (),
    reclaimable: Amounts | None = None,
    has_body: bool = True,
) -> Document:
    """``hosts`` and ``gone``: priority and usage of applications of the host, and of pods that are not there."""
    status: Document = {}
    if has_body:
        status["nodeMetric"] = {
            "nodeUsage": {"resources": amounts(usage) if isinstance(usage, tuple) else usage},
            "systemUsage": {"resources": amounts(system) if isinstance(system, tuple) else system},
        }
    if hosts:
        status["hostApplicationMetric"] = [
            {"name": f"host-{number}", "priority": priority, "usage": {"resources": amounts(used)}}
            for number, (priority, used) in enumerate(hosts)
        ]
    if gone:
        status["podsMetric"] = [
            {"name": f"gone-{number}", "namespace": POD_NAMESPACE, **_priority(name), "podUsage": _usage(used)}
            for number, (name, used) in enumerate(gone)
        ]
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": {"resources": amounts(reclaimable)}}
    return status


def _priority(name: str) -> Document:
    return {"priority": name} if name else {}


def _usage(used: Amounts | Document) -> Document:
    return {"resources": amounts(used) if isinstance(used, tuple) else used}


def zones(
    *zone_amounts: Amounts | None,
    names: Sequence[str] = (),
    batch: Mapping[int, Amounts] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    """A NodeResourceTopology: a zone for each pair; ``batch`` gives what zones offer already."""
    made = []
    for number, pair in enumerate(zone_amounts):
        entries = dict(zip(("cpu", "memory"), pair, strict=True)) if pair is not None else {}
        if batch and number in batch:
            entries |= dict(zip(("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"), batch[number], strict=True))
        made.append(
            {
                "name": names[number] if names else f"node-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in entries.items()
                ],
            }
        )
    return {"metadata": {"annotations": dict(annotations or {})}, "topologyPolicies": ["None"], "zones": made}


def cpu_model(name: str, hyper_thread: bool = False, turbo: bool = False) -> dict[str, str]:
    """The annotation of a NodeResourceTopology that names the CPU."""
    info = {"cpuModel": name, "hyperThreadEnabled": hyper_thread, "turboEnabled": turbo}
    return {annotation_keys.CPU_BASIC_INFO: json.dumps(info)}


def device(
    *devices: tuple[str, bool, Mapping[str, str]],
    labels: Mapping[str, str] | None = None,
) -> Document:
    """Each with its type, whether it is healthy, and its resources."""
    made = [
        {"type": kind, "minor": number, "health": health, "resources": dict(resources)}
        for number, (kind, health, resources) in enumerate(devices)
    ]
    return {"metadata": {"labels": dict(labels or {})}, "spec": {"devices": made}}


@dataclass(frozen=True, slots=True)
class NodeWords:
    """What a node says beside its capacity."""

    capacity: Mapping[str, str] = field(default_factory=lambda: amounts(_NODE))
    allocatable: Mapping[str, str] | None = None
    """None: as the capacity."""
    offers: Mapping[str, str] = field(default_factory=dict)
    """Other resources that are in both already."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    has_status: bool = True
    is_bare: bool = False
    """Without a label or an annotation that the case does not give, as no kubelet makes it."""


def node_case(
    name: str,
    *,
    words: NodeWords = NodeWords(),
    strategy: Mapping[str, Any] | str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    pods: Sequence[PodOnNode] = (),
    said: Document | None = None,
    is_measured: bool = True,
    age: float | None = 0.0,
    topology: Document | None = None,
    devices: Document | None = None,
    intended: Sequence[str] = (),
) -> NodeCase:
    """``strategy`` is the annotation of the node; ``said`` the report, a common one if it ``is_measured`` and none is
    given."""
    own = {} if words.is_bare else {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    own |= annotations or {}
    if strategy is not None:
        text = strategy if isinstance(strategy, str) else json.dumps(strategy)
        own[annotation_keys.COLOCATION_STRATEGY] = text
    its_labels = {**({} if words.is_bare else {"kubernetes.io/hostname": name}), **(labels or {})}
    node: Document = {"metadata": {"name": name, "labels": its_labels, "annotations": own}}
    if words.spec:
        node["spec"] = dict(words.spec)
    if words.has_status:
        allocatable = words.capacity if words.allocatable is None else words.allocatable
        node["status"] = {
            "capacity": {**words.capacity, **words.offers},
            "allocatable": {**allocatable, **words.offers},
        }
    metric = (said if said is not None else report()) if is_measured else None
    return NodeCase(name, node, tuple(pods), metric, age, topology, devices, tuple(intended))
