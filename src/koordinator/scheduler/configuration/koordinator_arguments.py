"""Arguments of Koordinator's plugins, with the original's defaults."""

from __future__ import annotations

import msgspec

from koordinator.api.annotations import PRE_ALLOCATABLE_PRIORITY
from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.installation import NAMESPACE
from koordinator.api.labels import IS_PRE_ALLOCATABLE
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, RDMA
from koordinator.scheduler.configuration.arguments import Arguments, ResourceSpec

_UNLIMITED = "1844674407370955161"
"""A fifth of the largest 64-bit integer, so that sums of quotas do not overflow."""


class AllocationStrategy(Strict):
    """Whether nodes or NUMA nodes with more or with less allocated resources are preferred."""

    type: str = "LeastAllocated"
    resources: list[ResourceSpec] = []


def _over(*names: str) -> AllocationStrategy:
    return AllocationStrategy(resources=[ResourceSpec(name=name) for name in names])


class NodeNUMAResourceArgs(Arguments):
    default_cpu_bind_policy: str = msgspec.field(name="defaultCPUBindPolicy", default="FullPCPUs")
    scoring_strategy: AllocationStrategy = _over("cpu", "memory")
    numa_scoring_strategy: AllocationStrategy = _over("cpu", "memory")


class GPUSharedResourceTemplatesConfig(Strict):
    """An empty one stays empty: the defaults are those of the whole."""

    config_map_namespace: str = ""
    config_map_name: str = ""
    matched_resources: list[str] = []


class GPUShareUnsupportedModel(Strict):
    vendor: str
    model: str


class DeviceShareArgs(Arguments):
    allocator: str = ""
    """Deprecated by the original; accepted and ignored."""
    scoring_strategy: AllocationStrategy = _over(GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, FPGA)
    disable_device_numa_topology_alignment: bool = msgspec.field(
        name="disableDeviceNUMATopologyAlignment", default=False
    )
    gpu_shared_resource_templates_config: GPUSharedResourceTemplatesConfig = GPUSharedResourceTemplatesConfig(
        config_map_namespace=NAMESPACE,
        config_map_name="gpu-shared-resource-templates",
        matched_resources=[HUAWEI_NPU_CORE],
    )
    gpu_share_unsupported_models: list[GPUShareUnsupportedModel] = []


class PreAllocationConfig(Strict):
    enable_cluster_mode: bool = False
    cluster_label_key: str = IS_PRE_ALLOCATABLE
    cluster_priority_annotation_key: str = PRE_ALLOCATABLE_PRIORITY
    prefer_no_pre_allocated_pods: bool = False


class ReservationSelectorIndex(Strict):
    enabled: bool = False
    key_prefixes: list[str] = []
    keys: list[str] = []


class ReservationArgs(Arguments):
    enable_preemption: bool = False
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    controller_workers: int = 1
    gc_duration_seconds: int = 86_400
    gc_interval_seconds: int = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: int = 60
    pre_allocation_config: PreAllocationConfig | None = None
    ignored_resources: list[str] = []
    ignored_resource_groups: list[str] = []
    reservation_selector_index: ReservationSelectorIndex = ReservationSelectorIndex()


class HookPlugin(Strict):
    key: str = ""
    factory_key: str = ""
    factory_args: str = ""


def _unlimited() -> ResourceList:
    return {"cpu": Quantity.parse(_UNLIMITED), "memory": Quantity.parse(_UNLIMITED)}


class ElasticQuotaArgs(Arguments):
    delay_evict_time: GoDuration = GoDuration(minutes=2)
    revoke_pod_interval: GoDuration = GoDuration(seconds=1)
    default_quota_group_max: ResourceList = msgspec.field(default_factory=_unlimited)
    system_quota_group_max: ResourceList = msgspec.field(default_factory=_unlimited)
    quota_group_namespace: str = NAMESPACE
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False
    quota_snapshot_update_interval: GoDuration = GoDuration(minutes=2)
    hook_plugins: list[HookPlugin] = []


class CoschedulingArgs(Arguments):
    default_timeout: GoDuration = GoDuration(minutes=10)
    controller_workers: int = 1
    skip_check_schedule_cycle: bool = False
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: str = "once-satisfied"


class ResourceStrategy(Strict):
    type: str
    weight: int


class NodeResourcesFitPlusArgs(Arguments):
    resources: dict[str, ResourceStrategy] = {}


class ScarceResourceAvoidanceArgs(Arguments):
    resources: list[str] = []


class SchedulingHintArgs(Arguments):
    max_hint_nodes: int = 100
