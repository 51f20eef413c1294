"""scheduling.sigs.k8s.io PodGroup: pods that are placed together or not at all."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from koordinator.api.constraints import Int32
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList

PENDING: Final = "Pending"
PRE_SCHEDULING: Final = "PreScheduling"
SCHEDULING: Final = "Scheduling"
SCHEDULED: Final = "Scheduled"
RUNNING: Final = "Running"
UNKNOWN: Final = "Unknown"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"
"""The phases."""


class PodGroupSpec(WireStruct):
    min_member: Int32 = 0
    """With fewer pods than this placed, none runs."""
    min_resources: ResourceList = {}
    schedule_timeout_seconds: Int32 | None = None


class PodGroupStatus(WireStruct):
    phase: str = ""
    occupied_by: str = ""
    """The owner of the group's pods."""
    scheduled: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    schedule_start_time: datetime | None = None


class PodGroup(Object):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
