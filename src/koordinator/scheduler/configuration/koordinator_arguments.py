"""Arguments of Koordinator's plugins, with the original's defaults: read, completed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations import PRE_ALLOCATABLE_PRIORITY
from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.installation import NAMESPACE
from koordinator.api.labels import IS_PRE_ALLOCATABLE
from koordinator.api.nodemetric import AGGREGATIONS
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, RDMA
from koordinator.base.errors import ConfigurationError
from koordinator.model.gang_declaration import GANG_POLICIES, MEMBERS
from koordinator.scheduler.configuration.upstream_arguments import (
    Arguments,
    ResourceSpec,
    check_candidate_nodes,
    check_duration,
    check_one_of,
    check_range,
    check_values,
    check_weights,
    is_extended_resource,
)

S = TypeVar("S", bound=Strict)

_UNLIMITED = "1844674407370955161"
"""A fifth of the largest 64-bit integer, so that sums of quotas do not overflow."""
_STRATEGIES: Final = ("LeastAllocated", "MostAllocated")
_NOTHING: Final = Quantity.parse("0")
_WEIGHTS: Final = {"cpu": 1, "memory": 1}
_THRESHOLDS: Final = {"cpu": 65, "memory": 95}
_FACTORS: Final = {"cpu": 85, "memory": 70}


class AggregatedUsage(Strict):
    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: GoDuration = GoDuration()
    score_aggregation_type: str = ""
    score_aggregated_duration: GoDuration = GoDuration()


class LoadAwareSchedulingArgs(Arguments):
    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: dict[str, int] = {}
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = ""
    estimated_scaling_factors: dict[str, int] = {}
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    aggregated: AggregatedUsage | None = None
    supported_resources: list[str] = []

    def completed(self, path: str) -> LoadAwareSchedulingArgs:
        """As SetDefaults and Validate of the same name in Koordinator."""
        weights = self.resource_weights or ({} if self.dominant_resource_weight else _WEIGHTS)
        args = replace(
            self,
            resource_weights=weights,
            usage_thresholds=self.usage_thresholds or _THRESHOLDS,
            estimated_scaling_factors={**_FACTORS, **self.estimated_scaling_factors},
        )
        check_range(args.node_metric_expiration_seconds, f"{path}.nodeMetricExpirationSeconds", 1)
        check_values(args.resource_weights, f"{path}.resourceWeights", 1, 100)
        check_range(args.dominant_resource_weight, f"{path}.dominantResourceWeight", 0, 100)
        check_values(args.usage_thresholds, f"{path}.usageThresholds", 0, 100)
        check_values(args.prod_usage_thresholds, f"{path}.prodUsageThresholds", 0, 100)
        check_values(args.estimated_scaling_factors, f"{path}.estimatedScalingFactors", 1, 100)
        for name in args.resource_weights:
            if name not in args.estimated_scaling_factors:
                allowed = "every weighted resource needs one"
                raise ConfigurationError(f"{path}.estimatedScalingFactors[{name}]", None, allowed)
        if args.aggregated is not None:
            _check_aggregated(args.aggregated, f"{path}.aggregated")
        return args


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

    def completed(self, path: str) -> NodeNUMAResourceArgs:
        check_one_of(self.default_cpu_bind_policy, f"{path}.defaultCPUBindPolicy", ("", "FullPCPUs", "SpreadByPCPUs"))
        _check_strategy(self.scoring_strategy, f"{path}.scoringStrategy")
        _check_strategy(self.numa_scoring_strategy, f"{path}.numaScoringStrategy")
        return self


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

    def completed(self, path: str) -> DeviceShareArgs:
        _check_strategy(self.scoring_strategy, f"{path}.scoringStrategy")
        return self


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

    def completed(self, path: str) -> ReservationArgs:
        """A period of 0 or an empty key stands for the default."""
        args = _completed(self, "gc_duration_seconds", "gc_interval_seconds", "resync_interval_seconds")
        if args.pre_allocation_config is not None:
            keys = "cluster_label_key", "cluster_priority_annotation_key"
            args = replace(args, pre_allocation_config=_completed(args.pre_allocation_config, *keys))
        percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
        check_candidate_nodes(percentage, absolute, path, is_used=args.enable_preemption)
        check_range(args.gc_duration_seconds, f"{path}.gcDurationSeconds", 0)
        check_range(args.gc_interval_seconds, f"{path}.gcIntervalSeconds", 0)
        check_range(args.resync_interval_seconds, f"{path}.resyncIntervalSeconds", 0)
        for index, name in enumerate(args.ignored_resources):
            if not is_extended_resource(name):
                allowed = "an extended resource such as example.com/gpu"
                raise ConfigurationError(f"{path}.ignoredResources[{index}]", name, allowed)
        for index, group in enumerate(args.ignored_resource_groups):
            if "/" in group or not is_extended_resource(f"{group}/x"):
                allowed = "a DNS subdomain other than kubernetes.io, without a slash"
                raise ConfigurationError(f"{path}.ignoredResourceGroups[{index}]", group, allowed)
        return args


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

    def completed(self, path: str) -> ElasticQuotaArgs:
        """An empty limit or namespace stands for the default."""
        args = _completed(self, "default_quota_group_max", "system_quota_group_max", "quota_group_namespace")
        _check_amounts(args.default_quota_group_max, f"{path}.defaultQuotaGroupMax")
        _check_amounts(args.system_quota_group_max, f"{path}.systemQuotaGroupMax")
        check_duration(args.delay_evict_time, f"{path}.delayEvictTime")
        check_duration(args.revoke_pod_interval, f"{path}.revokePodInterval")
        return args


class CoschedulingArgs(Arguments):
    default_timeout: GoDuration = GoDuration(minutes=10)
    controller_workers: int = 1
    skip_check_schedule_cycle: bool = False
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: str = "once-satisfied"
    gang_policy: str = MEMBERS
    """What leaves when a member of a gang is preempted; the original has no such argument."""

    def completed(self, path: str) -> CoschedulingArgs:
        check_one_of(self.gang_policy, f"{path}.gangPolicy", GANG_POLICIES)
        check_duration(self.default_timeout, f"{path}.defaultTimeout")
        check_range(self.controller_workers, f"{path}.controllerWorkers", 1)
        return self


class ResourceStrategy(Strict):
    type: str
    weight: int


class NodeResourcesFitPlusArgs(Arguments):
    resources: dict[str, ResourceStrategy] = {}

    def completed(self, path: str) -> NodeResourcesFitPlusArgs:
        """The original finds these errors only while it scores."""
        for name, strategy in self.resources.items():
            check_one_of(strategy.type, f"{path}.resources[{name}].type", _STRATEGIES)
            check_range(strategy.weight, f"{path}.resources[{name}].weight", 0)
        return self


class ScarceResourceAvoidanceArgs(Arguments):
    resources: list[str] = []


class SchedulingHintArgs(Arguments):
    max_hint_nodes: int = 100

    def completed(self, path: str) -> SchedulingHintArgs:
        check_range(self.max_hint_nodes, f"{path}.maxHintNodes", 1)
        return self


def _completed(given: S, *fields: str) -> S:
    """With the default for each of ``fields`` that is empty."""
    default = type(given)()
    return replace(given, **{name: getattr(given, name) or getattr(default, name) for name in fields})


def _check_strategy(strategy: AllocationStrategy, path: str) -> None:
    check_one_of(strategy.type, f"{path}.type", _STRATEGIES)
    check_weights(strategy.resources, f"{path}.resources")


def _check_amounts(amounts: Mapping[str, Quantity], path: str) -> None:
    for name, amount in amounts.items():
        if amount < _NOTHING:
            raise ConfigurationError(f"{path}[{name}]", str(amount), "0 or more")


def _check_aggregated(aggregated: AggregatedUsage, path: str) -> None:
    check_values(aggregated.usage_thresholds, f"{path}.usageThresholds", 0, 100)
    for field, aggregation, window in (
        ("usage", aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        ("score", aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
    ):
        if aggregation:
            check_one_of(aggregation, f"{path}.{field}AggregationType", AGGREGATIONS)
        check_duration(window, f"{path}.{field}AggregatedDuration")
