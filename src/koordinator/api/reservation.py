"""scheduling.koordinator.sh Reservation: room on a node kept for pods that are to come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final

from koordinator.api.constraints import Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, LabelSelector, Object, ObjectReference, OwnerReference, WireStruct
from koordinator.api.node import Taint
from koordinator.api.pod import PodTemplateSpec, ResourceList

PENDING: Final = "Pending"
AVAILABLE: Final = "Available"
SUCCEEDED: Final = "Succeeded"
WAITING: Final = "Waiting"
FAILED: Final = "Failed"
"""The phases."""

SCHEDULED_CONDITION: Final = "Scheduled"
READY_CONDITION: Final = "Ready"
REASON_SCHEDULED: Final = "Scheduled"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_AVAILABLE: Final = "Available"
REASON_SUCCEEDED: Final = "Succeeded"
REASON_EXPIRED: Final = "Expired"

ALIGNED: Final = "Aligned"
"""Owners may draw from the node too when the reservation is not enough."""
RESTRICTED: Final = "Restricted"
"""Owners take the reserved resources from the reservation only."""

DEFAULT_MODE: Final = "Default"
CLUSTER_MODE: Final = "Cluster"


class ReservationControllerReference(OwnerReference):
    namespace: str = ""


class ReservationOwner(WireStruct):
    """Pods that may use the reservation: all that is given here must match."""

    struct_schema: ClassVar[Schema] = Schema(min_properties=1)

    object: ObjectReference | None = None
    controller: ReservationControllerReference | None = None
    label_selector: LabelSelector | None = None


class PreAllocationPolicy(WireStruct):
    mode: Annotated[str, Schema(enum=(DEFAULT_MODE, CLUSTER_MODE), default=DEFAULT_MODE)] = ""
    """Default: candidates are the owners; Cluster: all pods with the label that says so."""
    enable_multiple: Annotated[bool, Schema(default=False)] = False


class ReservationSpec(WireStruct):
    template: Annotated[PodTemplateSpec | None, Schema(required=True, schemaless=True)] = None
    """What a pod would have to ask for to be placed where the reservation goes."""
    owners: Annotated[list[ReservationOwner], Schema(required=True, min_items=1)] = []
    """Each entry alone is enough."""
    ttl: Annotated[GoDuration | None, Schema(default="24h")] = None
    """How long after creation the reservation expires; zero is never."""
    expires: datetime | None = None
    """When the reservation expires; goes before ttl."""
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: Annotated[bool | None, Schema(default=True)] = None
    allocate_policy: Annotated[str, Schema(enum=(ALIGNED, RESTRICTED))] = ""
    unschedulable: bool = False
    """No further owners."""
    taints: list[Taint] = []


class ReservationCondition(WireStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReservationStatus(WireStruct):
    phase: Annotated[str, Schema(default=PENDING)] = ""
    conditions: list[ReservationCondition] = []
    current_owners: list[ObjectReference] = []
    node_name: str = ""
    allocatable: ResourceList = {}
    allocated: ResourceList = {}


class Reservation(Object):
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()


ReservationTemplate = FreeForm
"""Metadata and spec of a reservation that another object carries, kept word for word: it is copied, not read."""
