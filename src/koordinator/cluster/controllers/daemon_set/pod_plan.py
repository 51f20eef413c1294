"""Which pods of a DaemonSet to create and to delete next: one on each node that fits, and old ones replaced. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.daemon_set.new_pod import Fitness, is_updated, node_of
from koordinator.cluster.controllers.daemon_set.types import DaemonSet
from koordinator.cluster.controllers.pod_state import is_available, is_ready
from koordinator.cluster.controllers.workloads import number_of_pods

FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class NodePods:
    """A node, whether it should have a pod, and the pods that it has."""

    name: str
    fitness: Fitness
    pods: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class DaemonPods:
    """A DaemonSet and its pods on all nodes."""

    daemon_set: DaemonSet
    nodes: Sequence[NodePods]
    nowhere: Sequence[Pod]
    """Pods that are meant for nodes that are gone."""
    revision_hash: str
    now: datetime

    @property
    def desired(self) -> int:
        """How many nodes should have a pod."""
        return sum(node.fitness.should_run for node in self.nodes)

    def is_updated(self, pod: Pod) -> bool:
        return is_updated(self.daemon_set, pod, self.revision_hash)

    def is_available(self, pod: Pod) -> bool:
        return is_available(pod, self.daemon_set.spec.min_ready_seconds, self.now)


@dataclass(slots=True)
class PodPlan:
    """``create`` has the names of nodes."""

    create: list[str] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    ended: list[tuple[str, Pod]] = field(default_factory=list)
    """Of the deleted pods, those that have ended by themselves, with their nodes."""
    retry_after: float | None = None
    """Seconds until a pod that has failed again may be deleted."""


def by_node(pods: Sequence[Pod]) -> Mapping[str, list[Pod]]:
    """The pods by the node that they are on or meant for; those that are deleted and have ended are left out."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if not (is_finished(pod) and pod.metadata.deletion_timestamp is not None):
            found.setdefault(node_of(pod), []).append(pod)
    return found


def plan_pods(state: DaemonPods, pause_of: Callable[[str], float]) -> PodPlan:
    """The next step. ``pause_of``: for so many seconds no failed pod of this node may be deleted."""
    plan = PodPlan()
    for node in state.nodes:
        _plan_node(state, node, plan, pause_of)
    plan.delete += [pod for pod in state.nowhere if not pod.spec.node_name and pod.metadata.deletion_timestamp is None]
    if plan.create or plan.delete or state.daemon_set.spec.update_strategy.type != "RollingUpdate":
        return plan
    surge, unavailable = limits_of(state)
    if surge:
        _update_with_surge(state, surge, plan)
    else:
        _update_in_place(state, unavailable, plan)
    return plan


def limits_of(state: DaemonPods) -> tuple[int, int]:
    """How many nodes may have two pods, and how many none that is available. Shares are rounded up."""
    rolling = state.daemon_set.spec.update_strategy.rolling_update
    surge = number_of_pods(rolling.max_surge, state.desired, math.ceil)
    limit = 1 if rolling.max_unavailable is None else rolling.max_unavailable
    unavailable = number_of_pods(limit, state.desired, math.ceil)
    return surge, max(unavailable, 1) if not surge else unavailable


# What every node should have.


def _plan_node(state: DaemonPods, node: NodePods, plan: PodPlan, pause_of: Callable[[str], float]) -> None:
    if node.fitness.should_run and not node.pods:
        plan.create.append(node.name)
        return
    live = [pod for pod in node.pods if pod.metadata.deletion_timestamp is None]
    if not node.fitness.may_stay:
        plan.delete += live
        return
    running = [pod for pod in live if not is_finished(pod)]
    for pod in live:
        if is_finished(pod):
            _plan_ended(node, pod, plan, pause_of)
    plan.delete += _excess(state, sorted(running, key=by_age))


def _plan_ended(node: NodePods, pod: Pod, plan: PodPlan, pause_of: Callable[[str], float]) -> None:
    pause = pause_of(node.name) if pod.status.phase == FAILED else 0.0
    if pause > 0:
        plan.retry_after = pause if plan.retry_after is None else min(pause, plan.retry_after)
        return
    plan.delete.append(pod)
    plan.ended.append((node.name, pod))


def _excess(state: DaemonPods, running: Sequence[Pod]) -> list[Pod]:
    """The pods beyond the one on a node, or beyond an old and a new one where both may be there."""
    surge, _ = limits_of(state)
    if not surge:
        return list(running[1:])
    updated = [pod for pod in running if state.is_updated(pod)]
    old = [pod for pod in running if not state.is_updated(pod)]
    excess = [*updated[1:], *old[1:]]
    if updated and old and (not is_ready(old[0]) or state.is_available(updated[0])):
        excess.append(old[0])
    return excess


def by_age(pod: Pod) -> tuple[bool, float, str]:
    """Sorts pods that have a node first, and then the oldest."""
    created = pod.metadata.creation_timestamp
    return not pod.spec.node_name, created.timestamp() if created is not None else 0.0, pod.metadata.name


# The rolling update.


def _new_and_old(state: DaemonPods, node: NodePods) -> tuple[list[Pod], list[Pod]]:
    live = [pod for pod in node.pods if pod.metadata.deletion_timestamp is None]
    return [pod for pod in live if state.is_updated(pod)], [pod for pod in live if not state.is_updated(pod)]


def _update_in_place(state: DaemonPods, most: int, plan: PodPlan) -> None:
    """Delete old pods, so that at most ``most`` nodes have none that is available; creation follows by itself."""
    unavailable = 0
    broken: list[Pod] = []
    replaceable: list[Pod] = []
    for node in state.nodes:
        new, old = _new_and_old(state, node)
        if not node.fitness.should_run and not node.pods:
            continue
        if len(new) + len(old) != 1:
            unavailable += 1
        elif new:
            unavailable += not state.is_available(new[0])
        elif not state.is_available(old[0]):
            broken.append(old[0])
            unavailable += 1
        else:
            replaceable.append(old[0])
    plan.delete += [*broken, *replaceable[: max(0, most - unavailable)]]


def _update_with_surge(state: DaemonPods, most: int, plan: PodPlan) -> None:
    """Create new pods beside at most ``most`` old ones that are available; the old ones go once those are available."""
    surging = 0
    candidates: list[str] = []
    for node in state.nodes:
        new, old = _new_and_old(state, node)
        if new and old:
            surging += not state.is_available(new[0])
        elif len(old) == 1 and not new:
            if state.is_available(old[0]):
                candidates += [node.name] if node.fitness.should_run else []
            elif node.fitness.should_run:
                plan.create.append(node.name)
            else:
                plan.delete.append(old[0])
    plan.create += candidates[: max(0, most - surging)]
