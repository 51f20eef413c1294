"""Defaults that depend on other fields, and what arguments may not be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from koordinator.api.nodemetric import AGGREGATIONS
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.arguments import (
    AggregatedUsage,
    LoadAwareSchedulingArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
)

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_WEIGHTS: Final = {"cpu": 1, "memory": 1}
_THRESHOLDS: Final = {"cpu": 65, "memory": 95}
_FACTORS: Final = {"cpu": 85, "memory": 70}


def complete_load_aware(args: LoadAwareSchedulingArgs, path: str) -> LoadAwareSchedulingArgs:
    """Fill in and check LoadAwareSchedulingArgs (Koordinator, SetDefaults and Validate of the same name)."""
    weights = args.resource_weights or ({} if args.dominant_resource_weight else _WEIGHTS)
    args = msgspec.structs.replace(
        args,
        resource_weights=weights,
        usage_thresholds=args.usage_thresholds or _THRESHOLDS,
        estimated_scaling_factors={**_FACTORS, **args.estimated_scaling_factors},
    )
    if args.node_metric_expiration_seconds <= 0:
        raise ConfigurationError(
            f"{path}.nodeMetricExpirationSeconds", args.node_metric_expiration_seconds, "more than 0"
        )
    _check_range(args.resource_weights, f"{path}.resourceWeights", 1, 100)
    _check_range({"": args.dominant_resource_weight}, f"{path}.dominantResourceWeight", 0, 100)
    _check_range(args.usage_thresholds, f"{path}.usageThresholds", 0, 100)
    _check_range(args.prod_usage_thresholds, f"{path}.prodUsageThresholds", 0, 100)
    _check_range(args.estimated_scaling_factors, f"{path}.estimatedScalingFactors", 1, 100)
    for name in args.resource_weights:
        if name not in args.estimated_scaling_factors:
            allowed = "every weighted resource needs one"
            raise ConfigurationError(f"{path}.estimatedScalingFactors[{name}]", None, allowed)
    if args.aggregated is not None:
        _check_aggregated(args.aggregated, f"{path}.aggregated")
    return args


def check_fit(args: NodeResourcesFitArgs, path: str) -> NodeResourcesFitArgs:
    """Check NodeResourcesFitArgs as upstream does."""
    for index, name in enumerate(args.ignored_resource_groups):
        if "/" in name:
            raise ConfigurationError(f"{path}.ignoredResourceGroups[{index}]", name, "a group has no slash")
    _check_strategy(args.scoring_strategy, f"{path}.scoringStrategy")
    return args


def check_balanced(args: NodeResourcesBalancedAllocationArgs, path: str) -> NodeResourcesBalancedAllocationArgs:
    """Check NodeResourcesBalancedAllocationArgs: weights mean nothing to it and must be 1."""
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        if resource.weight != 1:
            raise ConfigurationError(f"{path}.resources[{index}].weight", resource.weight, "1")
        if resource.name in seen:
            raise ConfigurationError(f"{path}.resources[{index}].name", resource.name, "each resource once")
        seen.add(resource.name)
    return args


def _check_strategy(strategy: ScoringStrategy, path: str) -> None:
    if strategy.type not in _STRATEGIES:
        raise ConfigurationError(f"{path}.type", strategy.type, f"one of {', '.join(_STRATEGIES)}")
    _check_resources(strategy.resources, f"{path}.resources")
    if strategy.type != "RequestedToCapacityRatio":
        return
    shape = strategy.requested_to_capacity_ratio.shape if strategy.requested_to_capacity_ratio else []
    where = f"{path}.requestedToCapacityRatio.shape"
    if not shape:
        raise ConfigurationError(where, shape, "at least one point")
    for index, point in enumerate(shape):
        _check_range({"": point.utilization}, f"{where}[{index}].utilization", 0, 100)
        _check_range({"": point.score}, f"{where}[{index}].score", 0, 10)
        if index and point.utilization <= shape[index - 1].utilization:
            allowed = "more than that of the point before"
            raise ConfigurationError(f"{where}[{index}].utilization", point.utilization, allowed)


def _check_resources(resources: list[ResourceSpec], path: str) -> None:
    if not resources:
        raise ConfigurationError(path, resources, "at least one resource")
    for index, resource in enumerate(resources):
        _check_range({"": resource.weight}, f"{path}[{index}].weight", 1, 100)


def _check_aggregated(aggregated: AggregatedUsage, path: str) -> None:
    _check_range(aggregated.usage_thresholds, f"{path}.usageThresholds", 0, 100)
    for field, aggregation, window in (
        ("usage", aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        ("score", aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
    ):
        if aggregation and aggregation not in AGGREGATIONS:
            raise ConfigurationError(f"{path}.{field}AggregationType", aggregation, f"one of {', '.join(AGGREGATIONS)}")
        if window < timedelta():
            raise ConfigurationError(f"{path}.{field}AggregatedDuration", str(window), "0s or more")


def _check_range(values: Mapping[str, int], path: str, least: int, most: int) -> None:
    for name, value in values.items():
        if not least <= value <= most:
            raise ConfigurationError(f"{path}[{name}]" if name else path, value, f"{least} to {most}")
