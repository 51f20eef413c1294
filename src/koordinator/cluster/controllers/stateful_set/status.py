"""The status of a StatefulSet, worked out from its pods."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.cluster.controllers.stateful_set.identity import revision_of
from koordinator.cluster.controllers.stateful_set.pod_plan import PodsOfSet, is_running_and_ready
from koordinator.cluster.controllers.stateful_set.types import StatefulSet, StatefulSetStatus


def new_status(state: PodsOfSet, collisions: int) -> StatefulSetStatus:
    """The status that the StatefulSet should have."""
    pods = list(state.pods.values())
    status = replace(
        state.stateful_set.status,
        observed_generation=state.stateful_set.metadata.generation,
        replicas=len(pods),
        ready_replicas=sum(map(is_running_and_ready, pods)),
        available_replicas=sum(map(state.is_available, pods)),
        current_replicas=_of_revision(pods, state.current_revision),
        updated_replicas=_of_revision(pods, state.update_revision),
        current_revision=state.current_revision,
        update_revision=state.update_revision,
        collision_count=collisions,
    )
    if _is_complete(state.stateful_set, status):
        return replace(status, current_revision=status.update_revision, current_replicas=status.updated_replicas)
    return status


def _of_revision(pods: Sequence[Pod], revision: str) -> int:
    return sum(revision_of(pod) == revision and pod.metadata.deletion_timestamp is None for pod in pods)


def _is_complete(stateful_set: StatefulSet, status: StatefulSetStatus) -> bool:
    """Whether a rolling update is over, so that the next one starts from its revision."""
    wanted = len(stateful_set.ordinals)
    counts = (status.updated_replicas, status.ready_replicas, status.replicas)
    return stateful_set.spec.update_strategy.type == "RollingUpdate" and counts == (wanted, wanted, wanted)
