"""Objects that an API server accepts and that say what cannot be: numbers below zero or beyond all bounds, texts that
are no JSON, references to nothing.

Each costs its own author alone: every program goes on with all others, and names the object and its field. All of them
are about the node BROKEN_NODE or the namespace BROKEN_NAMESPACE, so that a test puts healthy objects beside them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import annotations as keys
from koordinator.api.kinds import (
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)

BROKEN_NODE: Final = "broken"
BROKEN_NAMESPACE: Final = "broken"
_NOW: Final = "2026-01-01T00:00:00Z"


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


def _node(annotations: Mapping[str, str]) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    metadata = {"name": BROKEN_NODE, "annotations": dict(annotations)}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": dict(amounts), "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def _metric(usage: Mapping[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": BROKEN_NODE},
        "spec": {},
        "status": {"updateTime": _NOW, "nodeMetric": {"nodeUsage": {"resources": dict(usage)}}, **status},
    }


def _pod(annotations: Mapping[str, str]) -> dict[str, Any]:
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


def _quota(minimum: str, maximum: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
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


def _device(**device: Any) -> dict[str, Any]:
    one = {"type": "gpu", "id": "gpu-0", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": BROKEN_NODE},
        "spec": {"devices": [{**one, **device}]},
    }


def _topology(amount: str) -> dict[str, Any]:
    cpu = {"name": "cpu", "capacity": amount, "allocatable": amount, "available": amount}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": BROKEN_NODE, "annotations": {}},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [{"name": "node-0", "type": "Node", "resources": [cpu]}],
    }


def _reservation(cpu: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "broken"},
        "spec": {"template": template, "owners": [{"object": {"name": "nobody"}}], "ttl": "1h", **spec},
    }


def _pod_group(minimum: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "broken", "namespace": BROKEN_NAMESPACE},
        "spec": {"minMember": minimum, **spec},
    }


_USAGE = "status.nodeMetric.nodeUsage.resources.cpu"
_NEGATIVE = {"cpu": "-3", "memory": "-1Gi"}


def _usage(name: str, what: str, **usage: str) -> BrokenObject:
    return BrokenObject(f"metric-{name}", what, NODE_METRICS, _USAGE, _metric(usage))


def _of_node(name: str, what: str, key: str, value: str) -> BrokenObject:
    return BrokenObject(f"node-{name}", what, NODES, f"metadata.annotations[{key}]", _node({key: value}))


def _of_pod(name: str, what: str, key: str, value: str) -> BrokenObject:
    return BrokenObject(f"pod-{name}", what, PODS, f"metadata.annotations[{key}]", _pod({key: value}))


BROKEN_OBJECTS: Final[Sequence[BrokenObject]] = (
    _usage("below-zero", "a node uses less than nothing", cpu="-3", memory="1Gi"),
    _usage("far-below-zero", "an exponent that no machine number holds", cpu="-1e99999", memory="1Gi"),
    _usage("beyond-all-bounds", "more than an int64 of milli-CPU", cpu="9223372036854775807E", memory="1Gi"),
    _usage("far-beyond-all-bounds", "an exponent that no machine number holds", cpu="1e99999", memory="1Gi"),
    _usage("infinitely-little", "a negative exponent that no machine number holds", cpu="1e-99999", memory="1Gi"),
    BrokenObject(
        "metric-system-below-zero",
        "the system uses less than nothing",
        NODE_METRICS,
        "status.nodeMetric.systemUsage.resources.cpu",
        _metric(
            {"cpu": "1"}, nodeMetric={"systemUsage": {"resources": _NEGATIVE}, "nodeUsage": {"resources": {"cpu": "1"}}}
        ),
    ),
    BrokenObject(
        "metric-percentile-below-zero",
        "a percentile below zero",
        NODE_METRICS,
        "status.nodeMetric.aggregatedNodeUsages[0].usage.p95.resources.cpu",
        _metric(
            {},
            nodeMetric={
                "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [{"duration": "5m", "usage": {"p95": {"resources": _NEGATIVE}}}],
            },
        ),
    ),
    BrokenObject(
        "metric-pod-below-zero",
        "a pod uses less than nothing",
        NODE_METRICS,
        "status.podsMetric[0].podUsage.resources.cpu",
        _metric(
            {"cpu": "1", "memory": "1Gi"},
            podsMetric=[{"namespace": "default", "name": "web", "podUsage": {"resources": _NEGATIVE}}],
        ),
    ),
    BrokenObject(
        "metric-reclaimable-below-zero",
        "less than nothing is reclaimable",
        NODE_METRICS,
        "status.prodReclaimableMetric.resource.resources.cpu",
        _metric({"cpu": "1", "memory": "1Gi"}, prodReclaimableMetric={"resource": {"resources": _NEGATIVE}}),
    ),
    BrokenObject(
        "metric-of-the-future",
        "a report that is dated far ahead",
        NODE_METRICS,
        "status.updateTime",
        _metric({"cpu": "1", "memory": "1Gi"}, updateTime="9999-12-31T23:59:59Z"),
    ),
    BrokenObject(
        "metric-negative-interval",
        "a report interval and a window below zero",
        NODE_METRICS,
        "spec.metricCollectPolicy.reportIntervalSeconds",
        {
            **_metric({"cpu": "1", "memory": "1Gi"}),
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": -60, "aggregateDurationSeconds": -1}},
        },
    ),
    _of_node("raw-allocatable-text", "no JSON", keys.RAW_ALLOCATABLE, "soon"),
    _of_node("raw-allocatable-below-zero", "a node of less than nothing", keys.RAW_ALLOCATABLE, '{"cpu":"-8"}'),
    _of_node("ratio-zero", "CPUs amplified by nothing", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":0}'),
    _of_node("ratio-below-zero", "CPUs amplified by less", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":-2}'),
    _of_node("ratio-huge", "CPUs without end", keys.RESOURCE_AMPLIFICATION_RATIO, '{"cpu":1e308}'),
    _of_node("ratio-text", "a ratio that is no number", keys.CPU_NORMALIZATION_RATIO, "NaN"),
    _of_node(
        "reservation-below-zero",
        "less than nothing is kept from pods",
        keys.NODE_RESERVATION,
        '{"resources":{"cpu":"-100"},"reservedCPUs":"0-99999999"}',
    ),
    _of_node("load-thresholds", "a threshold beyond 100 %", keys.USAGE_THRESHOLDS, '{"usageThresholds":{"cpu":-9}}'),
    _of_pod("cpus-without-end", "a billion CPUs", keys.RESOURCE_STATUS, '{"cpuset":"0-999999999"}'),
    _of_pod("cpus-backwards", "a range that ends before it begins", keys.RESOURCE_STATUS, '{"cpuset":"7-3"}'),
    _of_pod("resource-spec-text", "no JSON", keys.RESOURCE_SPEC, "{"),
    _of_pod("resource-spec-deep", "JSON without end", keys.RESOURCE_SPEC, "[" * 5000),
    _of_pod("devices-below-zero", "a GPU of a negative number", keys.DEVICE_ALLOCATED, '{"gpu":[{"minor":-1}]}'),
    _of_pod("gang-below-zero", "a gang of less than nobody", keys.GANG_MIN_AVAILABLE, "-1"),
    _of_pod("gang-huge", "a gang of more than a number holds", keys.GANG_MIN_AVAILABLE, "1e99"),
    BrokenObject(
        "quota-below-zero",
        "a min and a max below zero",
        ELASTIC_QUOTAS,
        "spec.min.cpu",
        _quota("-1", "-2"),
    ),
    BrokenObject(
        "quota-weight-below-zero",
        "a weight below zero",
        ELASTIC_QUOTAS,
        f"metadata.annotations[{keys.QUOTA_SHARED_WEIGHT}]",
        _quota("1", "2", {keys.QUOTA_SHARED_WEIGHT: '{"cpu":"-1"}'}),
    ),
    BrokenObject(
        "quota-beyond-all-bounds",
        "a min that no machine number holds",
        ELASTIC_QUOTAS,
        "spec.min.cpu",
        _quota("1e99999", "1e99999"),
    ),
    BrokenObject("device-below-zero", "a minor number below zero", DEVICES, "spec.devices[0].minor", _device(minor=-1)),
    BrokenObject(
        "device-amount-below-zero",
        "a GPU of less than nothing",
        DEVICES,
        "spec.devices[0].resources",
        _device(resources={"koordinator.sh/gpu-core": "-100"}),
    ),
    BrokenObject(
        "topology-below-zero",
        "a NUMA node of less than nothing",
        NODE_RESOURCE_TOPOLOGIES,
        "zones[0].resources[0].allocatable",
        _topology("-4"),
    ),
    BrokenObject(
        "topology-beyond-all-bounds",
        "a NUMA node that no machine number holds",
        NODE_RESOURCE_TOPOLOGIES,
        "zones[0].resources[0].allocatable",
        _topology("1e99999"),
    ),
    BrokenObject(
        "reservation-below-zero", "less than nothing is reserved", RESERVATIONS, "spec.template", _reservation("-4")
    ),
    BrokenObject(
        "reservation-ttl-text", "a time to live that is none", RESERVATIONS, "spec.ttl", _reservation("1", ttl="-5h")
    ),
    BrokenObject("pod-group-below-zero", "a gang of less than nobody", POD_GROUPS, "spec.minMember", _pod_group(-1)),
    BrokenObject(
        "pod-group-wait-below-zero",
        "a gang that waits less than no time",
        POD_GROUPS,
        "spec.scheduleTimeoutSeconds",
        _pod_group(2, scheduleTimeoutSeconds=-1),
    ),
)


def broken_objects(kind: Kind[Any]) -> list[BrokenObject]:
    """Those of one kind."""
    return [broken for broken in BROKEN_OBJECTS if broken.kind == kind]
