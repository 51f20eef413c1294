"""Objects as they should be, with most of the fields that the manager reads: garbage goes into their places."""

from __future__ import annotations

from typing import Any

from koordinator.api import annotations as keys
from koordinator.api import labels
from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    DEVICES,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
    Kind,
)
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from tests.in_memory_api import Document
from tests.manager.broken_input.bench import MANAGED, node, node_metric, pod

BAD = "bad"
"""The name of everything that is broken."""
_USAGE = {"resources": {"cpu": "1", "memory": "1G"}}
_START = format_time(ManualClock().now())


def bad_node() -> Document:
    texts = {
        keys.NODE_RESERVATION: '{"resources": {"cpu": "1"}}',
        keys.NETWORK_BANDWIDTH: "10G",
        keys.COLOCATION_STRATEGY: '{"cpuReclaimThresholdPercent": 65}',
        keys.CPU_NORMALIZATION_RATIO: "1.00",
        keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu": 1.5}',
        keys.RAW_ALLOCATABLE: '{"cpu": "100"}',
        keys.ORIGIN_EXTENDED_ALLOCATABLE: '{"resources": {}}',
        keys.THIRD_PARTY_ALLOCATIONS: '{"allocations": []}',
    }
    selected = {
        labels.CPU_RECLAIM_RATIO: "0.65",
        labels.MEMORY_RECLAIM_RATIO: "0.65",
        labels.CPU_NORMALIZATION_ENABLED: "false",
        "pool": "bad",
    }
    return node(BAD, annotations=texts, labels=selected)


def bad_metric() -> Document:
    return node_metric(
        BAD,
        _START,
        podsMetric=[{"namespace": "default", "name": BAD, "podUsage": _USAGE, "priority": "koord-prod", "qos": "LS"}],
        hostApplicationMetric=[{"name": "a", "usage": _USAGE, "priority": "koord-prod", "qos": "LS"}],
        prodReclaimableMetric={"resource": _USAGE},
    )


def bad_profile() -> Document:
    return {
        "metadata": {"name": BAD, "labels": MANAGED, "annotations": {}},
        "spec": {
            "selector": {"matchLabels": {"app": BAD}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
            "namespaceSelector": {"matchLabels": {}},
            "probability": "100%",
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "koordinatorPriority": 5,
            "schedulerName": "koord-scheduler",
            "labels": {"seen": "yes"},
            "annotations": {"seen": "yes"},
            "labelKeysMapping": {"app": "copy"},
            "annotationKeysMapping": {"a": "b"},
            "labelSuffixes": {"app": "-x"},
            "patch": {"spec": {"terminationGracePeriodSeconds": 5}},
        },
    }


def bad_quota() -> Document:
    texts = {
        keys.QUOTA_SHARED_WEIGHT: '{"cpu": "1"}',
        keys.QUOTA_NAMESPACES: "[]",
        keys.QUOTA_GUARANTEED: '{"cpu": "1"}',
        keys.QUOTA_REQUEST: '{"cpu": "1"}',
    }
    return {
        "metadata": {
            "name": BAD,
            "namespace": "default",
            "labels": {labels.QUOTA_PARENT: "koordinator-root-quota", labels.QUOTA_IS_PARENT: "false"},
            "annotations": texts,
        },
        "spec": {"min": {"cpu": "1", "memory": "1G"}, "max": {"cpu": "2", "memory": "2G"}},
        "status": {"used": {"cpu": "1"}},
    }


def bad_quota_profile() -> Document:
    return {
        "metadata": {
            "name": BAD,
            "namespace": "default",
            "annotations": {keys.QUOTA_RESOURCE_KEYS: '["cpu", "memory"]'},
            "labels": {labels.QUOTA_TREE_ID: "1"},
        },
        "spec": {
            "quotaName": "bad-root",
            "quotaLabels": {"a": "b"},
            "resourceRatio": "0.9",
            "nodeSelector": {"matchLabels": {"pool": "bad"}},
        },
    }


def bad_device() -> Document:
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
    gpu = {"type": "gpu", "id": "0", "minor": 0, "health": True, "resources": resources}
    rdma = {"type": "rdma", "id": "1", "minor": 0, "health": True, "resources": {"koordinator.sh/rdma": "100"}}
    return {
        "metadata": {"name": BAD, "labels": {"node.koordinator.sh/gpu-model": "x"}},
        "spec": {"devices": [gpu, rdma]},
    }


def bad_topology() -> Document:
    amounts = {"capacity": "50", "allocatable": "50", "available": "50"}
    return {
        "metadata": {"name": BAD, "annotations": {keys.CPU_BASIC_INFO: '{"cpuModel": "x"}'}},
        "topologyPolicies": ["None"],
        "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", **amounts}]}],
    }


def bad_pod() -> Document:
    texts = {keys.RESOURCE_STATUS: '{"numaNodeResources": [{"node": 0}]}'}
    return pod(BAD, node_name=BAD, labels={"koordinator.sh/qosClass": "LS"}, annotations=texts)


DOCUMENTS: dict[str, tuple[Kind[Any], Document]] = {
    kind.name: (kind, document)
    for kind, document in (
        (NODES, bad_node()),
        (NODE_METRICS, bad_metric()),
        (CLUSTER_COLOCATION_PROFILES, bad_profile()),
        (ELASTIC_QUOTAS, bad_quota()),
        (ELASTIC_QUOTA_PROFILES, bad_quota_profile()),
        (DEVICES, bad_device()),
        (NODE_RESOURCE_TOPOLOGIES, bad_topology()),
        (PODS, bad_pod()),
    )
}

CONFIGURATIONS: dict[str, Document] = {
    "colocation-config": {
        "enable": True,
        "cpuReclaimThresholdPercent": 65,
        "memoryReclaimThresholdPercent": 65,
        "memoryCalculatePolicy": "usage",
        "cpuCalculatePolicy": "usage",
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "metricReportIntervalSeconds": 60,
        "metricAggregateDurationSeconds": 300,
        "metricAggregatePolicy": {"durations": ["5m"]},
        "metricMemoryCollectPolicy": "usageWithoutPageCache",
        "batchCPUThresholdPercent": 100,
        "midCPUThresholdPercent": 100,
        "midUnallocatedPercent": 0,
        "nodeConfigs": [
            {
                "name": "bad",
                "nodeSelector": {"matchLabels": {"pool": "bad"}},
                "degradeTimeMinutes": 15,
                "updateTimeThresholdSeconds": 300,
            }
        ],
    },
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60, "cpuSuppressPolicy": "cpuset"},
        "nodeStrategies": [
            {"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "cpuSuppressThresholdPercent": 50}
        ],
    },
    "resource-qos-config": {
        "clusterStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}},
        "nodeStrategies": [
            {
                "name": "bad",
                "nodeSelector": {"matchLabels": {"pool": "bad"}},
                "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 10}},
            }
        ],
    },
    "cpu-burst-config": {
        "clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPeriodSeconds": -1},
        "nodeStrategies": [{"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "policy": "none"}],
    },
    "system-config": {
        "clusterStrategy": {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "10G"},
        "nodeStrategies": [
            {"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "watermarkScaleFactor": 150}
        ],
    },
    "host-application-config": {
        "applications": [
            {"name": "nginx", "priority": "koord-prod", "qos": "LS", "cgroupPath": {"base": "CgroupRoot"}}
        ],
        "nodeConfigs": [{"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "applications": []}],
    },
    "cpu-normalization-config": {
        "enable": False,
        "defaultRatio": 1.0,
        "ratioModel": {"x": {"baseRatio": 1.0}},
        "nodeConfigs": [{"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "enable": False}],
    },
    "resource-amplification-config": {
        "enable": False,
        "resourceAmplificationRatio": {"cpu": 1.5},
        "nodeConfigs": [{"name": "bad", "nodeSelector": {"matchLabels": {"pool": "bad"}}, "enable": False}],
    },
}
