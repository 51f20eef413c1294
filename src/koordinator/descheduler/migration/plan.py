"""The inputs of the state machine of PodMigrationJobs, and its possible steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJobStatus
from koordinator.api.reservation import Reservation
from koordinator.descheduler.plan_controller import PlannedEvent


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The cluster around one job."""

    pod: Pod | None = None
    """The pod that ``spec.podRef`` names, whatever its uid."""
    reservation: Reservation | None = None
    """The Reservation that the job refers to; before it refers to one, that which was created for it."""
    bound_pod: Pod | None = None
    """The pod that uses the Reservation."""
    limited: bool = False
    """Too many pods of the same workload or namespace have been evicted lately."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Patch the job's status so that it becomes this."""

    status: PodMigrationJobStatus


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Merge this into the job, but for its status."""

    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create the Reservation for the job's pod; that it exists already is as good."""

    def __str__(self) -> str:
        return "create a Reservation for its pod"


@dataclass(frozen=True, slots=True)
class OrderReservation:
    """Label a Reservation that has no place in the order of Reservations."""

    name: str
    order: str

    def __str__(self) -> str:
        return f"put Reservation {self.name} in order"


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete a Reservation; that it is gone is as good."""

    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete Reservation {self.name}"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict this very pod in this way."""

    pod: Pod
    policy: str

    def __str__(self) -> str:
        return f"evict pod {self.pod.metadata.key} from node {self.pod.spec.node_name}"


Step = WriteStatus | PatchJob | CreateReservation | OrderReservation | DeleteReservation | EvictPod


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Steps to take in this order, each only once the one before it has succeeded.

    After all of them ``events`` are recorded and the job is reconciled again at once. Without steps, it is reconciled
    again after ``after`` seconds, or, if that is None, when something about it changes."""

    steps: tuple[Step, ...] = ()
    events: tuple[PlannedEvent, ...] = ()
    after: float | None = None
    final: bool = False
    """Nothing is left to decide after the steps."""
