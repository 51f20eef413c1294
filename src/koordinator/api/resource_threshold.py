"""Part of NodeSLO: from which use of a node its best-effort pods are throttled or evicted."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import Admission, Int32, PercentCheckedLate, Schema
from koordinator.api.meta import WireStruct

CPUSET_SUPPRESS_POLICY: Final = "cpuset"
CFS_QUOTA_SUPPRESS_POLICY: Final = "cfsQuota"
EVICT_BY_REAL_LIMIT: Final = "evictByRealLimit"
EVICT_BY_ALLOCATABLE: Final = "evictByAllocatable"

_PERCENT: Final = Schema(minimum=0, maximum=100)
_NOT_NEGATIVE: Final = Schema(minimum=0)


class ResourceThresholdStrategy(WireStruct):
    """A threshold starts an eviction, which continues until the usage is below the lower percentage."""

    enable: bool | None = None
    """Whether best-effort pods are throttled and evicted at all."""
    cpu_suppress_threshold_percent: Annotated[int | None, _PERCENT, Admission(minimum=0, maximum=100)] = None
    """The use of the node's CPUs, best-effort pods included, that these are throttled to."""
    cpu_suppress_min_percent: Annotated[int | None, _PERCENT, Admission(minimum=0, maximum=100)] = None
    """What best-effort pods keep of the node's CPUs, however busy it is."""
    cpu_suppress_policy: str = ""
    """cpuset: fewer CPUs; cfsQuota: less time on them."""
    memory_evict_threshold_percent: Annotated[
        int | None, _PERCENT, Admission(minimum=0, maximum=100, greater_than="memory_evict_lower_percent")
    ] = None
    """The use of the node's memory from which best-effort pods are evicted."""
    memory_evict_lower_percent: Annotated[
        int | None, _PERCENT, Admission(minimum=0, maximum=100, less_than="memory_evict_threshold_percent")
    ] = None
    """The use of memory at which evictions stop."""
    memory_allocatable_evict_threshold_percent: Annotated[
        int | None, _NOT_NEGATIVE, Admission(minimum=0, greater_than="memory_allocatable_evict_lower_percent")
    ] = None
    """The share of allocatable batch memory that is requested, from which pods are evicted."""
    memory_allocatable_evict_lower_percent: Annotated[
        int | None, _NOT_NEGATIVE, Admission(minimum=0, less_than="memory_allocatable_evict_threshold_percent")
    ] = None
    """The share at which these evictions stop."""
    cpu_evict_be_satisfaction_upper_percent: Annotated[
        int | None, Admission(minimum=0, maximum=100, greater_than="cpu_evict_be_satisfaction_lower_percent")
    ] = msgspec.field(default=None, name="cpuEvictBESatisfactionUpperPercent")
    """The share of their requests that best-effort pods must get, for evictions to stop."""
    cpu_evict_be_satisfaction_lower_percent: Annotated[
        int | None, Admission(minimum=0, maximum=100, less_than="cpu_evict_be_satisfaction_upper_percent")
    ] = msgspec.field(default=None, name="cpuEvictBESatisfactionLowerPercent")
    """The share of their requests below which best-effort pods are evicted."""
    cpu_evict_be_usage_threshold_percent: PercentCheckedLate = msgspec.field(
        default=None, name="cpuEvictBEUsageThresholdPercent"
    )
    """Only when best-effort pods use this much of the CPU that they have are they evicted for getting too little."""
    cpu_evict_time_window_seconds: Annotated[int | None, Admission(minimum=1)] = None
    """How long that must last."""
    cpu_evict_threshold_percent: Annotated[
        int | None, _PERCENT, Admission(minimum=0, maximum=100, greater_than="cpu_evict_lower_percent")
    ] = None
    """The use of the node's CPUs from which pods are evicted."""
    cpu_evict_lower_percent: Annotated[
        int | None, _PERCENT, Admission(minimum=0, maximum=100, less_than="cpu_evict_threshold_percent")
    ] = None
    """The use of CPUs at which evictions stop."""
    cpu_allocatable_evict_threshold_percent: Annotated[
        int | None, _NOT_NEGATIVE, Admission(minimum=0, greater_than="cpu_allocatable_evict_lower_percent")
    ] = None
    """The share of allocatable batch CPU that is requested, from which pods are evicted."""
    cpu_allocatable_evict_lower_percent: Annotated[
        int | None, _NOT_NEGATIVE, Admission(minimum=0, less_than="cpu_allocatable_evict_threshold_percent")
    ] = None
    """The share at which these evictions stop."""
    cpu_evict_policy: str = ""
    """evictByRealLimit or evictByAllocatable: what the CPU that best-effort pods get is compared with."""
    evict_enabled_priority_threshold: Int32 | None = None
    """Pods of a higher priority are not evicted for the use of the node."""
    allocatable_evict_priority_threshold: Annotated[Int32 | None, Admission(minimum=0, maximum=7999)] = None
    """Pods of a higher priority are not evicted for what is allocated."""
