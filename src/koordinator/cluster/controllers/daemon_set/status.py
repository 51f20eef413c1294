"""The status of a DaemonSet, worked out from its nodes and pods."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.cluster.controllers.daemon_set.pod_plan import DaemonPods, by_age
from koordinator.cluster.controllers.daemon_set.types import DaemonSetStatus
from koordinator.cluster.controllers.pod_state import available_in, is_ready


def new_status(state: DaemonPods, collisions: int) -> DaemonSetStatus:
    """The status that the DaemonSet should have."""
    wanted = [node for node in state.nodes if node.fitness.should_run]
    first = [min(node.pods, key=by_age) for node in wanted if node.pods]
    available = sum(map(state.is_available, first))
    return replace(
        state.daemon_set.status,
        desired_number_scheduled=len(wanted),
        current_number_scheduled=len(first),
        number_misscheduled=sum(bool(node.pods) for node in state.nodes if not node.fitness.should_run),
        number_ready=sum(map(is_ready, first)),
        updated_number_scheduled=sum(map(state.is_updated, first)),
        number_available=available,
        number_unavailable=len(wanted) - available,
        observed_generation=state.daemon_set.metadata.generation,
        collision_count=collisions or state.daemon_set.status.collision_count,
    )


def next_available_in(state: DaemonPods) -> float | None:
    """After how many seconds another pod becomes available, unless it ceases to be ready; None if none does."""
    seconds = state.daemon_set.spec.min_ready_seconds
    waits = [available_in(pod, seconds, state.now) for node in state.nodes for pod in node.pods]
    return min((wait.total_seconds() for wait in waits if wait), default=None)
