"""Annotation keys of the wire contract, each written once. The JSON in them is typed where it is read."""

from __future__ import annotations

from typing import Final

# Pod quality of service.
CPU_BURST: Final = "koordinator.sh/cpuBurst"
MEMORY_QOS: Final = "koordinator.sh/memoryQOS"
CPU_QOS: Final = "koordinator.sh/cpuQOS"
BLKIO_QOS: Final = "koordinator.sh/blkioQOS"
NETWORK_QOS: Final = "koordinator.sh/networkQOS"
EVICTION_POLICY: Final = "koordinator.sh/eviction-policy"
EVICTION_PRIORITY: Final = "koordinator.sh/eviction-priority"
OOM_SCORE_ADJ: Final = "koordinator.sh/oom-score-adj"
OOM_SCORE_ADJ_SPEC: Final = "koordinator.sh/oom-score-adj-spec"
RESCTRL: Final = "node.koordinator.sh/resctrl"
"""Set on pods, in spite of its prefix."""

# Pod resources.
EXTENDED_RESOURCE_SPEC: Final = "node.koordinator.sh/extended-resource-spec"
REPLACE_RESOURCES: Final = "pod.koordinator.sh/replace-resources"
SKIP_UPDATE_RESOURCES: Final = "config.koordinator.sh/skip-update-resources"

# Nodes.
NODE_RESERVATION: Final = "node.koordinator.sh/reservation"
SYSTEM_QOS_RESOURCE: Final = "node.koordinator.sh/system-qos-resource"
NETWORK_BANDWIDTH: Final = "node.koordinator.sh/network-bandwidth"
COLOCATION_STRATEGY: Final = "node.koordinator.sh/colocation-strategy"
CPU_NORMALIZATION_RATIO: Final = "node.koordinator.sh/cpu-normalization-ratio"
RESOURCE_AMPLIFICATION_RATIO: Final = "node.koordinator.sh/resource-amplification-ratio"
RAW_ALLOCATABLE: Final = "node.koordinator.sh/raw-allocatable"
ORIGIN_EXTENDED_ALLOCATABLE: Final = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTY_ALLOCATIONS: Final = "node.koordinator.sh/thirdPartyAllocations"
ADAPTIVE_SLO: Final = "node.koordinator.sh/adaptive-slo"
USAGE_THRESHOLDS: Final = "scheduling.koordinator.sh/usage-thresholds"
HAMI_MUTEX_LOCK: Final = "hami.io/mutex.lock"
CAMBRICON_LOCK: Final = "cambricon.com/dsmlu.lock"

# NodeResourceTopology objects.
CPU_BASIC_INFO: Final = "node.koordinator.sh/cpu-basic-info"
CPU_TOPOLOGY: Final = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS: Final = "node.koordinator.sh/pod-cpu-allocs"
CPU_SHARED_POOLS: Final = "node.koordinator.sh/cpu-shared-pools"
BE_CPU_SHARED_POOLS: Final = "node.koordinator.sh/be-cpu-shared-pools"
KOORDLET_CONFIGURATION: Final = "node.koordinator.sh/koordlet-configuration"
"""Which version of koordlet's ConfigMap is in force, and since when; ours."""
KUBELET_CPU_MANAGER_POLICY: Final = "kubelet.koordinator.sh/cpu-manager-policy"

# Scheduling of pods.
RESOURCE_SPEC: Final = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
NUMA_TOPOLOGY_SPEC: Final = "scheduling.koordinator.sh/numa-topology-spec"
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE: Final = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC: Final = "scheduling.koordinator.sh/gpu-partition-spec"
RESERVATION_AFFINITY: Final = "scheduling.koordinator.sh/reservation-affinity"
RESERVATION_ALLOCATED: Final = "scheduling.koordinator.sh/reservation-allocated"
EXACT_MATCH_RESERVATION: Final = "scheduling.koordinator.sh/exact-match-reservation"
SCHEDULING_HINT: Final = "internal.scheduling.koordinator.sh/scheduling-hint"
DEPRECATED_SCHEDULING_HINT: Final = "scheduling.koordinator.sh/scheduling-hint"
ORIGINAL_SCHEDULER_NAME: Final = "internal.scheduling.koordinator.sh/original-scheduler-name"
BIND_GANG_GROUP_ID: Final = "internal.scheduling.koordinator.sh/bind-gang-group-id"
DEPRECATED_BIND_GANG_GROUP_ID: Final = "scheduling.koordinator.sh/bind-gang-group-id"
BIND_GANG_MEMBER_COUNT: Final = "internal.scheduling.koordinator.sh/bind-gang-member-count"
DEPRECATED_BIND_GANG_MEMBER_COUNT: Final = "scheduling.koordinator.sh/bind-gang-member-count"
BIND_GANG_KEYS: Final = (
    BIND_GANG_GROUP_ID,
    BIND_GANG_MEMBER_COUNT,
    DEPRECATED_BIND_GANG_GROUP_ID,
    DEPRECATED_BIND_GANG_MEMBER_COUNT,
)
"""The group and the count, twice."""
LOAD_ESTIMATED_SCALING_FACTORS: Final = "scheduling.koordinator.sh/load-estimated-scaling-factors"
LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
)
LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: Final = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
NETWORK_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
PRE_ALLOCATABLE_PRIORITY: Final = "pod.koordinator.sh/pre-allocatable-priority"

# What device plugins of other projects read from a placed pod; the spelling ASSIGHED is theirs.
BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
HUAWEI_PREDICATE_TIME: Final = "predicate-time"
HUAWEI_NPU_CORE: Final = "huawei.com/npu-core"
HUAWEI_ASCEND_310P: Final = "huawei.com/Ascend310P"
CAMBRICON_ASSIGNED: Final = "CAMBRICON_DSMLU_ASSIGHED"
CAMBRICON_PROFILE: Final = "CAMBRICON_DSMLU_PROFILE"
METAX_GPU_DEVICES_ALLOCATED: Final = "metax-tech.com/gpu-devices-allocated"

# Gangs.
GANG_NAME: Final = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
GANG_TOTAL_NUMBER: Final = "gang.scheduling.koordinator.sh/total-number"
GANG_MODE: Final = "gang.scheduling.koordinator.sh/mode"
GANG_MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
GANG_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
GANG_WAITING_TIME: Final = "gang.scheduling.koordinator.sh/waiting-time"
GANG_TIMEOUT: Final = "gang.scheduling.koordinator.sh/timeout"
GANG_GROUPS: Final = "gang.scheduling.koordinator.sh/groups"
GANG_NETWORK_TOPOLOGY_SPEC: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
GANG_NETWORK_TOPOLOGY_INDEX: Final = "gang.scheduling.koordinator.sh/network-topology-index"

# Quotas.
QUOTA_SHARED_WEIGHT: Final = "quota.scheduling.koordinator.sh/shared-weight"
QUOTA_NAMESPACES: Final = "quota.scheduling.koordinator.sh/namespaces"
QUOTA_TOTAL_RESOURCE: Final = "quota.scheduling.koordinator.sh/total-resource"
QUOTA_UNSCHEDULABLE_RESOURCE: Final = "quota.scheduling.koordinator.sh/unschedulable-resource"
QUOTA_RESOURCE_KEYS: Final = "quota.scheduling.koordinator.sh/resource-keys"
QUOTA_RUNTIME: Final = "quota.scheduling.koordinator.sh/runtime"
QUOTA_REQUEST: Final = "quota.scheduling.koordinator.sh/request"
QUOTA_CHILD_REQUEST: Final = "quota.scheduling.koordinator.sh/child-request"
QUOTA_GUARANTEED: Final = "quota.scheduling.koordinator.sh/guaranteed"
QUOTA_ALLOCATED: Final = "quota.scheduling.koordinator.sh/allocated"
QUOTA_NON_PREEMPTIBLE_REQUEST: Final = "quota.scheduling.koordinator.sh/non-preemptible-request"
QUOTA_NON_PREEMPTIBLE_USED: Final = "quota.scheduling.koordinator.sh/non-preemptible-used"
QUOTA_ADMISSION: Final = "quota.scheduling.koordinator.sh/admission"
QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS: Final = "quota.scheduling.koordinator.sh/max-strict-check-resource-keys"

# Reservations and devices.
RESERVATION_RESTRICTED_OPTIONS: Final = "scheduling.koordinator.sh/reservation-restricted-options"
RESERVATION_RESIZE_ALLOCATABLE: Final = "scheduling.koordinator.sh/reservation-resize-allocatable"
RESERVATION_OWNERS: Final = "scheduling.koordinator.sh/reservation-owners"
RESERVATION_CURRENT_OWNER: Final = "scheduling.koordinator.sh/reservation-current-owner"
RESERVE_POD: Final = "scheduling.koordinator.sh/reserve-pod"
RESERVATION_NAME: Final = "scheduling.koordinator.sh/reservation-name"
RESERVATION_NODE: Final = "scheduling.koordinator.sh/reservation-node"
IS_PRE_ALLOCATION: Final = "scheduling.koordinator.sh/is-pre-allocation"
GPU_PARTITIONS: Final = "scheduling.koordinator.sh/gpu-partitions"

# Descheduling.
EVICTION_COST: Final = "scheduling.koordinator.sh/eviction-cost"
SOFT_EVICTION: Final = "scheduling.koordinator.sh/soft-eviction"
EVICT_REASON: Final = "koordinator.sh/evict-reason"
EVICT_TRIGGER: Final = "koordinator.sh/evict-trigger"
JOB_CREATED_BY: Final = "koordinator.sh/job-created-by"
PASSED_ARBITRATION: Final = "descheduler.koordinator.sh/passed-arbitration"
POD_ARBITRATING: Final = "descheduler.koordinator.sh/pod-arbitrating"
GANG_SIZE: Final = "descheduler.koordinator.sh/gang-size"
"""Of a PodMigrationJob: how many jobs move its gang; they have the same label GANG_MIGRATION."""
EVICTABLE: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

# Custom resource definitions.
API_APPROVED: Final = "api-approved.kubernetes.io"

# Webhook configurations.
WEBHOOK_TEMPLATE: Final = "template"
"""A JSON list of webhooks: koord-manager makes the entries of the configuration from it."""
WEBHOOK_TEMPLATE_APPLIED: Final = "koordinator.sh/applied-template"
"""The digest of the template that the entries were last made from: what differs from it since then, somebody wants."""

# Pods that no API server has created.
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
CONFIG_SOURCE: Final = "kubernetes.io/config.source"
"""Where kubelet has a pod from; anything but ``api`` is a static pod."""
