"""scheduling.sigs.k8s.io PodGroup: pods that are placed together or not at all."""

from __future__ import annotations

from typing import Final

from koordinator.api.constraints import Int32
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.timestamps import Time

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
    """How many pods must be placed together, and how long that may take."""

    min_member: Int32 = 0
    """With fewer pods than this placed, none runs."""
    min_resources: ResourceList = {}
    """What the pods need together, at least."""
    schedule_timeout_seconds: Int32 | None = None
    """How long pods that have a node wait for the others."""


class PodGroupStatus(WireStruct):
    """How far the group has come."""

    phase: str = ""
    """Pending, PreScheduling, Scheduling, Scheduled, Running, Unknown, Finished or Failed."""
    occupied_by: str = ""
    """The owner of the group's pods."""
    scheduled: Int32 = 0
    """How many pods have a node."""
    running: Int32 = 0
    """How many pods run."""
    succeeded: Int32 = 0
    """How many pods have ended well."""
    failed: Int32 = 0
    """How many pods have failed."""
    schedule_start_time: Time | None = None
    """When the first attempt to place the group began."""


class PodGroup(Object):
    """Pods that are placed together or not at all (a gang). Pods name it in the label pod-
    group.scheduling.sigs.k8s.io."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
