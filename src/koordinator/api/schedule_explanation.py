"""scheduling.koordinator.sh ScheduleExplanation: why a pod, a job or a gang is not placed, on request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from koordinator.api.constraints import Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, Object, WireStruct


class ScheduleExplanationSpec(WireStruct):
    question_object_key: str = ""
    """namespace/name of a pod or job, or the id of a gang group."""
    question_object_template: Annotated[FreeForm | None, Schema(schemaless=True)] = None
    ttl: Annotated[GoDuration | None, Schema(default="24h")] = None


class NamespacedName(WireStruct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class SchedulingResult(NamespacedName):
    node_name: str = ""


class NodeFailedDetail(WireStruct):
    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: list[str] = []


class NodeLevelExplanations(WireStruct):
    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: list[SchedulingResult] = []
    node_failed_details: list[NodeFailedDetail] = []


class PossibleVictim(NamespacedName):
    is_nominated_pod: bool = False


class NodePossibleVictim(WireStruct):
    node_name: str = ""
    possible_victims: list[PossibleVictim] = []


class TopologyDomainExplanation(WireStruct):
    topology_domain: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    schedule_explanation: NodeLevelExplanations = NodeLevelExplanations()
    node_possible_victims: list[NodePossibleVictim] = []
    preempt_explanation: NodeLevelExplanations = NodeLevelExplanations()


class ScheduleExplanationStatus(WireStruct):
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    last_update_time: datetime | None = None
    detailed_explanation: list[TopologyDomainExplanation] = []


class ScheduleExplanation(Object):
    spec: ScheduleExplanationSpec = ScheduleExplanationSpec()
    status: ScheduleExplanationStatus = ScheduleExplanationStatus()
