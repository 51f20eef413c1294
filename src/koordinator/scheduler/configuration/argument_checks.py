"""Defaults of arguments that depend on other fields, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from koordinator.api.nodemetric import AGGREGATIONS
from koordinator.api.pod import NodeSelectorRequirement, NodeSelectorTerm
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.arguments import (
    AggregatedUsage,
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_NAME: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_REQUESTS: Final = "requests."

QUALIFIED_NAME: Final = "a name of letters, digits, '-', '_' and '.', with at most a DNS subdomain and '/' before it"


def is_qualified_name(text: str) -> bool:
    """Whether the text can be a label key or a resource name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def is_extended_resource(name: str) -> bool:
    """Whether the name is that of a resource which Kubernetes itself does not define."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    return is_qualified_name(_REQUESTS + name)


_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WEIGHTS: Final = {"cpu": 1, "memory": 1}
_THRESHOLDS: Final = {"cpu": 65, "memory": 95}
_FACTORS: Final = {"cpu": 85, "memory": 70}


def complete_load_aware(args: LoadAwareSchedulingArgs, path: str) -> LoadAwareSchedulingArgs:
    """Fill in and check LoadAwareSchedulingArgs (Koordinator, SetDefaults and Validate of the same name)."""
    weights = args.resource_weights or ({} if args.dominant_resource_weight else _WEIGHTS)
    args = replace(
        args,
        resource_weights=weights,
        usage_thresholds=args.usage_thresholds or _THRESHOLDS,
        estimated_scaling_factors={**_FACTORS, **args.estimated_scaling_factors},
    )
    check_range(args.node_metric_expiration_seconds, f"{path}.nodeMetricExpirationSeconds", 1)
    _check_values(args.resource_weights, f"{path}.resourceWeights", 1, 100)
    check_range(args.dominant_resource_weight, f"{path}.dominantResourceWeight", 0, 100)
    _check_values(args.usage_thresholds, f"{path}.usageThresholds", 0, 100)
    _check_values(args.prod_usage_thresholds, f"{path}.prodUsageThresholds", 0, 100)
    _check_values(args.estimated_scaling_factors, f"{path}.estimatedScalingFactors", 1, 100)
    for name in args.resource_weights:
        if name not in args.estimated_scaling_factors:
            allowed = "every weighted resource needs one"
            raise ConfigurationError(f"{path}.estimatedScalingFactors[{name}]", None, allowed)
    if args.aggregated is not None:
        _check_aggregated(args.aggregated, f"{path}.aggregated")
    return args


def check_fit(args: NodeResourcesFitArgs, path: str) -> NodeResourcesFitArgs:
    """Fill in and check NodeResourcesFitArgs as upstream does: a weight of 0 is 1, no resources are cpu and memory."""
    strategy = args.scoring_strategy
    resources = _with_weights(strategy.resources) or NodeResourcesFitArgs().scoring_strategy.resources
    args = replace(args, scoring_strategy=replace(strategy, resources=resources))
    for index, name in enumerate(args.ignored_resources):
        if not is_qualified_name(name):
            raise ConfigurationError(f"{path}.ignoredResources[{index}]", name, QUALIFIED_NAME)
    for index, name in enumerate(args.ignored_resource_groups):
        if "/" in name or not is_qualified_name(name):
            raise ConfigurationError(f"{path}.ignoredResourceGroups[{index}]", name, "a name without a slash")
    _check_strategy(args.scoring_strategy, f"{path}.scoringStrategy")
    return args


def check_balanced(args: NodeResourcesBalancedAllocationArgs, path: str) -> NodeResourcesBalancedAllocationArgs:
    """Fill in and check NodeResourcesBalancedAllocationArgs: the plugin ignores weights, which must be 1."""
    resources = _with_weights(args.resources) or NodeResourcesBalancedAllocationArgs().resources
    args = replace(args, resources=resources)
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        if resource.weight != 1:
            raise ConfigurationError(f"{path}.resources[{index}].weight", resource.weight, "1")
        if resource.name in seen:
            raise ConfigurationError(f"{path}.resources[{index}].name", resource.name, "each resource once")
        seen.add(resource.name)
    return args


def check_added_affinity(args: NodeAffinityArgs, path: str) -> NodeAffinityArgs:
    """Check NodeAffinityArgs: a requirement that cannot be met would keep every pod from every node."""
    if args.added_affinity is None:
        return args
    required = args.added_affinity.required_during_scheduling_ignored_during_execution
    preferred = args.added_affinity.preferred_during_scheduling_ignored_during_execution
    where = f"{path}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(required.node_selector_terms if required else []):
        _check_term(term, f"{where}.nodeSelectorTerms[{index}]")
    where = f"{path}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(preferred):
        _check_term(weighted.preference, f"{where}[{index}].preference")
    return args


def check_weights(resources: Sequence[ResourceSpec], path: str) -> None:
    """Weights of resources are 1 to 100."""
    for index, resource in enumerate(resources):
        check_range(resource.weight, f"{path}[{index}].weight", 1, 100)


def check_range(value: int, path: str, least: int, most: int | None = None) -> None:
    """Raises ConfigurationError for a value below ``least`` or above ``most``."""
    if value < least or (most is not None and value > most):
        raise ConfigurationError(path, value, f"{least} or more" if most is None else f"{least} to {most}")


def check_candidate_nodes(percentage: int, absolute: int, path: str, *, is_used: bool = True) -> None:
    """Raises ConfigurationError for invalid numbers of candidate nodes for preemption. ``is_used``: at least one node
    must be allowed."""
    check_range(percentage, f"{path}.minCandidateNodesPercentage", 0, 100)
    check_range(absolute, f"{path}.minCandidateNodesAbsolute", 0)
    if is_used and percentage == absolute == 0:
        allowed = "more than 0 where minCandidateNodesAbsolute is 0"
        raise ConfigurationError(f"{path}.minCandidateNodesPercentage", percentage, allowed)


def _with_weights(resources: Sequence[ResourceSpec]) -> list[ResourceSpec]:
    return [replace(resource, weight=resource.weight or 1) for resource in resources]


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    for index, requirement in enumerate(term.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        if not is_qualified_name(requirement.key):
            raise ConfigurationError(f"{where}.key", requirement.key, QUALIFIED_NAME)
        _check_requirement(requirement, where)
    for index, requirement in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
            raise ConfigurationError(where, requirement, "the operator In or NotIn with one value")


def _check_requirement(requirement: NodeSelectorRequirement, path: str) -> None:
    operator, values = requirement.operator, list(requirement.values)
    if operator not in _OPERATORS:
        raise ConfigurationError(f"{path}.operator", operator, f"one of {', '.join(_OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        raise ConfigurationError(f"{path}.values", values, f"at least one for {operator}")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ConfigurationError(f"{path}.values", values, f"none for {operator}")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        raise ConfigurationError(f"{path}.values", values, f"one integer for {operator}")


def _check_strategy(strategy: ScoringStrategy, path: str) -> None:
    if strategy.type not in _STRATEGIES:
        raise ConfigurationError(f"{path}.type", strategy.type, f"one of {', '.join(_STRATEGIES)}")
    check_weights(strategy.resources, f"{path}.resources")
    ratio = strategy.requested_to_capacity_ratio
    if ratio is not None or strategy.type == "RequestedToCapacityRatio":
        _check_shape(ratio.shape if ratio else [], f"{path}.requestedToCapacityRatio.shape")


def _check_shape(shape: Sequence[UtilizationShapePoint], path: str) -> None:
    if not shape:
        raise ConfigurationError(path, shape, "at least one point")
    for index, point in enumerate(shape):
        check_range(point.utilization, f"{path}[{index}].utilization", 0, 100)
        check_range(point.score, f"{path}[{index}].score", 0, 10)
        if index and point.utilization <= shape[index - 1].utilization:
            allowed = "more than that of the point before"
            raise ConfigurationError(f"{path}[{index}].utilization", point.utilization, allowed)


def _check_aggregated(aggregated: AggregatedUsage, path: str) -> None:
    _check_values(aggregated.usage_thresholds, f"{path}.usageThresholds", 0, 100)
    for field, aggregation, window in (
        ("usage", aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        ("score", aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
    ):
        if aggregation and aggregation not in AGGREGATIONS:
            raise ConfigurationError(f"{path}.{field}AggregationType", aggregation, f"one of {', '.join(AGGREGATIONS)}")
        if window < timedelta():
            raise ConfigurationError(f"{path}.{field}AggregatedDuration", str(window), "0s or more")


def _check_values(values: Mapping[str, int], path: str, least: int, most: int) -> None:
    for name, value in values.items():
        check_range(value, f"{path}[{name}]", least, most)
