"""Sound objects of every kind that a program reads, with most of the fields and annotations that any program reads:
garbage goes into their places."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from koordinator.api import annotations as keys
from koordinator.api import labels
from koordinator.api.document import Document, copied
from koordinator.api.kinds import Kind
from tests.api.sample_objects import CUSTOM_KINDS, load_sample

_KUBERNETES: Final = Path(__file__).parents[1] / "cluster/strategy/objects.yaml"
_MOST_ANNOTATIONS: Final = 5
_CPUS: Final = 8
_GPU: Final = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
_DETAIL: Final = ",".join(f'{{"id":{cpu},"core":{cpu // 2},"socket":0,"node":{cpu // 4}}}' for cpu in range(_CPUS))
_OWNERS: Final = '[{"labelSelector":{"matchLabels":{"app":"web"}}}]'

POD_ANNOTATIONS: Final[Mapping[str, str]] = {
    keys.CPU_BURST: '{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300}',
    keys.MEMORY_QOS: '{"policy":"auto","minLimitPercent":20,"throttlingPercent":80}',
    keys.CPU_QOS: '{"groupIdentity":2}',
    keys.BLKIO_QOS: '{"blocks":[{"name":"/dev/vda","type":"device","ioCfg":{"readIOPS":100}}]}',
    keys.NETWORK_QOS: '{"IngressBandwidth":"50M","EgressBandwidth":"50M"}',
    keys.EVICTION_POLICY: '["BEMemoryEvict"]',
    keys.EVICTION_PRIORITY: "5",
    keys.OOM_SCORE_ADJ: "500",
    keys.OOM_SCORE_ADJ_SPEC: '{"main":500}',
    keys.RESCTRL: '{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":50}}}',
    keys.EXTENDED_RESOURCE_SPEC: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1000"}}}}',
    keys.REPLACE_RESOURCES: '[{"source":"cpu","target":"kubernetes.io/batch-cpu"}]',
    keys.RESOURCE_SPEC: '{"preferredCPUBindPolicy":"FullPCPUs","requiredCPUBindPolicy":"FullPCPUs"}',
    keys.RESOURCE_STATUS: '{"cpuset":"0-1","numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}',
    keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Preferred"}',
    keys.DEVICE_ALLOCATED: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}',
    keys.DEVICE_ALLOCATE_HINT: '{"gpu":{"selector":{"matchLabels":{"a":"b"}},"allocateStrategy":"ApplyForAll"}}',
    keys.DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
    keys.GPU_PARTITION_SPEC: '{"allocatePolicy":"Restricted","ringBusBandwidth":"200Gi"}',
    keys.RESERVATION_AFFINITY: '{"reservationSelector":{"a":"b"},"name":"","tolerations":[{"key":"a"}]}',
    keys.RESERVATION_ALLOCATED: '{"name":"broken","uid":"a-b-c"}',
    keys.EXACT_MATCH_RESERVATION: '{"resourceNames":["cpu","memory"]}',
    keys.SCHEDULING_HINT: '{"nodeNames":["good"]}',
    keys.DEPRECATED_SCHEDULING_HINT: '{"nodeNames":["good"]}',
    keys.ORIGINAL_SCHEDULER_NAME: "default-scheduler",
    keys.BIND_GANG_GROUP_ID: "broken/gang",
    keys.BIND_GANG_MEMBER_COUNT: "2",
    keys.DEPRECATED_BIND_GANG_GROUP_ID: "broken/gang",
    keys.DEPRECATED_BIND_GANG_MEMBER_COUNT: "2",
    keys.LOAD_ESTIMATED_SCALING_FACTORS: '{"cpu":80,"memory":70}',
    keys.LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED: "60",
    keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: "60",
    keys.NETWORK_TOPOLOGY_SELECTOR: "a",
    keys.PRE_ALLOCATABLE_PRIORITY: "5",
    keys.GANG_NAME: "gang",
    keys.GANG_MIN_AVAILABLE: "2",
    keys.GANG_TOTAL_NUMBER: "3",
    keys.GANG_MODE: "Strict",
    keys.GANG_MATCH_POLICY: "once-satisfied",
    keys.GANG_MATCH_POLICY_ALIAS: "once-satisfied",
    keys.GANG_WAITING_TIME: "30s",
    keys.GANG_TIMEOUT: "30s",
    keys.GANG_GROUPS: '["broken/gang","broken/other"]',
    keys.GANG_NETWORK_TOPOLOGY_SPEC: '{"gatherStrategy":[{"layer":"spine","strategy":"PreferGather"}]}',
    keys.GANG_NETWORK_TOPOLOGY_INDEX: "1",
    keys.EVICTION_COST: "100",
    keys.SOFT_EVICTION: '{"timestamp":"2026-01-01T00:00:00Z","deleteOptions":{}}',
    keys.EVICTABLE: "true",
    keys.PREFER_NO_EVICTION: "true",
    keys.POD_DELETION_COST: "100",
    keys.RESERVE_POD: "true",
    keys.RESERVATION_OWNERS: _OWNERS,
    keys.RESERVATION_NAME: "broken",
    keys.RESERVATION_NODE: "good",
    keys.RESERVATION_CURRENT_OWNER: '{"namespace":"default","name":"o","uid":"u"}',
    keys.RESERVATION_RESIZE_ALLOCATABLE: '{"resources":{"cpu":"1"}}',
    keys.RESERVATION_RESTRICTED_OPTIONS: '{"resources":["cpu"]}',
    keys.IS_PRE_ALLOCATION: "true",
    keys.CONFIG_MIRROR: "0f1e2d3c",
    keys.CONFIG_SOURCE: "file",
    keys.BIND_TIMESTAMP: "1767225600000000000",
    keys.GPU_MINORS: "0",
    keys.EVICT_REASON: "hot",
}
NODE_ANNOTATIONS: Final[Mapping[str, str]] = {
    keys.NODE_RESERVATION: '{"resources":{"cpu":"1"},"reservedCPUs":"0-1","applyPolicy":"Default"}',
    keys.SYSTEM_QOS_RESOURCE: '{"cpuset":"0-1","cpusetExclusive":true}',
    keys.NETWORK_BANDWIDTH: "10G",
    keys.COLOCATION_STRATEGY: '{"cpuReclaimThresholdPercent":65}',
    keys.CPU_NORMALIZATION_RATIO: "1.20",
    keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":1.5}',
    keys.RAW_ALLOCATABLE: '{"cpu":"8"}',
    keys.ORIGIN_EXTENDED_ALLOCATABLE: '{"resources":{"kubernetes.io/batch-cpu":"1000"}}',
    keys.THIRD_PARTY_ALLOCATIONS: '{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{}}]}',
    keys.ADAPTIVE_SLO: '{"level":1,"steps":4,"scorePercent":60}',
    keys.USAGE_THRESHOLDS: '{"usageThresholds":{"cpu":65},"prodUsageThresholds":{"cpu":55}}',
    keys.HAMI_MUTEX_LOCK: "2026-01-01T00:00:00Z",
    keys.CAMBRICON_LOCK: "2026-01-01T00:00:00Z",
}
TOPOLOGY_ANNOTATIONS: Final[Mapping[str, str]] = {
    keys.CPU_BASIC_INFO: '{"cpuModel":"x","hyperThreadEnabled":true,"turboEnabled":true}',
    keys.CPU_TOPOLOGY: f'{{"detail":[{_DETAIL}]}}',
    keys.POD_CPU_ALLOCS: '[{"namespace":"default","name":"web","uid":"u","cpuset":"0-1","managedByKubelet":true}]',
    keys.CPU_SHARED_POOLS: '[{"socket":0,"node":0,"cpuset":"0-3"}]',
    keys.BE_CPU_SHARED_POOLS: '[{"socket":0,"node":0,"cpuset":"0-3"}]',
    keys.KUBELET_CPU_MANAGER_POLICY: '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0"}',
    keys.KOORDLET_CONFIGURATION: '{"resourceVersion":"1","since":"2026-01-01T00:00:00Z"}',
    keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":1.5}',
    keys.NODE_RESERVATION: '{"reservedCPUs":"0-1"}',
}
QUOTA_ANNOTATIONS: Final[Mapping[str, str]] = {
    keys.QUOTA_SHARED_WEIGHT: '{"cpu":"1","memory":"1Gi"}',
    keys.QUOTA_NAMESPACES: '["broken"]',
    keys.QUOTA_TOTAL_RESOURCE: '{"cpu":"8"}',
    keys.QUOTA_UNSCHEDULABLE_RESOURCE: '{"cpu":"1"}',
    keys.QUOTA_RUNTIME: '{"cpu":"1"}',
    keys.QUOTA_REQUEST: '{"cpu":"1"}',
    keys.QUOTA_CHILD_REQUEST: '{"cpu":"1"}',
    keys.QUOTA_GUARANTEED: '{"cpu":"1"}',
    keys.QUOTA_ALLOCATED: '{"cpu":"1"}',
    keys.QUOTA_NON_PREEMPTIBLE_REQUEST: '{"cpu":"1"}',
    keys.QUOTA_NON_PREEMPTIBLE_USED: '{"cpu":"1"}',
    keys.QUOTA_ADMISSION: '{"cpu":"1"}',
    keys.QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS: '["cpu"]',
}
RESERVATION_ANNOTATIONS: Final[Mapping[str, str]] = {
    key: POD_ANNOTATIONS[key]
    for key in (
        *(keys.RESERVATION_RESTRICTED_OPTIONS, keys.RESERVATION_RESIZE_ALLOCATABLE, keys.RESERVATION_OWNERS),
        *(keys.DEVICE_ALLOCATED, keys.RESOURCE_STATUS, keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC),
    )
}
_GANG: Final = {key: text for key, text in POD_ANNOTATIONS.items() if key.startswith("gang.scheduling")}
_WEBHOOKS: Final = (
    '[{"name":"a.b.c","clientConfig":{"service":{"name":"s","namespace":"n","path":"/p"}},'
    '"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}]'
)

ANNOTATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": POD_ANNOTATIONS,
    "Node": NODE_ANNOTATIONS,
    "NodeResourceTopology": TOPOLOGY_ANNOTATIONS,
    "ElasticQuota": QUOTA_ANNOTATIONS,
    "ElasticQuotaProfile": {keys.QUOTA_RESOURCE_KEYS: '["cpu","memory"]'},
    "Reservation": RESERVATION_ANNOTATIONS,
    "Device": {
        keys.GPU_PARTITIONS: '{"2":[{"minors":[0,1],"gpuLinkType":"NVLink","ringBusBandwidth":"200Gi",'
        '"allocationScore":1}]}'
    },
    "PodGroup": _GANG,
    "Workload": _GANG,
    "PodMigrationJob": {
        keys.EVICT_REASON: "hot",
        keys.EVICT_TRIGGER: "p",
        keys.JOB_CREATED_BY: "p",
        keys.PASSED_ARBITRATION: "true",
        keys.POD_ARBITRATING: "true",
        keys.GANG_SIZE: "2",
    },
    "ClusterColocationProfile": {keys.SKIP_UPDATE_RESOURCES: "true"},
    "MutatingWebhookConfiguration": {keys.WEBHOOK_TEMPLATE: _WEBHOOKS, keys.WEBHOOK_TEMPLATE_APPLIED: "0f1e"},
    "ValidatingWebhookConfiguration": {keys.WEBHOOK_TEMPLATE: _WEBHOOKS, keys.WEBHOOK_TEMPLATE_APPLIED: "0f1e"},
}
"""By the name of the kind: its annotations, with a sound value each."""
ONLY_WRITTEN: Final = {
    keys.API_APPROVED: "in our manifests",
    keys.HUAWEI_PREDICATE_TIME: "for a device plugin",
    keys.HUAWEI_NPU_CORE: "for a device plugin",
    keys.HUAWEI_ASCEND_310P: "for a device plugin",
    keys.CAMBRICON_ASSIGNED: "for a device plugin",
    keys.CAMBRICON_PROFILE: "for a device plugin",
    keys.METAX_GPU_DEVICES_ALLOCATED: "for a device plugin",
}
"""Annotations that no program reads, and what for they are written."""
LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": {
        labels.QOS_CLASS: "LSR",
        labels.PRIORITY: "9500",
        labels.PRIORITY_CLASS: "koord-batch",
        labels.CORE_SCHED_GROUP_ID: "a",
        labels.CORE_SCHED_POLICY: "pod",
        labels.EVICTION_ENABLED: "true",
        labels.GPU_ISOLATION_PROVIDER: "HAMi-core",
        labels.RESERVATION_IGNORED: "true",
        labels.PREEMPTION_POLICY: "Never",
        labels.IS_PRE_ALLOCATABLE: "true",
        labels.POD_GROUP: "broken",
        labels.DEPRECATED_POD_GROUP_NAME: "broken",
        labels.DEPRECATED_POD_GROUP_MIN_AVAILABLE: "2",
        labels.QUOTA_NAME: "broken",
        labels.QUOTA_PREEMPTIBLE: "false",
        labels.QUOTA_TREE_ID: "1",
        labels.POD_TEMPLATE_HASH: "7",
        "app": "web",
    },
    "Node": {
        labels.ENABLE_NUMA_RESERVATION: "true",
        labels.CPU_RECLAIM_RATIO: "0.65",
        labels.MEMORY_RECLAIM_RATIO: "0.65",
        labels.MID_STATIC_CPU_RESERVED_RATIO: "0.5",
        labels.MID_STATIC_MEMORY_RESERVED_RATIO: "0.5",
        labels.CPU_NORMALIZATION_ENABLED: "false",
        labels.NODE_CPU_BIND_POLICY: "FullPCPUsOnly",
        labels.NODE_NUMA_ALLOCATE_STRATEGY: "MostAllocated",
        labels.NODE_NUMA_TOPOLOGY_POLICY: "SingleNUMANode",
        labels.QUOTA_TREE_ID: "1",
        "topology.kubernetes.io/zone": "a",
    },
    "ElasticQuota": {
        labels.QUOTA_PARENT: "koordinator-root-quota",
        labels.QUOTA_IS_PARENT: "false",
        labels.QUOTA_ALLOW_LENT_RESOURCE: "true",
        labels.QUOTA_IS_ROOT: "false",
        labels.QUOTA_TREE_ID: "1",
        labels.QUOTA_IGNORE_DEFAULT_TREE: "true",
    },
    "Reservation": {labels.RESERVATION_ORDER: "1", labels.PRE_ALLOCATION_REQUIRED: "true"},
    "PodMigrationJob": {labels.EVICT_POLICY: "eviction", labels.GANG_MIGRATION: "a"},
    "Device": {labels.GPU_VENDOR: "nvidia", labels.GPU_MODEL: "A100", labels.GPU_PARTITION_POLICY: "Honor"},
}
_EXTRA: Final[Mapping[str, tuple[Document, ...]]] = {
    "Pod": (
        {
            "spec": {
                "schedulerName": "koord-scheduler",
                "priorityClassName": "koord-batch",
                "priority": 5500,
                "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", **_GPU}}}],
            },
            "status": {"phase": "Pending"},
        },
        {
            "spec": {"schedulerName": "koord-scheduler", "nodeName": "bad-0", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        },
    ),
    "Workload": ({"spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]}},),
    "StatefulSet": ({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}},),
    "CloneSet": ({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}},),
    "DrainNode": (
        {
            "spec": {
                "nodeName": "bad-1",
                "confirmState": "Confirmed",
                "ttl": "1h",
                "drainNodePolicy": {"mode": "Evict"},
            },
            "status": {"phase": "Pending"},
        },
    ),
    "DrainNodeGroup": ({"spec": {"nodeSelector": {"matchLabels": {"a": "b"}}, "ttl": "1h"}},),
    "LimitRange": (
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1m"}, "default": {}}]}},
    ),
}


def sound(kind: Kind[Any], random: Random, name: str, namespace: str) -> Document:
    """One of the sound objects of a kind, with some of its annotations and labels."""
    document: Document = copied(random.choice(examples_of(kind)))
    given = document.setdefault("metadata", {})
    metadata: dict[str, Any] = {
        **{key: value for key, value in given.items() if key not in ("uid", "resourceVersion", "generation")},
        "name": name,
    }
    metadata.pop("namespace", None)
    if namespace:
        metadata["namespace"] = namespace
    for field, table in (("annotations", ANNOTATIONS), ("labels", LABELS)):
        offered = table.get(kind.name, {})
        chosen = random.sample(sorted(offered), min(len(offered), random.randrange(_MOST_ANNOTATIONS + 1)))
        metadata[field] = {**(metadata.get(field) or {}), **{key: offered[key] for key in chosen}}
    body = {field: value for field, value in document.items() if field not in ("apiVersion", "kind")}
    return {**body, "metadata": metadata}


@cache
def examples_of(kind: Kind[Any]) -> tuple[Document, ...]:
    found = [*_EXTRA.get(kind.name, ())]
    found += [each for each in _written() if (each["apiVersion"], each["kind"]) == (kind.api_version, kind.name)]
    found += [load_sample(sample) for sample, custom in CUSTOM_KINDS.items() if _same(custom, kind)]
    assert found, f"there is no sound object of {kind.name}"
    return tuple(found)


def _same(one: Kind[Any], other: Kind[Any]) -> bool:
    """Programs read a kind into types of their own."""
    return (one.group, one.version, one.plural) == (other.group, other.version, other.plural)


@cache
def _written() -> tuple[Document, ...]:
    return tuple(yaml.safe_load_all(_KUBERNETES.read_text()))
