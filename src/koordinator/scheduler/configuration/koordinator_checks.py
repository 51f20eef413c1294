"""Validation of the arguments of Koordinator's plugins, and defaults of empty values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from koordinator.api.quantity import Quantity
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.argument_checks import (
    check_candidate_nodes,
    check_range,
    check_weights,
    is_extended_resource,
)
from koordinator.scheduler.configuration.koordinator_arguments import (
    AllocationStrategy,
    CoschedulingArgs,
    DeviceShareArgs,
    ElasticQuotaArgs,
    NodeNUMAResourceArgs,
    NodeResourcesFitPlusArgs,
    PreAllocationConfig,
    ReservationArgs,
    SchedulingHintArgs,
)

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated")
_BIND_POLICIES: Final = ("", "FullPCPUs", "SpreadByPCPUs")
_NOTHING: Final = Quantity.parse("0")


def check_numa(args: NodeNUMAResourceArgs, path: str) -> NodeNUMAResourceArgs:
    """Check NodeNUMAResourceArgs."""
    _check_one_of(args.default_cpu_bind_policy, f"{path}.defaultCPUBindPolicy", _BIND_POLICIES)
    _check_strategy(args.scoring_strategy, f"{path}.scoringStrategy", _STRATEGIES)
    _check_strategy(args.numa_scoring_strategy, f"{path}.numaScoringStrategy", _STRATEGIES)
    return args


def check_device_share(args: DeviceShareArgs, path: str) -> DeviceShareArgs:
    """Check DeviceShareArgs."""
    _check_strategy(args.scoring_strategy, f"{path}.scoringStrategy", _STRATEGIES)
    return args


def check_fit_plus(args: NodeResourcesFitPlusArgs, path: str) -> NodeResourcesFitPlusArgs:
    """Check NodeResourcesFitPlusArgs, whose errors the original finds only while it scores."""
    for name, strategy in args.resources.items():
        _check_one_of(strategy.type, f"{path}.resources[{name}].type", _STRATEGIES)
        check_range(strategy.weight, f"{path}.resources[{name}].weight", 0)
    return args


def check_scheduling_hint(args: SchedulingHintArgs, path: str) -> SchedulingHintArgs:
    """Check SchedulingHintArgs."""
    check_range(args.max_hint_nodes, f"{path}.maxHintNodes", 1)
    return args


def check_coscheduling(args: CoschedulingArgs, path: str) -> CoschedulingArgs:
    """Check CoschedulingArgs."""
    _check_duration(args.default_timeout, f"{path}.defaultTimeout")
    check_range(args.controller_workers, f"{path}.controllerWorkers", 1)
    return args


def complete_reservation(args: ReservationArgs, path: str) -> ReservationArgs:
    """Fill in and check ReservationArgs: a period of 0 or an empty key stands for the default."""
    default = ReservationArgs()
    args = replace(
        args,
        gc_duration_seconds=args.gc_duration_seconds or default.gc_duration_seconds,
        gc_interval_seconds=args.gc_interval_seconds or default.gc_interval_seconds,
        resync_interval_seconds=args.resync_interval_seconds or default.resync_interval_seconds,
        pre_allocation_config=args.pre_allocation_config and _complete_pre_allocation(args.pre_allocation_config),
    )
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


def _complete_pre_allocation(given: PreAllocationConfig) -> PreAllocationConfig:
    default = PreAllocationConfig()
    return replace(
        given,
        cluster_label_key=given.cluster_label_key or default.cluster_label_key,
        cluster_priority_annotation_key=given.cluster_priority_annotation_key
        or default.cluster_priority_annotation_key,
    )


def complete_elastic_quota(args: ElasticQuotaArgs, path: str) -> ElasticQuotaArgs:
    """Fill in and check ElasticQuotaArgs: an empty limit or namespace stands for the default."""
    default = ElasticQuotaArgs()
    args = replace(
        args,
        default_quota_group_max=args.default_quota_group_max or default.default_quota_group_max,
        system_quota_group_max=args.system_quota_group_max or default.system_quota_group_max,
        quota_group_namespace=args.quota_group_namespace or default.quota_group_namespace,
    )
    _check_amounts(args.default_quota_group_max, f"{path}.defaultQuotaGroupMax")
    _check_amounts(args.system_quota_group_max, f"{path}.systemQuotaGroupMax")
    _check_duration(args.delay_evict_time, f"{path}.delayEvictTime")
    _check_duration(args.revoke_pod_interval, f"{path}.revokePodInterval")
    return args


def _check_strategy(strategy: AllocationStrategy, path: str, types: tuple[str, ...]) -> None:
    _check_one_of(strategy.type, f"{path}.type", types)
    check_weights(strategy.resources, f"{path}.resources")


def _check_one_of(value: str, path: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(path, value, f"one of {', '.join(each or repr(each) for each in allowed)}")


def _check_amounts(amounts: Mapping[str, Quantity], path: str) -> None:
    for name, amount in amounts.items():
        if amount < _NOTHING:
            raise ConfigurationError(f"{path}[{name}]", str(amount), "0 or more")


def _check_duration(duration: timedelta, path: str) -> None:
    if duration < timedelta():
        raise ConfigurationError(path, str(duration), "0s or more")
