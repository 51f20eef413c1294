"""scheduling.koordinator.sh PodMigrationJob: one pod on its way to another node."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from koordinator.api.constraints import AtomicTexts, RequiredText, Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import Object, ObjectReference, WireStruct
from koordinator.api.reservation import ReservationTemplate

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
"""The reasons."""


class Preconditions(WireStruct):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(WireStruct):
    """metav1.DeleteOptions."""

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: AtomicTexts = []
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None


class PreemptionOptions(WireStruct):
    """Reserved; empty."""


class PodMigrateReservationOptions(WireStruct):
    reservation_ref: ObjectReference | None = None
    """An existing reservation to move into."""
    template: Annotated[ReservationTemplate | None, Schema(schemaless=True)] = None
    """The reservation to create when none is referred to."""
    preemption_options: PreemptionOptions | None = None


class PodMigrationJobSpec(WireStruct):
    paused: bool = False
    ttl: GoDuration | None = None
    """How long the job may take."""
    mode: str = ""
    """ReservationFirst or EvictDirectly; empty is what the descheduler is configured to."""
    pod_ref: Annotated[ObjectReference | None, Schema(required=True)] = None
    reservation_options: PodMigrateReservationOptions | None = None
    delete_options: DeleteOptions | None = None


class PodMigrationJobCondition(WireStruct):
    type: RequiredText = ""
    status: RequiredText = ""
    last_probe_time: Annotated[datetime | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[datetime | None, Schema(nullable=True)] = None
    reason: str = ""
    message: str = ""


class PreemptedReservation(WireStruct):
    namespace: str = ""
    name: str = ""
    node_name: str = ""
    phase: str = ""
    preempted_pod_ref: ObjectReference | None = None
    pods_ref: list[ObjectReference] = []


class PodMigrationJobStatus(WireStruct):
    phase: str = ""
    status: str = ""
    """The step that the job is at: the type of the condition written last, Complete at the end."""
    reason: str = ""
    message: str = ""
    conditions: list[PodMigrationJobCondition] = []
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    """The pod that took the place of the moved one."""
    preempted_pods_ref: list[ObjectReference] = []
    preempted_pods_reservation: list[PreemptedReservation] = []


class PodMigrationJob(Object):
    spec: PodMigrationJobSpec = PodMigrationJobSpec()
    status: PodMigrationJobStatus = PodMigrationJobStatus()
