"""Pods, rules and a kernel for the tests of hooks."""

from __future__ import annotations

import json
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.hooks.contexts import PodContext, running_pod, starting_pod
from koordinator.koordlet.enforce.hooks.rules import CPUPools, Rules
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.koordlet.report.node_topology.cpu_pools import CPUPool
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from tests.koordlet.enforce.strategies.qos_fixtures import kubelet_bandwidths, policy

LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
CPU_QOS = {
    "lsrClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
    "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 1}},
    "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
}
IDENTITIES = policy(resourceQOSStrategy=CPU_QOS)
POOLS = CPUPools(
    shared=(CPUPool(0, 0, frozenset({0, 1, 2})), CPUPool(0, 1, frozenset({4, 5, 6}))),
    best_effort=(CPUPool(0, 0, frozenset({0, 1, 2, 3})), CPUPool(0, 1, frozenset({4, 5, 6, 7}))),
)
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
GIB = 1 << 30


def status(**given: Any) -> dict[str, str]:
    """The annotation by which the scheduler gives CPUs."""
    return {"scheduling.koordinator.sh/resource-status": json.dumps(given)}


def node_pod(
    name: str,
    qos: str = "LS",
    *,
    kubernetes_qos: str = "",
    annotations: dict[str, str] | None = None,
    resources: dict[str, str] | None = None,
    **given: Any,
) -> NodePod:
    """A running pod of the container ``c``, whose ID is ``c-NAME``."""
    class_ = kubernetes_qos or {"BE": "BestEffort", "LSE": "Guaranteed", "LSR": "Guaranteed"}.get(qos, "Burstable")
    limits = resources or {}
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": {"koordinator.sh/qosClass": qos} if qos else {},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": limits, "limits": limits}}]},
        "status": {
            "phase": "Running",
            "qosClass": class_,
            "containerStatuses": [{"name": "c", "containerID": f"containerd://c-{name}"}],
        },
    }
    for section, fields in given.items():
        document[section] |= fields
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    return made


def running(name: str = "web", qos: str = "LS", **given: Any) -> PodContext:
    """As the reconciler sees it."""
    pod = node_pod(name, qos, **given)
    return running_pod(pod, kubelet_bandwidths(PodUsage(pod))[pod.uid])


def starting(qos: str = "LS", cgroup: str = "/kubepods/burstable/podweb", **annotations: str) -> PodContext:
    """As a runtime proxy tells of it."""
    return starting_pod("shop", "web", "web", {"koordinator.sh/qosClass": qos}, annotations, cgroup)


def rules(**given: Any) -> Rules:
    """Of a kernel with group identity and a node with two pools; what is given goes before that."""
    defaults: dict[str, Any] = {
        "policy": IDENTITIES,
        "pools": POOLS,
        "cpus": frozenset(range(8)),
        "has_group_identity": True,
        "group_identity_switch": 1,
    }
    return Rules(**(defaults | given))
