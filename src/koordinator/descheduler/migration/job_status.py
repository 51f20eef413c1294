"""The status of a PodMigrationJob: conditions, and the patch from one status to the next."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api import pod_migration_job as jobs
from koordinator.api.codec import to_document
from koordinator.api.drain_node import DrainNodeCondition
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobCondition, PodMigrationJobStatus
from koordinator.api.struct_fields import struct_fields

S = TypeVar("S", bound=msgspec.Struct)
C = TypeVar("C", PodMigrationJobCondition, DrainNodeCondition)

COMPLETE: Final = "Complete"
"""``status.status`` of a job that has succeeded."""
INVALID_POD_REF: Final = "InvalidPodRef"
TRUE: Final = "True"
FALSE: Final = "False"
_TERMINAL: Final = frozenset({jobs.SUCCEEDED, jobs.FAILED, jobs.ABORTED})


def is_terminal(job: PodMigrationJob) -> bool:
    """Whether the job has ended, in whatever way."""
    return job.status.phase in _TERMINAL


def condition_of(status: PodMigrationJobStatus, type_: str) -> PodMigrationJobCondition | None:
    return next((condition for condition in status.conditions if condition.type == type_), None)


def is_true(status: PodMigrationJobStatus, type_: str) -> bool:
    condition = condition_of(status, type_)
    return condition is not None and condition.status == TRUE


def with_condition(
    status: PodMigrationJobStatus, new: PodMigrationJobCondition, now: datetime
) -> PodMigrationJobStatus:
    """The status with ``new`` in place of the condition of its type; the same object if that changes nothing.

    The transition time is kept where the condition's status stays, and is ``now`` otherwise."""
    old = condition_of(status, new.type)
    changed = since_transition(new, old, now)
    if changed == old:
        return status
    conditions = [changed if each is old else each for each in status.conditions] + [changed] * (old is None)
    return msgspec.structs.replace(status, conditions=conditions)


def since_transition(new: C, old: C | None, now: datetime) -> C:
    """A condition of any kind with the time since which its status is what it is: ``old`` is the one before."""
    stays = old is not None and old.status == new.status
    moment = old.last_transition_time if stays and old is not None else now.replace(microsecond=0)
    return msgspec.structs.replace(new, last_transition_time=moment)


def at_condition(status: PodMigrationJobStatus, new: PodMigrationJobCondition, now: datetime) -> PodMigrationJobStatus:
    """``with_condition``, and the job is at that step now; the same object if the condition is there already."""
    changed = with_condition(status, new, now)
    if changed is status:
        return status
    return msgspec.structs.replace(changed, status=new.type, reason=new.reason, message=new.message)


def status_patch(old: S, new: S) -> dict[str, Any]:
    """The merge patch of a status; lists are written whole, what has become empty is removed."""
    patch: dict[str, Any] = {}
    for field in struct_fields(type(new)):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            patch[field.wire_name] = to_document(after) if after else None
    return patch
