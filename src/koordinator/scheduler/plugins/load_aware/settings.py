"""The plugin's arguments as vectors over the resources that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from koordinator.api.codec import decode_or
from koordinator.api.duration import GoDuration
from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.usable_amounts import bounded

Vector = tuple[int, ...]
AggregatedKey = tuple[str, timedelta]
"""(aggregation, window); ``LONGEST_WINDOW`` is the longest that has data."""
LONGEST_WINDOW: Final = timedelta()
RECOMMENDED_USAGE: Final = "recommendedUsageEstimator"
"""The name, in the argument ``estimator``, of the estimator by Recommendations. Ours; with every other name, as in the
original, factors estimate."""


class AggregatedThresholds(WireStruct):
    """``aggregatedUsage`` of the node annotation."""

    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: GoDuration = GoDuration()


class NodeThresholds(WireStruct):
    """The annotation scheduling.koordinator.sh/usage-thresholds."""

    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    aggregated_usage: AggregatedThresholds | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percent of allocatable that load may reach; zero means no bound. ``aggregation`` is None when unused."""

    usage: Vector
    prod: Vector
    aggregated: Vector
    aggregation: AggregatedKey | None


class Settings:
    """Validated arguments over the sorted union of all resources that they name."""

    def __init__(self, args: Any) -> None:
        aggregated = args.aggregated
        named: list[Iterable[str]] = [
            ("cpu", "memory"),
            args.usage_thresholds,
            args.prod_usage_thresholds,
            args.resource_weights,
            args.estimated_scaling_factors,
            args.supported_resources,
            aggregated.usage_thresholds if aggregated else (),
        ]
        self.resources = tuple(sorted({name for names in named for name in names}))
        self.weights = self.vector(args.resource_weights)
        self.dominant_weight: int = args.dominant_resource_weight or 0
        self.total_weight = sum(self.weights) + self.dominant_weight
        self.factors: Mapping[str, int] = args.estimated_scaling_factors
        self.expiration_seconds: float = args.node_metric_expiration_seconds
        self.filters_expired: bool = args.filter_expired_node_metrics
        self.passes_expired: bool = args.enable_schedule_when_node_metrics_expired
        self.waits_for_expiry = self.filters_expired and self.passes_expired
        """Whether a node may begin to pass because its report has expired."""
        self.prod_includes_system: bool = args.prod_usage_include_sys
        self.scores_prod_usage: bool = args.score_according_prod_usage
        self.customizable: bool = args.allow_customize_estimation
        self.by_recommendations: bool = args.estimator == RECOMMENDED_USAGE
        self.seconds_after_scheduled: int = args.estimated_seconds_after_pod_scheduled or 0
        self.seconds_after_initialized: int = args.estimated_seconds_after_initialized or 0
        self.score_aggregation = self._score_aggregation(aggregated)
        nothing = self.vector({})
        self.thresholds = self._thresholds(args, aggregated, Thresholds(nothing, nothing, nothing, None))

    @property
    def scores(self) -> bool:
        """Whether the arguments configure any score."""
        return bool(self.dominant_weight) or any(self.weights)

    def vector(self, amounts: Mapping[str, int]) -> Vector:
        return tuple([bounded(amounts.get(name, 0)) for name in self.resources])

    def amounts(self, resources: ResourceList) -> Vector:
        """CPU in milli-CPU, the rest in whole units; missing resources are zero, as are amounts below zero."""
        return tuple([_amount(name, resources.get(name)) for name in self.resources])

    def thresholds_for(self, annotation: str | None) -> Thresholds:
        """The thresholds of the arguments, each group replaced by the node's where its annotation has one. An
        annotation that cannot be decoded changes nothing."""
        own = decode_or(annotation, NodeThresholds, None)
        return self._thresholds(own, own.aggregated_usage, self.thresholds) if own is not None else self.thresholds

    def _thresholds(self, given: Any, aggregated: Any, base: Thresholds) -> Thresholds:
        """Those of the arguments or of an annotation; what is not given is as in ``base``."""
        limits, aggregation = base.aggregated, base.aggregation
        if aggregated is not None and aggregated.usage_thresholds and aggregated.usage_aggregation_type:
            limits = self.vector(aggregated.usage_thresholds)
            aggregation = _key(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration)
        return Thresholds(
            usage=self.vector(given.usage_thresholds) if given.usage_thresholds else base.usage,
            prod=self.vector(given.prod_usage_thresholds) if given.prod_usage_thresholds else base.prod,
            aggregated=limits,
            aggregation=aggregation,
        )

    @staticmethod
    def _score_aggregation(aggregated: Any) -> AggregatedKey | None:
        if not aggregated or not aggregated.score_aggregation_type:
            return None
        return _key(aggregated.score_aggregation_type, aggregated.score_aggregated_duration)


def _key(aggregation: str, window: GoDuration | None) -> AggregatedKey:
    return aggregation, window if window is not None else LONGEST_WINDOW


def _amount(name: str, amount: Quantity | None) -> int:
    if amount is None:
        return 0
    return bounded(amount.milli if name == "cpu" else amount.value)
