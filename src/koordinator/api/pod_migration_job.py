"""scheduling.koordinator.sh PodMigrationJob: one pod on its way to another node."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import AtomicTexts, RequiredText, Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import Object, ObjectReference, WireStruct
from koordinator.api.reservation import ReservationTemplate
from koordinator.api.timestamps import Time

RESERVATION_FIRST: Final = "ReservationFirst"
EVICT_DIRECTLY: Final = "EvictDirectly"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ABORTED: Final = "Aborted"
"""The phases; an empty one counts as Pending."""

RESERVATION_CREATED: Final = "ReservationCreated"
RESERVATION_SCHEDULED: Final = "ReservationScheduled"
PREEMPTION: Final = "Preemption"
EVICTION: Final = "Eviction"
POD_SCHEDULED: Final = "PodScheduled"
POD_BOUND_RESERVATION: Final = "PodBoundReservation"
BOUND_POD_READY: Final = "BoundPodReady"
RESERVATION_BOUND: Final = "ReservationBound"
GANG_READY: Final = "GangReady"
"""The condition types."""

TIMEOUT: Final = "Timeout"
FAILED_CREATE_RESERVATION: Final = "FailedCreateReservation"
RESERVATION_EXPIRED: Final = "ReservationExpired"
UNSCHEDULABLE: Final = "Unschedulable"
FORBIDDEN_MIGRATE_POD: Final = "ForbiddenMigratePod"
MISSING_POD: Final = "MissingPod"
MISSING_RESERVATION: Final = "MissingReservation"
PREEMPTING: Final = "Preempting"
PREEMPT_COMPLETE: Final = "PreemptComplete"
EVICTING: Final = "Evicting"
FAILED_EVICT: Final = "FailedEvict"
EVICT_COMPLETE: Final = "EvictComplete"
WAIT_FOR_POD_BIND_RESERVATION: Final = "WaitForPodBindReservation"
WAIT_FOR_BOUND_POD_READY: Final = "WaitForBoundPodReady"
WAIT_FOR_GANG: Final = "WaitForGang"
GANG_NOT_MOVED: Final = "GangNotMoved"
"""The reasons."""


class Preconditions(WireStruct):
    """What must hold for an object to be deleted."""

    uid: str | None = None
    """The UID that it must have."""
    resource_version: str | None = None
    """The version that it must have."""


class DeleteOptions(WireStruct):
    """metav1.DeleteOptions."""

    api_version: str = ""
    """meta.k8s.io/v1 or v1."""
    kind: str = ""
    """DeleteOptions."""
    grace_period_seconds: int | None = None
    """How long the pod has to end; 0 is at once."""
    preconditions: Preconditions | None = None
    """What must hold for the pod to be deleted."""
    orphan_dependents: bool | None = None
    """Superseded by propagationPolicy."""
    propagation_policy: str | None = None
    """What becomes of the objects that the pod owns: Orphan, Background or Foreground."""
    dry_run: AtomicTexts = []
    """All: nothing is deleted."""
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None
    """Deletes what cannot be read any more."""


class PreemptionOptions(WireStruct):
    """Reserved; empty."""


class PodMigrateReservationOptions(WireStruct):
    """How the new place of the pod is reserved."""

    reservation_ref: ObjectReference | None = None
    """An existing reservation to move into."""
    template: Annotated[ReservationTemplate | None, Schema(schemaless=True)] = None
    """The reservation to create when none is referred to."""
    preemption_options: PreemptionOptions | None = None
    """Reserved; empty."""


class PodMigrationJobSpec(WireStruct):
    """Which pod is moved, and how."""

    paused: bool = False
    """Nothing is done while this is true."""
    ttl: GoDuration | None = None
    """How long the job may take."""
    mode: str = ""
    """ReservationFirst or EvictDirectly; empty is what the descheduler is configured to."""
    pod_ref: Annotated[ObjectReference | None, Schema(required=True)] = None
    """The pod."""
    reservation_options: PodMigrateReservationOptions | None = None
    """How the new place of the pod is reserved."""
    delete_options: DeleteOptions | None = None
    """How the pod is evicted."""


class PodMigrationJobCondition(WireStruct):
    """A step of the job and how it went."""

    type: RequiredText = ""
    """The step, such as ReservationScheduled."""
    status: RequiredText = ""
    """True once it is done, False when it failed."""
    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    """When it was last looked at."""
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    """When the status last changed."""
    reason: str = ""
    """Why, as one word for programs."""
    message: str = ""
    """Why, in words for people."""


class PreemptedReservation(WireStruct):
    """A reservation that was made for a pod that gave way."""

    namespace: str = ""
    """The namespace of the reservation."""
    name: str = ""
    """The name of the reservation."""
    node_name: str = ""
    """The node that it is on."""
    phase: str = ""
    """The phase of the reservation."""
    preempted_pod_ref: ObjectReference | None = None
    """The pod that gave way."""
    pods_ref: list[ObjectReference] = []
    """The pods that use the reservation."""


class PodMigrationJobStatus(WireStruct):
    """How far the job has come."""

    phase: str = ""
    """Pending, Running, Succeeded, Failed or Aborted."""
    status: str = ""
    """The step that the job is at: the type of the condition written last, Complete at the end."""
    reason: str = ""
    """Why the job is where it is, as one word for programs."""
    message: str = ""
    """Why the job is where it is, in words for people."""
    conditions: list[PodMigrationJobCondition] = []
    """The steps that were taken."""
    node_name: str = ""
    """The node that the pod goes to."""
    pod_ref: ObjectReference | None = None
    """The pod that took the place of the moved one."""
    preempted_pods_ref: list[ObjectReference] = []
    """Pods that gave way to it."""
    preempted_pods_reservation: list[PreemptedReservation] = []
    """Reservations for the pods that gave way."""


class PodMigrationJob(Object):
    """Moves one pod to another node: makes a Reservation first, unless the spec says otherwise, and evicts the pod."""

    spec: PodMigrationJobSpec = PodMigrationJobSpec()
    status: PodMigrationJobStatus = PodMigrationJobStatus()
