"""The keys of the SLO ConfigMap: the type of each, its defaults, and its validation.

Defaults are those of the original (pkg/util/sloconfig, colocation_config.go and nodeslo_config.go; DefaultSLOCfg). The
resource-QoS key has none here: a NodeSLO has what the user wrote, and koordlet fills in the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from koordinator.api import cpu_burst, slo_controller_config
from koordinator.api.adaptive_slo import AdaptiveSLOStrategy
from koordinator.api.colocation_strategy import CALCULATE_BY_USAGE, ColocationStrategy
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.duration import GoDuration
from koordinator.api.field_error import FieldError
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.meta import WireStruct
from koordinator.api.nodemetric import USAGE_WITHOUT_PAGE_CACHE, AggregatePolicy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.resource_threshold import CPUSET_SUPPRESS_POLICY, EVICT_BY_REAL_LIMIT, ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy
from koordinator.api.validation import validate
from koordinator.model.slo_configuration.abnormality_limits import abnormality_errors

S = TypeVar("S", bound=msgspec.Struct)

COLOCATION_UNMARSHAL_FAILED: Final = "ColocationCfgUnmarshalFailed"
SLO_UNMARSHAL_FAILED: Final = "SLOCfgUnmarshalFailed"
CPU_NORMALIZATION_UNMARSHAL_FAILED: Final = "CPUNormalizationCfgUnmarshalFailed"
RESOURCE_AMPLIFICATION_UNMARSHAL_FAILED: Final = "ResourceAmplificationCfgUnmarshalFailed"
"""Reasons of warning events on the ConfigMap."""


class HostApplications(WireStruct):
    """The host-application key's value for the cluster and for each group of nodes."""

    applications: list[HostApplicationSpec] = []


@dataclass(frozen=True, slots=True)
class ConfigurationKey(Generic[S]):
    """One key.

    ``inline``: the cluster's strategy is written into the document itself, beside ``nodeConfigs``; otherwise under
    ``clusterStrategy``, beside ``nodeStrategies``. ``replaces``: a group of nodes inherits nothing from the cluster.
    ``usable_from_start``: when the first value ever seen is malformed, the defaults apply; otherwise nothing does.
    ``colocation``: an empty text counts as no value instead of an error, and without a ConfigMap the value in force
    counts as doubtful.
    """

    name: str
    defaults: S
    title: str
    """Its name in events."""
    reason: str
    """The reason of these events."""
    errors: Callable[[S], list[FieldError]]
    """The errors of a strategy with all that it inherits, for which it is unusable."""
    inline: bool = False
    replaces: bool = False
    usable_from_start: bool = True
    colocation: bool = False

    @property
    def strategy(self) -> type[S]:
        return type(self.defaults)


def colocation_errors(strategy: ColocationStrategy) -> list[FieldError]:
    """The errors for which a strategy must not be acted upon (IsColocationStrategyValid, and the schema of
    NodeMetric)."""
    errors = validate(strategy)
    difference = strategy.resource_diff_threshold
    if difference is not None and not difference > 0:
        errors.append(FieldError.invalid("resourceDiffThreshold", difference, "must be greater than 0"))
    if strategy.metric_memory_collect_policy == "":
        errors.append(FieldError.required("metricMemoryCollectPolicy"))
    return errors + abnormality_errors(strategy.extensions)


def _resource_qos_errors(strategy: ResourceQoSStrategy) -> list[FieldError]:
    """What an API server would refuse. It accepts senseless shares of the network, so these must not keep the rest from
    being used; the webhook refuses them."""
    return [error for error in validate(strategy) if ".networkQOS." not in error.path]


def _no_errors(_: msgspec.Struct) -> list[FieldError]:
    """Ratios out of range are refused per node, where they are used."""
    return []


COLOCATION: Final = ConfigurationKey(
    name=slo_controller_config.COLOCATION,
    defaults=ColocationStrategy(
        enable=False,
        metric_aggregate_duration_seconds=300,
        metric_report_interval_seconds=60,
        metric_aggregate_policy=AggregatePolicy(durations=[GoDuration(minutes=minutes) for minutes in (5, 10, 30)]),
        metric_memory_collect_policy=USAGE_WITHOUT_PAGE_CACHE,
        cpu_reclaim_threshold_percent=60,
        cpu_calculate_policy=CALCULATE_BY_USAGE,
        memory_reclaim_threshold_percent=65,
        memory_calculate_policy=CALCULATE_BY_USAGE,
        degrade_time_minutes=15,
        update_time_threshold_seconds=300,
        resource_diff_threshold=0.1,
        mid_cpu_threshold_percent=100,
        mid_memory_threshold_percent=100,
        mid_unallocated_percent=0,
        mid_static_cpu_reserved_percent=0,
        mid_static_memory_reserved_percent=0,
    ),
    title="colocation config",
    reason=COLOCATION_UNMARSHAL_FAILED,
    errors=colocation_errors,
    inline=True,
    usable_from_start=False,
    colocation=True,
)
RESOURCE_THRESHOLD: Final = ConfigurationKey(
    name=slo_controller_config.RESOURCE_THRESHOLD,
    defaults=ResourceThresholdStrategy(
        enable=False,
        cpu_suppress_threshold_percent=65,
        cpu_suppress_policy=CPUSET_SUPPRESS_POLICY,
        memory_evict_threshold_percent=70,
        cpu_evict_policy=EVICT_BY_REAL_LIMIT,
    ),
    title="ThresholdCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=validate,
)
RESOURCE_QOS: Final = ConfigurationKey(
    name=slo_controller_config.RESOURCE_QOS,
    defaults=ResourceQoSStrategy(),
    title="ResourceQOSCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=_resource_qos_errors,
)
CPU_BURST: Final = ConfigurationKey(
    name=slo_controller_config.CPU_BURST,
    defaults=CPUBurstStrategy(
        policy=cpu_burst.NONE,
        cpu_burst_percent=1000,
        cfs_quota_burst_percent=300,
        cfs_quota_burst_period_seconds=cpu_burst.UNLIMITED_PERIOD,
        share_pool_threshold_percent=50,
    ),
    title="CPUBurstCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=validate,
)
SYSTEM: Final = ConfigurationKey(
    name=slo_controller_config.SYSTEM,
    defaults=SystemStrategy(),
    title="SystemCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=validate,
)
HOST_APPLICATION: Final = ConfigurationKey(
    name=slo_controller_config.HOST_APPLICATION,
    defaults=HostApplications(),
    title="HostApplicationCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=validate,
    inline=True,
    replaces=True,
)
CPU_NORMALIZATION: Final = ConfigurationKey(
    name=slo_controller_config.CPU_NORMALIZATION,
    defaults=CPUNormalizationStrategy(enable=False),
    title="CPUNormalizationCfg",
    reason=CPU_NORMALIZATION_UNMARSHAL_FAILED,
    errors=_no_errors,
    inline=True,
    usable_from_start=False,
)
RESOURCE_AMPLIFICATION: Final = ConfigurationKey(
    name=slo_controller_config.RESOURCE_AMPLIFICATION,
    defaults=ResourceAmplificationStrategy(enable=False),
    title="amplificationCfg",
    reason=RESOURCE_AMPLIFICATION_UNMARSHAL_FAILED,
    errors=_no_errors,
    inline=True,
    usable_from_start=False,
)
ADAPTIVE_SLO: Final = ConfigurationKey(
    name=slo_controller_config.ADAPTIVE_SLO,
    defaults=AdaptiveSLOStrategy(
        enable=False,
        steps=4,
        hold_seconds=300,
        recover_seconds=1800,
        cpu_suppress_floor_percent=35,
        cfs_quota_burst_floor_percent=150,
        cpu_reclaim_floor_percent=35,
        memory_reclaim_floor_percent=40,
        score_floor_percent=0,
    ),
    title="AdaptiveSLOCfg",
    reason=SLO_UNMARSHAL_FAILED,
    errors=validate,
)

ALL_KEYS: Final[tuple[ConfigurationKey[Any], ...]] = (
    COLOCATION,
    RESOURCE_THRESHOLD,
    RESOURCE_QOS,
    SYSTEM,
    CPU_BURST,
    HOST_APPLICATION,
    CPU_NORMALIZATION,
    RESOURCE_AMPLIFICATION,
    ADAPTIVE_SLO,
)
"""In the order in which the webhook checks them."""
