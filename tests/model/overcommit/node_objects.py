"""Nodes, pods, reports and zones as these tests write them down: amounts as texts such as ``20`` and ``40G``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from koordinator.api.codec import convert
from koordinator.api.device import Device
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.model.overcommit.abnormality import NodeHealth
from koordinator.model.overcommit.device_resources import NO_DEVICES, device_facts
from koordinator.model.overcommit.facts import NodePods, metric_facts, node_facts, pod_facts, topology_facts
from koordinator.model.overcommit.node_report import NodeReport
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import CapacityPolicy, Policies

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
RESERVATION: Final = "node.koordinator.sh/reservation"
RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
QOS: Final = "koordinator.sh/qosClass"
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"

Pair = tuple[str, str]
"""CPU and memory."""


def resources(pair: Pair) -> dict[str, str]:
    return {"cpu": pair[0], "memory": pair[1]}


def a_node(
    capacity: Pair = ("100", "120G"),
    allocatable: Pair | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
) -> Node:
    """``extended``: further entries of both capacity and allocatable."""
    return convert(
        {
            "metadata": {"name": "n", "annotations": dict(annotations or {}), "labels": dict(labels or {})},
            "status": {
                "capacity": {**resources(capacity), **(extended or {})},
                "allocatable": {**resources(allocatable or capacity), **(extended or {})},
            },
        },
        Node,
    )


def a_pod(
    name: str,
    *requests: Pair,
    qos: str = "",
    phase: str = "Running",
    priority: int | None = None,
    numa: Iterable[int] | None = None,
) -> Pod:
    """One container for each pair of requests, which are its limits too."""
    annotations = {}
    if numa is not None:
        nodes = ",".join(f'{{"node":{number}}}' for number in numa)
        annotations[RESOURCE_STATUS] = f'{{"cpuset":"2-5","numaNodeResources":[{nodes}]}}'
    containers: list[dict[str, Any]] = [
        {"name": f"c{index}", "resources": {"requests": resources(pair), "limits": resources(pair)}}
        for index, pair in enumerate(requests)
    ]
    return convert(
        {
            "metadata": {
                "name": name,
                "namespace": "test",
                "labels": {QOS: qos} if qos else {},
                "annotations": annotations,
            },
            "spec": {"containers": containers or [{"name": "c"}], "priority": priority},
            "status": {"phase": phase},
        },
        Pod,
    )


def a_metric(
    pods: Mapping[str, Pair] | None = None,
    system: Pair | None = ("7", "12G"),
    usage: Pair | None = ("50", "55G"),
    hosts: Mapping[str, Pair] | None = None,
    reclaimable: Pair | None = None,
    priorities: Mapping[str, str] | None = None,
    updated: datetime | None = NOW,
) -> NodeReport:
    """``hosts``: priority class of a host application -> its usage. ``priorities``: pod -> class as reported."""
    status: dict[str, Any] = {
        "nodeMetric": {
            "nodeUsage": {"resources": resources(usage)} if usage else {},
            "systemUsage": {"resources": resources(system)} if system else {},
        },
        "podsMetric": [
            {
                "name": name,
                "namespace": "test",
                "priority": (priorities or {}).get(name, ""),
                "podUsage": {"resources": resources(pair)},
            }
            for name, pair in (pods or {}).items()
        ],
        "hostApplicationMetric": [
            {"name": f"{priority}-app", "priority": priority, "usage": {"resources": resources(pair)}}
            for priority, pair in (hosts or {}).items()
        ],
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": {"resources": resources(reclaimable)}}
    if updated is not None:
        status["updateTime"] = updated.isoformat()
    return convert({"metadata": {"name": "n"}, "status": status}, NodeReport)


def a_topology(
    *zones: Pair, annotations: Mapping[str, str] | None = None, huge_pages: str | None = None
) -> NodeResourceTopology:
    """``huge_pages``: what each zone has of those of 1 GiB."""
    more = {} if huge_pages is None else {"hugepages-1Gi": huge_pages}
    return convert(
        {
            "metadata": {"name": "n", "annotations": dict(annotations or {})},
            "zones": [
                {
                    "name": f"node-{number}",
                    "type": "Node",
                    "resources": [
                        {"name": name, "capacity": text, "allocatable": text, "available": text}
                        for name, text in {**resources(pair), **more}.items()
                    ],
                }
                for number, pair in enumerate(zones)
            ],
        },
        NodeResourceTopology,
    )


def a_snapshot(
    node: Node,
    pods: Iterable[Pod] = (),
    metric: NodeReport | None = None,
    topology: NodeResourceTopology | None = None,
    device: Device | None = None,
    health: NodeHealth | None = None,
) -> NodeSnapshot:
    return NodeSnapshot(
        node=node_facts(node),
        pods=NodePods(pod_facts(pod) for pod in pods),
        metric=metric_facts(metric) if metric is not None else None,
        topology=topology_facts(topology) if topology is not None else None,
        device=device_facts(device) if device is not None else NO_DEVICES,
        health=health,
    )


def policy(cpu: int = 65, memory: int = 65, **given: Any) -> CapacityPolicy:
    """Reclaim thresholds, and whatever else differs from the defaults."""
    return CapacityPolicy(
        enable=True, cpu_reclaim_threshold_percent=cpu, memory_reclaim_threshold_percent=memory, **given
    )


def decided(snapshot: NodeSnapshot, capacity: CapacityPolicy, now: datetime = NOW) -> Plan:
    return decide(snapshot, Policies(capacity), now)


def values(plan: Plan) -> dict[str, int | None]:
    """Resource -> amount; None: reset."""
    return {amount.resource: None if amount.is_reset else amount.value for amount in plan.amounts}


def zone_values(plan: Plan) -> dict[str, tuple[int, int]]:
    return {batch.zone: (batch.cpu.value, batch.memory.value) for batch in plan.zones}
