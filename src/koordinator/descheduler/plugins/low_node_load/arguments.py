"""The arguments of LowNodeLoad, with the defaults and limits of the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import Any, Final, Self

from msgspec.structs import replace

from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import ResourceThresholds, checked_selector
from koordinator.descheduler.plugins.selection import SelectiveArguments
from koordinator.model.recommendations import RESOURCES as RECOMMENDED

DEFAULT_POOL: Final = "__default_node_pool__"
_PERCENTAGE: Final = "percentage must be greater than or equal to 0"


class AnomalyCondition(Strict):
    """0 is what is left out."""

    timeout: GoDuration | None = None
    """How long a node stays abnormal without being found hot anew."""
    consecutive_abnormalities: int = 0
    """A node is abnormal after more hot cycles than this; with 1, at once."""
    consecutive_normalities: int = 0


_DEFAULT_CONDITION: Final = AnomalyCondition(
    timeout=GoDuration(minutes=1), consecutive_abnormalities=5, consecutive_normalities=3
)


class NodePool(Strict):
    """What is None is as in the top level of the arguments."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False
    high_thresholds: ResourceThresholds | None = None
    low_thresholds: ResourceThresholds | None = None
    prod_high_thresholds: ResourceThresholds | None = None
    prod_low_thresholds: ResourceThresholds | None = None
    expected_high_thresholds: ResourceThresholds | None = None
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyCondition | None = None


class LowNodeLoadArgs(SelectiveArguments):
    dry_run: bool = False
    use_deviation_thresholds: bool = False
    high_thresholds: ResourceThresholds | None = None
    low_thresholds: ResourceThresholds | None = None
    prod_high_thresholds: ResourceThresholds | None = None
    prod_low_thresholds: ResourceThresholds | None = None
    expected_high_thresholds: ResourceThresholds | None = None
    """Ours: for what nodes are expected to use by the Recommendations of their pods; of CPU and memory."""
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyCondition | None = None
    number_of_nodes: int = 0
    node_metric_expiration_seconds: int = 180
    node_fit: bool = True
    detector_cache_timeout: GoDuration = GoDuration(minutes=5)
    node_pools: list[NodePool] = []

    def completed(self, path: str) -> Self:
        given = replace(
            self,
            anomaly_condition=_completed_condition(self.anomaly_condition, _DEFAULT_CONDITION),
            resource_weights=_weights(self.resource_weights, self.low_thresholds, self.high_thresholds),
        )
        given = replace(given, node_pools=[_inherited(pool, given) for pool in given.node_pools])
        given._check(path)
        for index, pool in enumerate(given.pools):
            _check_pool(pool, f"{path}.nodePools[{index - 1}]" if index else path)
        return given

    def adjusted(self, interval: timedelta) -> tuple[Self, Sequence[str]]:
        """Detectors have to outlive the time between cycles, or none ever counts beyond 1."""
        if self.detector_cache_timeout >= interval:
            return self, ()
        text = f"detectorCacheTimeout is raised to deschedulingInterval ({format_duration(interval)})"
        raised = GoDuration(microseconds=interval // timedelta(microseconds=1))
        return replace(self, detector_cache_timeout=raised), (text,)

    @property
    def pools(self) -> Sequence[NodePool]:
        """The top level as a pool, and then the others."""
        return (NodePool(name=DEFAULT_POOL, node_selector=self.node_selector, **_settings(self)), *self.node_pools)

    def _check(self, path: str) -> None:
        if self.number_of_nodes < 0:
            field = f"{path}.numberOfNodes"
            raise ConfigurationError(field, self.number_of_nodes, "must be greater than or equal to 0")
        if self.node_metric_expiration_seconds <= 0:
            field = f"{path}.nodeMetricExpirationSeconds"
            raise ConfigurationError(field, self.node_metric_expiration_seconds, "should be a positive value")
        super().completed(path)


def _completed_condition(given: AnomalyCondition | None, default: AnomalyCondition) -> AnomalyCondition:
    if given is None:
        return default
    return AnomalyCondition(
        timeout=default.timeout if given.timeout is None else given.timeout,
        consecutive_abnormalities=given.consecutive_abnormalities or default.consecutive_abnormalities,
        consecutive_normalities=given.consecutive_normalities or default.consecutive_normalities,
    )


def _weights(
    given: Mapping[str, int] | None, low: ResourceThresholds | None, high: ResourceThresholds | None
) -> dict[str, int]:
    """1 for CPU, memory and every resource with a threshold that has no weight above 0."""
    weights = dict(given or {})
    for name in ("cpu", "memory", *(low or {}), *(high or {})):
        if weights.get(name, 0) <= 0:
            weights[name] = 1
    return weights


def _settings(given: NodePool | LowNodeLoadArgs) -> dict[str, Any]:
    """What a pool and the top level have in common."""
    return {name: getattr(given, name) for name in NodePool.__struct_fields__ if name not in ("name", "node_selector")}


def _inherited(pool: NodePool, top: LowNodeLoadArgs) -> NodePool:
    own = {name: value for name, value in _settings(pool).items() if value is not None}
    condition = _completed_condition(pool.anomaly_condition, top.anomaly_condition or _DEFAULT_CONDITION)
    return replace(pool, **(_settings(top) | own | {"anomaly_condition": condition}))


def _check_pool(pool: NodePool, path: str) -> None:
    checked_selector(pool.node_selector, f"{path}.nodeSelector")
    high, prod_high = pool.high_thresholds or {}, pool.prod_high_thresholds or {}
    below = "percentage must be less than or equal to"
    for name, given, limits, allowed in (
        ("highThresholds", high, {}, ""),
        ("lowThresholds", pool.low_thresholds, high, f"low {below} highThresholds"),
        ("prodHighThresholds", prod_high, high, "node percentage must be greater than or equal to prodHighThresholds"),
        ("prodLowThresholds", pool.prod_low_thresholds, prod_high, f"low {below} prodHighThresholds"),
    ):
        _check_thresholds(f"{path}.{name}", given or {}, limits, allowed)
    expected = pool.expected_high_thresholds or {}
    _check_thresholds(f"{path}.expectedHighThresholds", expected, {}, "")
    for name in expected:
        if name not in RECOMMENDED:
            raise ConfigurationError(f"{path}.expectedHighThresholds", name, f"only of {' and '.join(RECOMMENDED)}")
    condition = pool.anomaly_condition or _DEFAULT_CONDITION
    for field, count in (
        ("consecutiveAbnormalities", condition.consecutive_abnormalities),
        ("consecutiveNormalities", condition.consecutive_normalities),
    ):
        if count <= 0:
            raise ConfigurationError(f"{path}.anomalyCondition.{field}", count, f"{field} must be greater than 0")


def _check_thresholds(path: str, given: ResourceThresholds, limits: Mapping[str, float], allowed: str) -> None:
    for name, percentage in given.items():
        if not 0 <= percentage < inf:
            raise ConfigurationError(f"{path}[{name}]", percentage, _PERCENTAGE)
        if name in limits and percentage > limits[name]:
            raise ConfigurationError(f"{path}[{name}]", percentage, allowed)
