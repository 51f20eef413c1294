"""scheduling.koordinator.sh Reservation: capacity of a node that is reserved for pods that are to come."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from koordinator.api.constraints import Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, LabelSelector, Object, ObjectReference, OwnerReference, WireStruct
from koordinator.api.node import Taint
from koordinator.api.pod import PodTemplateSpec, ResourceList
from koordinator.api.timestamps import Time

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
    """The controller of pods, with its namespace."""

    namespace: str = ""
    """The namespace of the controller."""


class ReservationOwner(WireStruct):
    """Pods that may use the reservation: all that is given here must match."""

    struct_schema: ClassVar[Schema] = Schema(min_properties=1)

    object: ObjectReference | None = None
    """One pod."""
    controller: ReservationControllerReference | None = None
    """The controller of the pods."""
    label_selector: LabelSelector | None = None
    """The labels of the pods."""


class PreAllocationPolicy(WireStruct):
    """Which running pods a reservation may be carved out of."""

    mode: Annotated[str, Schema(enum=(DEFAULT_MODE, CLUSTER_MODE), default=DEFAULT_MODE)] = ""
    """Default: candidates are the owners; Cluster: all pods with the label that says so."""
    enable_multiple: Annotated[bool, Schema(default=False)] = False
    """Whether several pods may be taken together."""


class ReservationSpec(WireStruct):
    """What is reserved, for whom and for how long."""

    template: Annotated[PodTemplateSpec | None, Schema(required=True, schemaless=True)] = None
    """What a pod would have to request to be placed where the reservation goes."""
    owners: Annotated[list[ReservationOwner], Schema(required=True, min_items=1)] = []
    """Each entry alone is enough."""
    ttl: Annotated[GoDuration | None, Schema(default="24h")] = None
    """How long after creation the reservation expires; zero is never."""
    expires: Time | None = None
    """When the reservation expires, unless ttl is zero or is over before; the default ttl does not count beside it."""
    pre_allocation: bool = False
    """Whether resources may be reserved that running pods still use."""
    pre_allocation_policy: PreAllocationPolicy | None = None
    """Which running pods these may be."""
    allocate_once: Annotated[bool | None, Schema(default=True)] = None
    """Whether the reservation is used up by the first pod that it is allocated to."""
    allocate_policy: Annotated[str, Schema(enum=(ALIGNED, RESTRICTED))] = ""
    """Aligned: its pods may take more from the node than is reserved; Restricted: they may not take more of what is
    reserved."""
    unschedulable: bool = False
    """No further owners."""
    taints: list[Taint] = []
    """Keep pods out that do not tolerate them."""


class ReservationCondition(WireStruct):
    """One aspect of a reservation's state."""

    type: str = ""
    """What it is about: Scheduled or Ready."""
    status: str = ""
    """True, False or Unknown."""
    reason: str = ""
    """Why it is so, as one word for programs."""
    message: str = ""
    """Why it is so, in words for people."""
    last_probe_time: Time | None = None
    """When it was last looked at."""
    last_transition_time: Time | None = None
    """When the status last changed."""


class ReservationStatus(WireStruct):
    """Where the reservation is, and who uses it."""

    phase: Annotated[str, Schema(default=PENDING)] = ""
    """Pending, Available, Succeeded, Waiting or Failed."""
    conditions: list[ReservationCondition] = []
    """Whether it has been placed, and whether it can be used."""
    current_owners: list[ObjectReference] = []
    """The pods that use it."""
    node_name: str = ""
    """The node that it is on."""
    allocatable: ResourceList = {}
    """What is reserved."""
    allocated: ResourceList = {}
    """What its pods use of that."""


class Reservation(Object):
    """Resources of a node that are kept for pods to come. It is placed like a pod; the pods that own it are then
    placed into it."""

    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()


ReservationTemplate = FreeForm
"""Metadata and spec of a reservation that another object carries, kept word for word: it is copied, not read."""
