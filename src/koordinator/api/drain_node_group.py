"""scheduling.koordinator.sh DrainNodeGroup: several nodes that are to be emptied, as many as the rest can carry."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Int32, Schema
from koordinator.api.drain_node import CordonPolicy, DrainNodeCondition
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector, Object, WireStruct

PENDING: Final = "Pending"
PLANNING: Final = "Planning"
WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ABORTED: Final = "Aborted"
"""The phases."""
FINISHED: Final = frozenset({SUCCEEDED, FAILED, ABORTED})

UNAVAILABLE_NODE_EXISTS: Final = "UnavailableNodeExists"
FAILED_NODE_EXISTS: Final = "FailedNodeExists"
"""The condition types; True is noteworthy."""


class ExecutionPolicy(WireStruct):
    """How many of the nodes that can be drained are drained."""

    partition: Annotated[int | None, Schema(minimum=0, format="int32")] = None
    """How many, the first by name; all without it."""
    paused: bool = False
    """Whether no further drain is confirmed; those that are confirmed go on."""


class TerminationPolicy(WireStruct):
    """When no further node is planned."""

    max_node_count: Annotated[int | None, Schema(minimum=1, format="int32")] = None
    """How many nodes are drained at most."""
    percentage_of_resource_reserved: Annotated[int | None, Schema(minimum=1, maximum=100, format="int32")] = None
    """How much of the group's CPU and of its memory must stay free on the nodes of the group that are not drained."""


class DrainNodeGroupSpec(WireStruct):
    """Which nodes are emptied, and how."""

    node_selector: Annotated[LabelSelector | None, Schema(required=True)] = None
    """The nodes; an empty selector is all nodes."""
    ttl: GoDuration | None = None
    """How long the group may take; it is aborted afterwards."""
    cordon_policy: CordonPolicy = CordonPolicy()
    """How new pods are kept off each node that is drained."""
    execution_policy: ExecutionPolicy = ExecutionPolicy()
    """How many of the nodes that can be drained are drained."""
    termination_policy: TerminationPolicy = TerminationPolicy()
    """When no further node is planned."""


class DrainNodeGroupStatus(WireStruct):
    """How far the group has come."""

    phase: str = ""
    """Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted."""
    message: str = ""
    """Why the group is where it is."""
    total_count: Int32 = 0
    """The nodes of the group."""
    unavailable_count: Int32 = 0
    """Nodes that cannot be drained."""
    available_count: Int32 = 0
    """Nodes for all of whose pods places are reserved."""
    running_count: Int32 = 0
    """Nodes that are being drained."""
    succeeded_count: Int32 = 0
    """Nodes that are drained."""
    failed_count: Int32 = 0
    """Nodes whose drain was aborted after it had been confirmed."""
    conditions: list[DrainNodeCondition] = []
    """What is noteworthy."""


class DrainNodeGroup(Object):
    """Drains several nodes: makes Reservations for the pods of one node after the other while they fit on the rest, and
    then drains as many of the nodes as its spec says."""

    spec: DrainNodeGroupSpec = DrainNodeGroupSpec()
    status: DrainNodeGroupStatus = DrainNodeGroupStatus()
