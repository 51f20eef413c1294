"""scheduling.koordinator.sh ScheduleExplanation: why a pod, a job or a gang is not placed, on request."""

from __future__ import annotations

from typing import Annotated

from koordinator.api.constraints import Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, Object, WireStruct
from koordinator.api.timestamps import Time


class ScheduleExplanationSpec(WireStruct):
    """The question."""

    question_object_key: str = ""
    """namespace/name of a pod or job, or the id of a gang group."""
    question_object_template: Annotated[FreeForm | None, Schema(schemaless=True)] = None
    """An object that does not exist yet, to explain in place of one that does."""
    ttl: Annotated[GoDuration | None, Schema(default="24h")] = None
    """How long after its creation the explanation is removed."""


class NamespacedName(WireStruct):
    namespace: str = ""
    """The namespace of the pod."""
    name: str = ""
    """The name of the pod."""
    uid: str = ""
    """The UID of the pod."""


class SchedulingResult(NamespacedName):
    """A pod and the node that it fits on."""

    node_name: str = ""
    """The node."""


class NodeFailedDetail(WireStruct):
    """Nodes that one plugin rejected for the same reason."""

    failed_plugin: str = ""
    """The plugin."""
    reason: str = ""
    """Its reason."""
    preempt_might_help: bool = False
    """Whether the eviction of other pods could help."""
    failed_nodes: list[str] = []
    """The nodes."""


class NodeLevelExplanations(WireStruct):
    """Which pods find a node, and why others do not."""

    schedulable: bool = False
    """Whether all pods find a node."""
    failed_message: str = ""
    """Why not, in one sentence."""
    feasible_scheduling_result: list[SchedulingResult] = []
    """The pods that find one."""
    node_failed_details: list[NodeFailedDetail] = []
    """Why nodes were rejected."""


class PossibleVictim(NamespacedName):
    """A pod that could be evicted."""

    is_nominated_pod: bool = False
    """Whether it is a pod for which the node was only nominated."""


class NodePossibleVictim(WireStruct):
    """The pods of one node that could be evicted."""

    node_name: str = ""
    """The node."""
    possible_victims: list[PossibleVictim] = []
    """The pods."""


class TopologyDomainExplanation(WireStruct):
    """Why one part of the network does or does not take the pods."""

    topology_domain: str = ""
    """The part of the network."""
    schedulable: bool = False
    """Whether all pods fit there."""
    schedulable_after_preemption: bool = False
    """Whether they fit once other pods are evicted."""
    failed_message: str = ""
    """Why not, in one sentence."""
    schedule_explanation: NodeLevelExplanations = NodeLevelExplanations()
    """How it stands without evictions."""
    node_possible_victims: list[NodePossibleVictim] = []
    """The pods that could be evicted, node by node."""
    preempt_explanation: NodeLevelExplanations = NodeLevelExplanations()
    """How it stands once these are evicted."""


class ScheduleExplanationStatus(WireStruct):
    """The explanation."""

    schedulable: bool = False
    """Whether it can be placed now."""
    schedulable_after_preemption: bool = False
    """Whether it can be placed once other pods are evicted."""
    failed_message: str = ""
    """Why not, in one sentence."""
    last_update_time: Time | None = None
    """When this was last worked out."""
    detailed_explanation: list[TopologyDomainExplanation] = []
    """Why not, one part of the network after the other."""


class ScheduleExplanation(Object):
    """Why a pod, a job or a gang is not placed, on request."""

    spec: ScheduleExplanationSpec = ScheduleExplanationSpec()
    status: ScheduleExplanationStatus = ScheduleExplanationStatus()
