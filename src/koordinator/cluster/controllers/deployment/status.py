"""The status of a Deployment: counts, and the conditions that `kubectl rollout status` and `kubectl wait` read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from koordinator.cluster.controllers.conditions import find_condition, whole_seconds, without_condition
from koordinator.cluster.controllers.deployment.sizes import Fleet, least_replicas
from koordinator.cluster.controllers.replica_set.status import REPLICA_FAILURE
from koordinator.cluster.controllers.workloads import (
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    ReplicaSet,
)

AVAILABLE, PROGRESSING = "Available", "Progressing"
NEW_CREATED: Final = "NewReplicaSetCreated"
NEW_FOUND: Final = "FoundNewReplicaSet"
CREATE_FAILED: Final = "ReplicaSetCreateError"
_NEW_AVAILABLE: Final = "NewReplicaSetAvailable"
_UPDATED: Final = "ReplicaSetUpdated"
_TIMED_OUT: Final = "ProgressDeadlineExceeded"
_PAUSED: Final = "DeploymentPaused"
_RESUMED: Final = "DeploymentResumed"
_NO_DEADLINE: Final = 2**31 - 1
_MARGIN_SECONDS: Final = 1.0
"""The deadline is looked at again so long after it, since times have whole seconds."""


def has_deadline(deployment: Deployment) -> bool:
    """Whether the progress of the Deployment is reported and has a deadline."""
    return deployment.spec.progress_deadline_seconds not in (None, _NO_DEADLINE)


def progressing(status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    """A condition Progressing that begins at ``now``."""
    return _condition(PROGRESSING, status, reason, message, now)


def with_condition(conditions: Sequence[DeploymentCondition], new: DeploymentCondition) -> list[DeploymentCondition]:
    """The conditions with ``new`` in the place of the one of its type, which stays if status and reason are the same.
    The time of the transition is kept while the status does not change."""
    old = find_condition(conditions, new.type)
    if old is not None and old.status == new.status:
        if old.reason == new.reason:
            return list(conditions)
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return [*without_condition(conditions, new.type), new]


def with_pause(deployment: Deployment, now: datetime) -> Deployment:
    """Note in the status that the Deployment was paused or resumed, so that the pause counts for no deadline."""
    current = find_condition(deployment.status.conditions, PROGRESSING)
    reason = current.reason if current is not None else ""
    if not has_deadline(deployment) or reason == _TIMED_OUT:
        return deployment
    if deployment.spec.paused and reason != _PAUSED:
        return with_progress(deployment, progressing("Unknown", _PAUSED, "Deployment is paused", now))
    if not deployment.spec.paused and reason == _PAUSED:
        return with_progress(deployment, progressing("Unknown", _RESUMED, "Deployment is resumed", now))
    return deployment


def with_progress(deployment: Deployment, condition: DeploymentCondition) -> Deployment:
    """The Deployment with this condition in its status."""
    conditions = with_condition(deployment.status.conditions, condition)
    return msgspec.structs.replace(deployment, status=msgspec.structs.replace(deployment.status, conditions=conditions))


def counted(deployment: Deployment, fleet: Fleet, now: datetime) -> DeploymentStatus:
    """The status with its counts and the condition Available, without any about progress that is new."""
    all_sets, new = fleet.all, [fleet.new] if fleet.new is not None else []
    available = sum(each.status.available_replicas for each in all_sets)
    is_available = available >= least_replicas(deployment)
    condition = _condition(
        AVAILABLE,
        "True" if is_available else "False",
        "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
        f"Deployment {'has' if is_available else 'does not have'} minimum availability.",
        now,
    )
    return msgspec.structs.replace(
        deployment.status,
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in all_sets),
        updated_replicas=sum(each.status.replicas for each in new),
        ready_replicas=sum(each.status.ready_replicas for each in all_sets),
        available_replicas=available,
        unavailable_replicas=max(0, sum(each.wanted for each in all_sets) - available),
        terminating_replicas=sum(each.status.terminating_replicas or 0 for each in all_sets),
        conditions=with_condition(deployment.status.conditions, condition),
    )


def rolled_out(deployment: Deployment, fleet: Fleet, now: datetime) -> DeploymentStatus:
    """The status during a rollout: ``counted``, with the progress and the failures of the ReplicaSets."""
    status = counted(deployment, fleet, now)
    conditions: Sequence[DeploymentCondition] = status.conditions
    if not has_deadline(deployment):
        conditions = without_condition(conditions, PROGRESSING)
    elif not _was_complete(deployment, status):
        conditions = _progressed(deployment, status, fleet.new, now)
    failure = _failure(fleet)
    if failure is None:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    else:
        conditions = with_condition(conditions, failure)
    return msgspec.structs.replace(status, conditions=list(conditions))


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether all wanted pods are of the current template and available, and no other ones are left."""
    counts = (status.updated_replicas, status.replicas, status.available_replicas)
    has_seen = status.observed_generation >= deployment.metadata.generation
    return has_seen and all(count == deployment.wanted for count in counts)


def deadline_in(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float | None:
    """After how many seconds the progress deadline is to be looked at again; None if nothing can come of that."""
    current = find_condition(status.conditions, PROGRESSING)
    if current is None or not has_deadline(deployment) or current.reason in (_TIMED_OUT, _NEW_AVAILABLE, _PAUSED):
        return None
    return max(0.0, (_deadline(deployment, current, now) - now).total_seconds()) + _MARGIN_SECONDS


def _was_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    current = find_condition(deployment.status.conditions, PROGRESSING)
    is_done = current is not None and current.reason == _NEW_AVAILABLE
    return is_done and status.replicas == status.updated_replicas


def _progressed(
    deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, now: datetime
) -> Sequence[DeploymentCondition]:
    what = f'ReplicaSet "{new.metadata.name}"' if new is not None else f'Deployment "{deployment.metadata.name}"'
    if is_complete(deployment, status):
        done = progressing("True", _NEW_AVAILABLE, f"{what} has successfully progressed.", now)
        return with_condition(status.conditions, done)
    if _has_progressed(deployment.status, status):
        # In the place of one that says the same, as its time is that of the last progress.
        current = find_condition(deployment.status.conditions, PROGRESSING)
        moved = progressing("True", _UPDATED, f"{what} is progressing.", now)
        if current is not None and current.status == "True":
            moved = msgspec.structs.replace(moved, last_transition_time=current.last_transition_time)
        return [*without_condition(status.conditions, PROGRESSING), moved]
    if _is_overdue(deployment, status, now):
        late = progressing("False", _TIMED_OUT, f"{what} has timed out progressing.", now)
        return with_condition(status.conditions, late)
    return status.conditions


def _has_progressed(old: DeploymentStatus, new: DeploymentStatus) -> bool:
    return (
        new.updated_replicas > old.updated_replicas
        or new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        or new.ready_replicas > old.ready_replicas
        or new.available_replicas > old.available_replicas
    )


def _is_overdue(deployment: Deployment, status: DeploymentStatus, now: datetime) -> bool:
    current = find_condition(status.conditions, PROGRESSING)
    if current is None or current.reason == _NEW_AVAILABLE:
        return False
    return current.reason == _TIMED_OUT or _deadline(deployment, current, now) < now


def _deadline(deployment: Deployment, current: DeploymentCondition, now: datetime) -> datetime:
    since = current.last_update_time or now
    return since + timedelta(seconds=deployment.spec.progress_deadline_seconds or 0)


def _failure(fleet: Fleet) -> DeploymentCondition | None:
    """The failure of the new ReplicaSet; else that of another one."""
    for each in (fleet.new, *fleet.old):
        found = find_condition(each.status.conditions, REPLICA_FAILURE) if each is not None else None
        if found is not None:
            return DeploymentCondition(
                type=found.type,
                status=found.status,
                reason=found.reason,
                message=found.message,
                last_update_time=found.last_transition_time,
                last_transition_time=found.last_transition_time,
            )
    return None


def _condition(type_: str, status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    moment = whole_seconds(now)
    return DeploymentCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_update_time=moment,
        last_transition_time=moment,
    )
