"""The status of a ReplicaSet or a ReplicationController, worked out from its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from koordinator.api.meta import Condition
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.conditions import find_condition, whole_seconds, without_condition
from koordinator.cluster.controllers.pod_state import available_in, is_ready
from koordinator.cluster.controllers.workloads import ReplicaSetStatus, Replicated

REPLICA_FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Observation:
    """The pods of one owner, and what its controller failed to do with them."""

    active: Sequence[Pod]
    terminating: int | None
    """None where the status does not count them."""
    failure: str = ""
    """The error of the last creates and deletes; empty if they succeeded."""


def new_status(owner: Replicated, seen: Observation, now: datetime) -> ReplicaSetStatus:
    """The status that the owner should have at ``now``."""
    spec = owner.spec
    labels = ((spec.template.get("metadata") or {}).get("labels") or {}).items()
    waits = [available_in(pod, spec.min_ready_seconds, now) for pod in seen.active]
    return msgspec.structs.replace(
        owner.status,
        replicas=len(seen.active),
        fully_labeled_replicas=sum(labels <= pod.metadata.labels.items() for pod in seen.active),
        ready_replicas=sum(is_ready(pod) for pod in seen.active),
        available_replicas=sum(wait is not None and not wait for wait in waits),
        terminating_replicas=seen.terminating,
        observed_generation=owner.metadata.generation,
        conditions=_conditions(owner, seen, now),
    )


def next_available_in(owner: Replicated, active: Sequence[Pod], now: datetime) -> float | None:
    """After how many seconds another pod becomes available, unless it ceases to be ready; None if none does."""
    waits = [available_in(pod, owner.spec.min_ready_seconds, now) for pod in active]
    return min((wait.total_seconds() for wait in waits if wait), default=None)


def _conditions(owner: Replicated, seen: Observation, now: datetime) -> list[Condition]:
    conditions = owner.status.conditions
    if not seen.failure:
        return without_condition(conditions, REPLICA_FAILURE)
    if find_condition(conditions, REPLICA_FAILURE) is not None:
        return conditions
    too_few = len(seen.active) < owner.wanted
    failure = Condition(
        type=REPLICA_FAILURE,
        status="True",
        reason="FailedCreate" if too_few else "FailedDelete",
        message=seen.failure,
        last_transition_time=whole_seconds(now),
    )
    return [*conditions, failure]
