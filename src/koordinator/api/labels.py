"""Label keys of the wire contract, each written once."""

from __future__ import annotations

from typing import Final

# Pod quality of service and priority.
QOS_CLASS: Final = "koordinator.sh/qosClass"
PRIORITY: Final = "koordinator.sh/priority"
"""Sub-priority within the priority class: an int32 as text."""
PRIORITY_CLASS: Final = "koordinator.sh/priority-class"
CORE_SCHED_GROUP_ID: Final = "koordinator.sh/core-sched-group-id"
CORE_SCHED_POLICY: Final = "koordinator.sh/core-sched-policy"
EVICTION_ENABLED: Final = "koordinator.sh/eviction-enabled"

# Admission of pods.
CONTROLLER_MANAGED: Final = "config.koordinator.sh/controller-managed"
MUTATING_UPDATE: Final = "pod.koordinator.sh/mutating-update"
SKIP_ENHANCED_VALIDATION: Final = "pod.koordinator.sh/skip-enhanced-validation"
BINDING_ADMISSION_BYPASS: Final = "koordinator.sh/binding-admission-bypass"
SKIP_HOOK_SERVER: Final = "runtimeproxy.koordinator.sh/skip-hookserver"
CONFIG_MAP_TYPE: Final = "koordinator.sh/configmap-type"

# Nodes.
ENABLE_NUMA_RESERVATION: Final = "node.koordinator.sh/enable-numa-reservation"
CPU_RECLAIM_RATIO: Final = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_RECLAIM_RATIO: Final = "node.koordinator.sh/memory-reclaim-ratio"
MID_STATIC_CPU_RESERVED_RATIO: Final = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
MID_STATIC_MEMORY_RESERVED_RATIO: Final = "node.koordinator.sh/mid-static-memory-reserved-ratio"
CPU_NORMALIZATION_ENABLED: Final = "node.koordinator.sh/cpu-normalization-enabled"
NODE_CPU_BIND_POLICY: Final = "node.koordinator.sh/cpu-bind-policy"
NODE_NUMA_ALLOCATE_STRATEGY: Final = "node.koordinator.sh/numa-allocate-strategy"
NODE_NUMA_TOPOLOGY_POLICY: Final = "node.koordinator.sh/numa-topology-policy"
GPU_VENDOR: Final = "node.koordinator.sh/gpu-vendor"
GPU_MODEL: Final = "node.koordinator.sh/gpu-model"
GPU_DRIVER_VERSION: Final = "node.koordinator.sh/gpu-driver-version"
GPU_PARTITION_POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
SECONDARY_DEVICE_WELL_PLANNED: Final = "node.koordinator.sh/secondary-device-well-planned"
DEPRECATED_GPU_DRIVER: Final = "kubernetes.io/gpu-driver"
DEPRECATED_GPU_MODEL: Final = "kubernetes.io/gpu-model"

# Scheduling of pods.
GPU_ISOLATION_PROVIDER: Final = "koordinator.sh/gpu-isolation-provider"
HAMI_VGPU_NODE: Final = "hami.io/vgpu-node"
RESERVATION_IGNORED: Final = "scheduling.koordinator.sh/reservation-ignored"
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
SCHEDULER_NAME: Final = "scheduling.koordinator.sh/scheduler-name"
QUESTIONED_OBJECT_KEY: Final = "scheduling.koordinator.sh/questioned-object-key"
TOPOLOGY_KEY_TO_EXPLAIN: Final = "scheduling.koordinator.sh/topology-key-to-explain"
OPERATING_MODE: Final = "scheduling.koordinator.sh/operating-mode"
IS_PRE_ALLOCATABLE: Final = "pod.koordinator.sh/is-pre-allocatable"

# Pods of workloads.
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""Kubernetes': which of the ReplicaSets of a Deployment a pod is of. The name of the ReplicaSet ends with it."""
ROLLOUT_TEMPLATE_HASH: Final = "rollouts-pod-template-hash"
"""The same of a Rollout of Argo."""

# Gangs.
POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
DEPRECATED_POD_GROUP_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
DEPRECATED_POD_GROUP_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

# Quotas.
QUOTA_NAME: Final = "quota.scheduling.koordinator.sh/name"
QUOTA_PREEMPTIBLE: Final = "quota.scheduling.koordinator.sh/preemptible"
QUOTA_IS_PARENT: Final = "quota.scheduling.koordinator.sh/is-parent"
QUOTA_PARENT: Final = "quota.scheduling.koordinator.sh/parent"
QUOTA_ALLOW_LENT_RESOURCE: Final = "quota.scheduling.koordinator.sh/allow-lent-resource"
QUOTA_IS_ROOT: Final = "quota.scheduling.koordinator.sh/is-root"
QUOTA_TREE_ID: Final = "quota.scheduling.koordinator.sh/tree-id"
QUOTA_IGNORE_DEFAULT_TREE: Final = "quota.scheduling.koordinator.sh/ignore-default-tree"
QUOTA_ALLOW_FORCE_UPDATE: Final = "quota.scheduling.koordinator.sh/allow-force-update"
QUOTA_PROFILE: Final = "quota.scheduling.koordinator.sh/profile"

# Reservations and migration jobs.
RESERVATION_ORDER: Final = "scheduling.koordinator.sh/reservation-order"
PRE_ALLOCATION_REQUIRED: Final = "scheduling.koordinator.sh/pre-allocation-required"
EVICT_POLICY: Final = "koordinator.sh/evict-policy"

# Not ours, but part of the contract.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CREATED_BY: Final = "app.kubernetes.io/created-by"

# Migration of gangs.
GANG_MIGRATION: Final = "descheduler.koordinator.sh/gang-migration"
"""Of a PodMigrationJob: what it shares with the jobs of the other members of its pod's gang."""
