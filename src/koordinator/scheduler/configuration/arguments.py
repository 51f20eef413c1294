"""The arguments of implemented plugins, with the defaults of upstream and of Koordinator."""

from __future__ import annotations

import msgspec

from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.pod import NodeAffinity


class Arguments(Strict):
    """Base of all kinds of arguments; the type meta may be omitted, as in the original's examples."""

    api_version: str = ""
    kind: str = ""


class ResourceSpec(Strict):
    name: str
    weight: int = 1


def _cpu_and_memory() -> list[ResourceSpec]:
    return [ResourceSpec(name="cpu"), ResourceSpec(name="memory")]


class UtilizationShapePoint(Strict):
    utilization: int
    score: int


class RequestedToCapacityRatio(Strict):
    shape: list[UtilizationShapePoint] = []


class ScoringStrategy(Strict):
    type: str = "LeastAllocated"
    resources: list[ResourceSpec] = msgspec.field(default_factory=_cpu_and_memory)
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Arguments):
    ignored_resources: list[str] = []
    ignored_resource_groups: list[str] = []
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesBalancedAllocationArgs(Arguments):
    resources: list[ResourceSpec] = msgspec.field(default_factory=_cpu_and_memory)


class NodeAffinityArgs(Arguments):
    added_affinity: NodeAffinity | None = None


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
