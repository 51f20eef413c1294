"""How much of a node is lent to pods of lower priority, and how its use is measured for that.

Part of the SLO ConfigMap, and whole the value of the node annotation ``node.koordinator.sh/colocation-strategy``.
``Schema`` says what is usable while running, ``Admission`` what the ConfigMap's webhook lets in, which is less.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import Admission, Schema
from koordinator.api.meta import FreeForm, WireStruct
from koordinator.api.nodemetric import (
    USAGE_WITH_HOT_PAGE_CACHE,
    USAGE_WITH_PAGE_CACHE,
    USAGE_WITHOUT_PAGE_CACHE,
    AggregatePolicy,
)

CALCULATE_BY_USAGE: Final = "usage"
CALCULATE_BY_REQUEST: Final = "request"
CALCULATE_BY_MAX_USAGE_REQUEST: Final = "maxUsageRequest"
"""What pods of high priority are taken to need: any other text counts as usage."""

MID_RECLAIM_STATIC: Final = "static"
"""The mode in which Mid gets a fixed share; any other text counts as the dynamic one."""

_Positive = Annotated[int | None, Schema(minimum=1), Admission(minimum=1)]
_NotNegative = Annotated[int | None, Schema(minimum=0), Admission(minimum=0)]
_Percent = Annotated[int | None, Schema(minimum=0, maximum=100), Admission(minimum=0, maximum=100)]
_NotNegativeCheckedToHundred = Annotated[int | None, Schema(minimum=0), Admission(minimum=0, maximum=100)]


class ColocationStrategy(WireStruct):
    """Percentages are of the node's capacity unless said otherwise. None is "not said": distinct from zero."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: _Positive = None
    """The window over which plain usages are averaged."""
    metric_report_interval_seconds: _Positive = None
    metric_aggregate_policy: AggregatePolicy | None = None
    """The windows over which percentiles are reported."""
    metric_memory_collect_policy: Annotated[
        str | None, Schema(enum=(USAGE_WITHOUT_PAGE_CACHE, USAGE_WITH_HOT_PAGE_CACHE, USAGE_WITH_PAGE_CACHE))
    ] = None
    cpu_reclaim_threshold_percent: _NotNegative = None
    """Up to which share of the CPUs Batch may fill the node; the rest is a margin of safety."""
    cpu_calculate_policy: str | None = None
    """usage or maxUsageRequest."""
    memory_reclaim_threshold_percent: _NotNegative = None
    memory_calculate_policy: str | None = None
    """usage, request or maxUsageRequest."""
    degrade_time_minutes: _Positive = None
    """A node whose metrics are older than this lends nothing."""
    update_time_threshold_seconds: _Positive = None
    """The node is updated after this time at the latest, however little has changed."""
    resource_diff_threshold: Annotated[float | None, Admission(maximum=1)] = None
    """The change, as a share of the old amount, from which the node is updated at once. Above 0."""
    mid_reclaim_mode: str | None = None
    """static, or unset for what is measured to be reclaimable."""
    mid_cpu_threshold_percent: _Percent = msgspec.field(default=None, name="midCPUThresholdPercent")
    """Of the node's allocatable amount: the most that Mid gets."""
    mid_memory_threshold_percent: _Percent = None
    mid_unallocated_percent: _Percent = None
    """Of what no Prod pod requests: the share that Mid gets besides what is reclaimable."""
    mid_static_cpu_reserved_percent: _NotNegativeCheckedToHundred = msgspec.field(
        default=None, name="midStaticCPUReservedPercent"
    )
    mid_static_memory_reserved_percent: _NotNegativeCheckedToHundred = None
    batch_cpu_threshold_percent: _NotNegative = msgspec.field(default=None, name="batchCPUThresholdPercent")
    """The most that Batch gets; unset for no such limit."""
    batch_memory_threshold_percent: _NotNegative = None
    extensions: FreeForm = {}
    """Of third parties, each under its own key."""
