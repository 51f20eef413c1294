"""scheduling.koordinator.sh DrainNode: one node that is to be emptied without losing capacity."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import RequiredText, Schema
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector, Object, WireStruct
from koordinator.api.pod_migration_job import EVICT_DIRECTLY, RESERVATION_FIRST, DeleteOptions
from koordinator.api.timestamps import Time

WAIT_FOR_CONFIRM: Final = "WaitForConfirm"
CONFIRMED: Final = "Confirmed"
REJECTED: Final = "Rejected"
CONFIRM_ABORTED: Final = "Aborted"

UNSCHEDULABLE: Final = "Unschedulable"
TAINT: Final = "Taint"
LABEL: Final = "Label"
NO_CORDON: Final = "None"

MIGRATE_DIRECTLY: Final = "MigrateDirectly"
WAIT_FIRST: Final = "WaitFirst"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
COMPLETE: Final = "Complete"
ABORTED: Final = "Aborted"
"""The phases."""

POD_UNMIGRATABLE: Final = "Unmigratable"
POD_WAITING: Final = "Waiting"
POD_READY: Final = "Ready"
POD_AVAILABLE: Final = "Available"
POD_UNAVAILABLE: Final = "Unavailable"
POD_MIGRATING: Final = "Migrating"
POD_SUCCEED: Final = "Succeed"
POD_FAILED: Final = "Failed"
POD_PHASES: Final = (
    POD_UNMIGRATABLE,
    POD_WAITING,
    POD_READY,
    POD_AVAILABLE,
    POD_UNAVAILABLE,
    POD_MIGRATING,
    POD_SUCCEED,
    POD_FAILED,
)

ONCE_AVAILABLE: Final = "OnceAvailable"
UNMIGRATABLE_POD_EXISTS: Final = "UnmigratablePodExists"
UNEXPECTED_RESERVATION_EXISTS: Final = "UnexpectedReservationExists"
UNAVAILABLE_RESERVATION_EXISTS: Final = "UnavailableReservationExists"
FAILED_MIGRATION_JOB_EXISTS: Final = "FailedMigrationJobExists"
UNEXPECTED_POD_AFTER_COMPLETE_EXISTS: Final = "UnexpectedPodAfterCompleteExists"
"""The condition types; True is noteworthy."""


class CordonPolicy(WireStruct):
    """How new pods are kept off the node."""

    mode: Annotated[str, Schema(enum=(UNSCHEDULABLE, TAINT, LABEL, NO_CORDON), default=UNSCHEDULABLE)] = UNSCHEDULABLE
    """Unschedulable: spec.unschedulable; Taint: a NoSchedule taint; Label: the labels below; None: not at all."""
    labels: dict[str, str] = {}
    """The labels of the mode Label."""


class MigrationPolicy(WireStruct):
    """When pods are moved."""

    mode: Annotated[str, Schema(enum=(MIGRATE_DIRECTLY, WAIT_FIRST), default=MIGRATE_DIRECTLY)] = MIGRATE_DIRECTLY
    """MigrateDirectly: at once; WaitFirst: pods may end by themselves before."""
    wait_duration: Annotated[GoDuration, Schema(default="1h")] = GoDuration(hours=1)
    """How long they may take to."""


class DrainNodeSpec(WireStruct):
    """Which node is emptied, and how."""

    node_name: RequiredText = ""
    """The node; changing it aborts the drain."""
    ttl: GoDuration | None = None
    """How long the drain may take; it is rolled back afterwards."""
    confirm_state: Annotated[
        str, Schema(enum=(WAIT_FOR_CONFIRM, CONFIRMED, REJECTED, CONFIRM_ABORTED), default=CONFIRMED)
    ] = CONFIRMED
    """WaitForConfirm: places are reserved and nothing is evicted; Rejected and Aborted roll everything back."""
    cordon_policy: CordonPolicy = CordonPolicy()
    """How new pods are kept off the node."""
    migration_policy: MigrationPolicy = MigrationPolicy()
    """When pods are moved."""
    migration_mode: Annotated[str, Schema(enum=(RESERVATION_FIRST, EVICT_DIRECTLY), default=RESERVATION_FIRST)] = (
        RESERVATION_FIRST
    )
    """ReservationFirst or EvictDirectly."""
    pod_selector: LabelSelector | None = None
    """Which pods are moved; all without it."""
    force: bool = False
    """Whether pods without a controller are evicted; they are not created anew."""
    delete_empty_dir_data: bool = False
    """Whether pods are evicted that lose data with it."""
    delete_options: DeleteOptions | None = None
    """How pods are evicted."""
    eviction_policy: str = ""
    """Eviction, Delete or SoftEviction; empty is what the descheduler is configured to."""


class PodMigration(WireStruct):
    """One pod on its way off the node."""

    uid: str = ""
    """The UID of the pod."""
    namespace: str = ""
    """The namespace of the pod."""
    pod_name: str = ""
    """The name of the pod."""
    phase: str = ""
    """Unmigratable, Waiting, Ready, Available, Unavailable, Migrating, Succeed or Failed."""
    message: str = ""
    """Why the pod is where it is."""
    start_timestamp: Time | None = None
    """When the pod was first seen."""
    last_transition_timestamp: Time | None = None
    """When the phase last changed."""
    started_after_confirmed: bool = False
    """Whether the pod was first seen after the drain was confirmed."""
    reservation_name: str = ""
    """The Reservation that keeps the pod's new place."""
    reservation_phase: str = ""
    """Its phase."""
    target_node: str = ""
    """The node that it is on."""
    pod_migration_job_name: str = ""
    """The PodMigrationJob that moves the pod."""
    pod_migration_job_paused: bool = False
    """Whether that was created paused."""
    pod_migration_job_phase: str = ""
    """Its phase."""


class DrainNodeCondition(WireStruct):
    """Something noteworthy about the drain, while its status is True."""

    type: RequiredText = ""
    """What it is about."""
    status: RequiredText = ""
    """True or False."""
    reason: str = ""
    """Why, as one word for programs."""
    message: str = ""
    """Why, in words for people."""
    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    """When it was last looked at."""
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    """When the status last changed."""


class DrainNodeStatus(WireStruct):
    """How far the drain has come."""

    phase: str = ""
    """Pending, Running, Complete or Aborted."""
    message: str = ""
    """Why the drain is where it is."""
    pod_migrations: list[PodMigration] = []
    """The pods."""
    pod_migration_summary: dict[str, int] = {}
    """How many pods are in each phase."""
    conditions: list[DrainNodeCondition] = []
    """What is noteworthy."""


class DrainNode(Object):
    """Empties one node: keeps new pods off, reserves a place for every pod, and then moves them within the limits of
    migration and of disruption budgets."""

    spec: DrainNodeSpec = DrainNodeSpec()
    status: DrainNodeStatus = DrainNodeStatus()
