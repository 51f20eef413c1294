"""What is known from a job, its pod and its Reservation."""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels
from koordinator.api import pod_migration_job as jobs
from koordinator.api.kinds import DRAIN_NODES
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions, PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.descheduler.migration.arguments import EVICTION_POLICIES, MigrationControllerArgs
from koordinator.descheduler.migration.job_status import FALSE, is_terminal
from koordinator.descheduler.pod_facts import pod_condition

CREATED_BY: Final = "koord-descheduler"
EVICTED_POD: Final = "descheduler.koordinator.sh/evicted-pod"
"""Annotation of a job: the uid of the pod that it has begun to evict."""
EVICTED_POD_CONTROLLER: Final = "descheduler.koordinator.sh/evicted-pod-controller"
"""Annotation of a job: the uid of that pod's controller; a successor counts the eviction by it."""


def has_passed_arbitration(job: PodMigrationJob) -> bool:
    """Whether the job may be worked on; one that runs was let through, by whatever program."""
    return (
        job.status.phase == jobs.RUNNING or job.metadata.annotations.get(annotation_keys.PASSED_ARBITRATION) == "true"
    )


def waits(job: PodMigrationJob) -> bool:
    """Whether the job is one for arbitration: not let through, not ended, neither held back nor being deleted."""
    held = job.spec.paused or job.metadata.deletion_timestamp is not None
    return not (held or is_terminal(job) or has_passed_arbitration(job))


def refers_to(job: PodMigrationJob, pod: Pod) -> bool:
    """Whether the job is for this very pod, which has the name that the job refers to; a job may name no uid."""
    reference = job.spec.pod_ref
    return reference is not None and reference.uid in ("", pod.metadata.uid)


def is_of_drain_node(job: PodMigrationJob) -> bool:
    """Whether a DrainNode controls the job, which has decided by its own rules whether the pod may be moved."""
    controller = controller_of(job.metadata)
    return controller is not None and controller.kind == DRAIN_NODES.name


def is_own_reservation(found: Reservation) -> bool:
    """Whether a Reservation was made for a migration, and not given by a user."""
    return found.metadata.labels.get(labels.CREATED_BY) == CREATED_BY


def holds_nothing(found: Reservation) -> bool:
    """Whether a Reservation is on a node for a pod that requests nothing: its replacement will not use it."""
    status = found.status
    return bool(status.node_name) and not status.current_owners and not any(status.allocatable.values())


def trigger_and_reason(job: PodMigrationJob) -> tuple[str, str]:
    """Who requested the eviction, and why."""
    trigger = job.metadata.annotations.get(annotation_keys.EVICT_TRIGGER, "")
    return trigger, job.metadata.annotations.get(annotation_keys.EVICT_REASON, "") or trigger or "NotSet"


def delete_options(job: PodMigrationJob, args: MigrationControllerArgs) -> DeleteOptions | None:
    return job.spec.delete_options or args.default_delete_options


def eviction_policy(job: PodMigrationJob, pod: Pod, args: MigrationControllerArgs) -> str:
    """How the pod is evicted: as it says itself, else as the job says, else as configured."""
    named = pod.metadata.labels.get(labels.EVICT_POLICY) or job.metadata.labels.get(labels.EVICT_POLICY, "")
    return named if named in EVICTION_POLICIES else args.eviction_policy


def is_unschedulable(pod: Pod) -> bool:
    """Whether the pod waits for a node that the scheduler has not found."""
    condition = pod_condition(pod, "PodScheduled")
    return pod.status.phase == "Pending" and condition is not None and condition.status == FALSE
