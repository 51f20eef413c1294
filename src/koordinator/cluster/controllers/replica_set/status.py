"""The status of a ReplicaSet, worked out from its pods."""

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
from koordinator.cluster.controllers.workloads import ReplicaSet, ReplicaSetStatus

REPLICA_FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Observation:
    """The pods of a ReplicaSet, and what its controller failed to do with them."""

    active: Sequence[Pod]
    terminating: int
    failure: str = ""
    """The error of the last creates and deletes; empty if they succeeded."""


def new_status(replica_set: ReplicaSet, seen: Observation, now: datetime) -> ReplicaSetStatus:
    """The status that the ReplicaSet should have at ``now``."""
    spec = replica_set.spec
    labels = ((spec.template.get("metadata") or {}).get("labels") or {}).items()
    waits = [available_in(pod, spec.min_ready_seconds, now) for pod in seen.active]
    return msgspec.structs.replace(
        replica_set.status,
        replicas=len(seen.active),
        fully_labeled_replicas=sum(labels <= pod.metadata.labels.items() for pod in seen.active),
        ready_replicas=sum(is_ready(pod) for pod in seen.active),
        available_replicas=sum(wait is not None and not wait for wait in waits),
        terminating_replicas=seen.terminating,
        observed_generation=replica_set.metadata.generation,
        conditions=_conditions(replica_set, seen, now),
    )


def next_available_in(replica_set: ReplicaSet, active: Sequence[Pod], now: datetime) -> float | None:
    """After how many seconds another pod becomes available, unless it ceases to be ready; None if none does."""
    waits = [available_in(pod, replica_set.spec.min_ready_seconds, now) for pod in active]
    return min((wait.total_seconds() for wait in waits if wait), default=None)


def _conditions(replica_set: ReplicaSet, seen: Observation, now: datetime) -> list[Condition]:
    conditions = replica_set.status.conditions
    if not seen.failure:
        return without_condition(conditions, REPLICA_FAILURE)
    if find_condition(conditions, REPLICA_FAILURE) is not None:
        return conditions
    too_few = len(seen.active) < replica_set.wanted
    failure = Condition(
        type=REPLICA_FAILURE,
        status="True",
        reason="FailedCreate" if too_few else "FailedDelete",
        message=seen.failure,
        last_transition_time=whole_seconds(now),
    )
    return [*conditions, failure]
