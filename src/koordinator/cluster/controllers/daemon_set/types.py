"""DaemonSets as their controller reads them: with the whole pod template, which becomes pods unchanged."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Condition, FreeForm, LabelSelector, Object, WireStruct
from koordinator.cluster.controllers.workloads import RequiredCount, RollingUpdate


class DaemonSetUpdateStrategy(WireStruct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DaemonSetSpec(WireStruct):
    selector: LabelSelector | None = None
    template: FreeForm = {}
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(WireStruct):
    current_number_scheduled: RequiredCount = 0
    number_misscheduled: RequiredCount = 0
    desired_number_scheduled: RequiredCount = 0
    number_ready: RequiredCount = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None
    conditions: list[Condition] = []


class DaemonSet(Object):
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet", DaemonSet)
