"""Part of NodeSLO: how far containers may exceed their CPU limit for a moment."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Admission, PercentCheckedLate, Schema
from koordinator.api.meta import WireStruct

NONE: Final = "none"
CPU_BURST_ONLY: Final = "cpuBurstOnly"
CFS_QUOTA_BURST_ONLY: Final = "cfsQuotaBurstOnly"
AUTO: Final = "auto"
"""The policies."""

UNLIMITED_PERIOD: Final = -1


class CPUBurstConfig(WireStruct):
    """Also the JSON of the pod annotation."""

    policy: str = ""
    """none, cpuBurstOnly, cfsQuotaBurstOnly or auto (both)."""
    cpu_burst_percent: Annotated[
        int | None, Schema(minimum=0, maximum=10_000), Admission(minimum=1, maximum=10_000)
    ] = None
    """cpu.cfs_burst_us, in percent of the limit."""
    cfs_quota_burst_percent: Annotated[int | None, Admission(minimum=100)] = None
    """The most that cfs_quota is raised to, in percent of the limit."""
    cfs_quota_burst_period_seconds: Annotated[int | None, Admission(minimum=-1)] = None
    """How long a container may run with a raised quota; -1 is for ever."""


class CPUBurstStrategy(CPUBurstConfig):
    """How far the containers of a node may exceed their CPU limit for a moment."""

    share_pool_threshold_percent: PercentCheckedLate = None
    """Above this use of the shared CPUs no quota is raised."""
