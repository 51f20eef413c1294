"""Nodes, pods and snapshots for the tests of strategies."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.strategies.snapshot import (
    BestEffortCgroups,
    BestEffortFolders,
    ContainerUsage,
    PodUsage,
    Snapshot,
)
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import node_pods
from koordinator.model.slo_configuration.complete_node_slo import complete_node_slo_spec
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cpu_topology import CPUTopology, LogicalCPU
from koordinator.node.kernel_files import PERIOD, quota_of_milli

LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V2, CgroupDriver.CGROUPFS)
BEST_EFFORT = LAYOUT.qos("BestEffort")
GIB = 1 << 30


def topology(cpus: int = 8, threads: int = 2, nodes: int = 2) -> CPUTopology:
    """CPUs in pairs that share a core, half of them on each NUMA node."""
    per_node = cpus // nodes
    return CPUTopology(tuple(LogicalCPU(cpu // per_node, cpu // per_node, cpu // threads, cpu) for cpu in range(cpus)))


def node(cpus: int = 8, allocatable: int | None = None, memory: int = 64 * GIB, **resources: str) -> Node:
    capacity = {"cpu": str(cpus), "memory": str(memory)}
    names = {name.replace("_", "-"): value for name, value in resources.items()}
    status = {
        "capacity": capacity,
        "allocatable": capacity
        | {"cpu": str(cpus if allocatable is None else allocatable)}
        | {f"kubernetes.io/{name}": value for name, value in names.items()},
    }
    return convert({"metadata": {"name": "n"}, "status": status}, Node)


def policy(**sections: Any) -> NodeSLOSpec:
    return complete_node_slo_spec(convert(sections, NodeSLOSpec))


def suppression(**threshold: Any) -> NodeSLOSpec:
    return policy(resourceUsedThresholdWithBE={"enable": True, **threshold})


def pod_usage(
    name: str,
    qos: str = "LS",
    *,
    cpu: float | None = 0.0,
    memory: float | None = 0.0,
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    priority: int | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    throttled: float | None = None,
    is_terminating: bool = False,
) -> PodUsage:
    """A running pod of one container."""
    resources = {"requests": requests or {}, "limits": limits or {}}
    document = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "annotations": annotations or {},
            "labels": {**({"koordinator.sh/qosClass": qos} if qos else {}), **(labels or {})},
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_terminating else {}),
        },
        "spec": {"priority": priority, "containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort" if qos == "BE" and "cpu" not in (limits or {}) else "Burstable",
            "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}"}],
        },
    }
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    containers = {f"containerd://{name}": ContainerUsage(cpu, throttled)}
    return PodUsage(made, cpu, memory, containers)


def kubelet_bandwidths(*pods: PodUsage, period: int = PERIOD) -> dict[str, dict[str, Bandwidth]]:
    """What the kubelet gives the folders of pods and of their containers, by UID."""
    given: dict[str, dict[str, Bandwidth]] = {}
    for usage in pods:
        pod = usage.pod
        containers = (*pod.containers, *pod.init_containers)
        named = pod.grant.containers
        grants = {each.cgroup: named[each.name] for each in containers if each.name in named}
        grants[pod.cgroup] = pod.grant.pod
        given[pod.uid] = {
            folder: Bandwidth(quota_of_milli(grant.cpu_limit or 0, period), period) for folder, grant in grants.items()
        }
    return given


def best_effort(quota: int = -1, cpus: int = 8, pods: int = 1) -> BestEffortCgroups:
    folders = tuple(f"{BEST_EFFORT}/pod{number}" for number in range(pods))
    return BestEffortCgroups(
        BestEffortFolders(BEST_EFFORT, folders, tuple(f"{folder}/c" for folder in folders)),
        quota=quota,
        cpuset=frozenset(range(cpus)),
    )


def snapshot(**given: Any) -> Snapshot:
    """A node of 8 CPUs on which one online pod uses 2 of them; what is given goes before that."""
    defaults: dict[str, Any] = {
        "node": node(),
        "policy": suppression(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="cfsQuota"),
        "pods": (pod_usage("web", cpu=2.0),),
        "node_cpu": 2.0,
        "node_memory": 8.0 * GIB,
        "topology": topology(),
        "best_effort": best_effort(),
    }
    return Snapshot(**(defaults | given))
